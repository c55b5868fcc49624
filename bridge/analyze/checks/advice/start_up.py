"""Rules about what happens once: compilation, loading of modules, the first iteration, what is before and behind all work."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import NSIGHT_BRIDGE, Finding
from bridge.analyze.checks.check import Check
from bridge.analyze.checks.costs import host_costs
from bridge.analyze.core.groups import sums, texts
from bridge.analyze.core.kinds import loads_data
from bridge.analyze.run.account import RunClocks, Span
from bridge.analyze.run.causes.gaps import WORDS
from bridge.analyze.run.host_time import host_time
from bridge.importers import frames
from bridge.join.arrays import NONE, Flags, Ints, number_groups

PAID_ONCE = "paid-once"
MIN_START_UP = 0.2  # of the time from the first work of a GPU to its last
LITTLE = 0.15  # of the time before and behind all work: less can be done about it than about what repeats
ONCE = 0.75  # of the ceiling, which a longer or later run saves
FIRST = 3  # times the idle time of a usual iteration
MIN_ITERATIONS = 3
MAX_RANGES = 100  # called warm-up, the longest, that are looked at
MAX_WARM_UPS = 5  # calls of an op that is called warm-up
WARM_UP = re.compile(
    r"(?<![a-z])(?:warm[-_ ]?up|initiali[sz]\w*|init|start[-_ ]?up)(?![a-z])", re.IGNORECASE
)


def start_up(evidence: Evidence) -> Finding | None:
    """Find idle time of compilation, warm-up and the first iteration."""
    idle = evidence.idle
    warm_up = _warm_up_ops(evidence)
    is_start = (idle.cause == WORDS.index("compilation")) | (warm_up != NONE)
    is_start |= _in_first_iteration(evidence)
    op = np.where(warm_up != NONE, warm_up, idle.op)
    time = sums(idle.gaps.device[idle.gap[is_start]], idle.length[is_start], len(idle.gaps.devices))
    total = int(time.max(initial=0))
    if not total or total <= MIN_START_UP * evidence.span_ns:
        return None
    table = rule.group_rows(
        {
            "cause": (idle.cause[is_start], WORDS),
            "op": (op[is_start], evidence.attributed.ops),
        },
        idle.length[is_start],
        idle.gaps.ended_by[idle.gap[is_start]],
    )
    figures = {
        "idle_ns": total,
        "idle_share": total / evidence.span_ns,
        "cause": " in ".join(filter(None, (table["cause"].iloc[0], table["op"].iloc[0]))),
    }
    return Finding(figures, table, total, lost=rule.idle_pieces(evidence, is_start))


def _warm_up_ops(evidence: Evidence) -> Ints:
    """Return the op that is called warm-up and in which each piece of a gap began, else NONE.

    An op that is called again and again is no warm-up, whatever its name.
    """
    nesting, ops = evidence.attributed.attribution.nesting, evidence.attributed.node_op
    nodes = np.flatnonzero(evidence.outermost(evidence.nodes_with_op(WARM_UP.search)))
    calls = np.bincount(ops[nodes], minlength=len(evidence.attributed.ops) + 1)
    nodes = nodes[calls[ops[nodes]] <= MAX_WARM_UPS]
    longest = np.argsort(nesting.start[nodes] - nesting.end[nodes], kind="stable")
    nodes = nodes[longest[:MAX_RANGES]]
    result = np.full(len(evidence.idle.gap), NONE)
    home, home_of_node = _homes(evidence, nesting.range[nodes])
    first = evidence.idle.first
    for node, own in zip(nodes.tolist(), home_of_node.tolist(), strict=True):
        is_inside = (nesting.start[node] <= first) & (first < nesting.end[node]) & (home == own)
        result[is_inside] = ops[node]
    return result


def _homes(evidence: Evidence, ranges: Ints) -> tuple[Ints, Ints]:
    """Return a number for the report and process of each piece of a gap, and of some ranges."""
    activities = evidence.capture.activities
    rows = evidence.idle.gaps.ended_by[evidence.idle.gap]
    columns = [
        np.concatenate(
            (frames.ints(activities, c)[rows], frames.ints(evidence.capture.ranges, c)[ranges])
        )
        for c in ("report", "process")
    ]
    number, _ = number_groups(*columns)
    return number[: len(rows)], number[len(rows) :]


def _in_first_iteration(evidence: Evidence) -> Flags:
    """Return whether each piece of a gap is in the first iteration, if that takes much longer than others."""
    idle, steps = evidence.idle, evidence.attributed.iterations
    result = np.zeros(len(idle.gap), bool)
    rows = idle.gaps.ended_by[idle.gap]
    report, process = (
        frames.ints(evidence.capture.activities, c)[rows] for c in ("report", "process")
    )
    for first, last in steps.by_process():
        if last - first < MIN_ITERATIONS:
            continue
        edges = steps.start[first:last]
        is_own = (report == steps.report[first]) & (process == steps.process[first])
        number = np.searchsorted(edges, idle.first, side="right")  # 0: before the first
        lost = sums(number[is_own], idle.length[is_own], len(edges) + 1)[1:]
        if lost[0] > FIRST * np.median(lost[1:-1]) and lost[0] > 0:
            result |= is_own & (number == 1)
    return result


def paid_once(evidence: Evidence) -> Finding | None:
    """Find the time of the run before the first counted work of a GPU and behind the last, and what the host did in it.

    The time in which a thread loads data is that of another rule.
    """
    attributed = evidence.attributed
    clocks = RunClocks.of(attributed)
    rows = np.flatnonzero(evidence.counted)
    is_one = len(clocks.whole) == len(evidence.capture.facts) == 1
    if not is_one or not len(rows) or attributed.selection is not None:
        return None  # before selected work other work may run
    start = frames.ints(evidence.capture.activities, "start")[rows]
    run, first, last = clocks.part_of(0), int(start.min()), int(attributed.end[rows].max())
    parts = [part for part in (Span(run.start, first), Span(last, run.end)) if part.length > 0]
    if not parts:
        return None
    costs = [one for one in host_costs(host_time(attributed, parts)) if not loads_data(one.where)]
    total = sum(cost.time_ns for cost in costs)
    if total <= MIN_START_UP * run.length:
        return None
    table = pd.DataFrame(
        {
            "what": texts(cost.what for cost in costs),
            "range": texts(cost.where for cost in costs),
            "total_ns": np.array([cost.time_ns for cost in costs], np.int64),
        }
    ).sort_values("total_ns", ascending=False, ignore_index=True, kind="stable")
    most = table.iloc[0]
    figures = {
        "time_ns": total,
        "run_share": total / run.length,
        "cause": " in ".join(filter(None, (most["what"], most["range"]))),
        "cause_ns": int(most["total_ns"]),
    }
    return Finding(figures, table, total)


RULES = (
    Check(
        name="start-up",
        title="The GPU waits for what happens once: compilation, loading, the first iteration",
        when=f"compilation, ranges called warm-up and the first iteration are more than {MIN_START_UP:.0%} of the time from the GPU's first work to its last, idle",
        text="the GPU is idle for {idle_ns}, {idle_share} of the time from its first work to its last, while code is compiled and loaded, or the first iteration runs; most of it: {cause}",
        remedy="record after the warm-up (bridge.profile(schedule=…), nsys --capture-range); keep compiled code in a cache; run long enough that it does not matter",
        source=NSIGHT_BRIDGE,
        needs=("work",),
        find=start_up,
        certainty=ONCE,
    ),
    Check(
        name=PAID_ONCE,
        title="The GPU has no work yet, or no more",
        when=f"the time before the first work of a GPU and behind the last, without loading of data, is more than {MIN_START_UP:.0%} of the run",
        text="{time_ns}, {run_share} of the run, pass before the first work of a GPU and behind the last; most of it: {cause}, {cause_ns}",
        remedy="profile this host code (nsys profile --sample=process-tree, py-spy); keep what it makes in a cache; a longer run pays it once, too",
        source=NSIGHT_BRIDGE,
        needs=("work",),
        find=paid_once,
        certainty=LITTLE,
    ),
)
