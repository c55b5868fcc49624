"""Rules on GPUs that wait: for the host, for data, for compilers."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.advice import rule
from bridge.analyze.advice.facts import Seen
from bridge.analyze.advice.rule import HERE, NOT_ESTIMATED, NSYS, TENSORBOARD, Finding, Rule
from bridge.analyze.causes.gaps import WORDS, by_gap, gaps
from bridge.analyze.concurrency.exposure import Running
from bridge.analyze.groups import sums, texts
from bridge.join.arrays import NONE, Flags, Ints
from importers import frames

UTILISED = 0.5  # of the time; below it a GPU is used too little
STRETCHES = 30  # that a GPU's span is parted into
LONG_GAP_NS = 500_000_000
LONG_GAP = 0.05  # of the run, where that is less
LAUNCHES = 0.05  # of the run that is idle for launching
LAUNCH_NS = 100_000  # a gap that is longer is more than a launch
HOST = [WORDS.index(cause) for cause in ("op", "no op", "api")]
HOST_SHARE = 0.05  # of a GPU's time
FROM_A_GRAPH_NS = 1_500  # between two kernels of a CUDA graph
SHORT_NS = 5_000
LEAST_KERNELS = 100
SHORT = 0.5  # of the kernels


def low_use(seen: Seen) -> Finding | None:
    """GPUs that are busy less than half of their time."""
    low = seen.gpus[seen.gpus["busy_share"] < UTILISED]
    if low.empty:
        return None
    table = low.sort_values("busy_share", ignore_index=True, kind="stable")
    table = table[["device", "busy_share", "busy_ns", "idle_ns", "span_ns"]]
    worst = table.iloc[0]
    figures = {
        "device": str(worst["device"]),
        "busy_share": float(worst["busy_share"]),
        "span_ns": int(worst["span_ns"]),
    }
    return Finding(figures, table, int(table["idle_ns"].max()))


def low_stretches(seen: Seen) -> Finding | None:
    """Stretches, of a thirtieth of a GPU's span each, in which it is busy less than half of the time."""
    devices, rows = seen.devices, np.flatnonzero(seen.counted)
    running = Running.of(seen.joined, devices.of, seen.counted)
    parts = []
    low_ones = seen.gpus.loc[seen.gpus["busy_share"] < UTILISED, "device"].tolist()
    for one in np.unique(devices.of[rows]).tolist():  # a turn per GPU
        if devices.names[one] in low_ones:
            continue  # of which all is a stretch
        own = rows[devices.of[rows] == one]
        first = int(frames.ints(seen.report.activities, "start")[own].min())
        last = int(seen.joined.end[own].max())
        edges = first + (last - first) * np.arange(STRETCHES + 1) // STRETCHES
        spent = running.within(np.full(STRETCHES, one), edges[:-1], edges[1:])
        low = (spent < UTILISED * np.diff(edges)) & (np.diff(edges) > 0)
        parts.append(_together(devices.names[one], edges, spent, low))
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    if table.empty:
        return None
    table = table.sort_values("idle_ns", ascending=False, ignore_index=True, kind="stable")
    row = table.iloc[0]
    figures = {
        "stretches": len(table),
        "device": str(row["device"]),
        "length_ns": int(row["length_ns"]),
        "busy_share": row["busy_ns"] / row["length_ns"],
    }
    return Finding(figures, table, int(table.groupby("device")["idle_ns"].sum().max()))


def _together(device: str, edges: Ints, spent: Ints, low: Flags) -> pd.DataFrame:
    """Return a row for each run of neighbouring stretches."""
    edge = np.flatnonzero(np.diff(np.concatenate(([0], low.astype(np.int8), [0]))))
    first, last = edge[::2], edge[1::2]
    busy = np.concatenate(([0], np.cumsum(spent)))
    length, worked = edges[last] - edges[first], busy[last] - busy[first]
    return pd.DataFrame(
        {
            "device": texts([device] * len(first)),
            "start_ns": edges[first],
            "length_ns": length,
            "busy_ns": worked,
            "idle_ns": length - worked,
        }
    )


def long_gaps(seen: Seen) -> Finding | None:
    """Single gaps of a GPU that are long, and what the host did meanwhile."""
    limit = min(LONG_GAP_NS, int(LONG_GAP * seen.span_ns))
    if not limit:
        return None
    table = by_gap(seen.joined, limit)[seen.inner(gaps(seen.joined, limit).gaps)]
    if table.empty:
        return None
    table = table.sort_values("gap_ns", ascending=False, ignore_index=True, kind="stable")
    row = table.iloc[0]
    figures = {
        "gaps": len(table),
        "limit_ns": limit,
        "longest_ns": int(row["gap_ns"]),
        "cause": " in ".join(filter(None, (row["cause"], row["op"]))),
    }
    return Finding(figures, table, int(table.groupby("device")["gap_ns"].sum().max()))


def bound_by_launches(seen: Seen) -> Finding | None:
    """Ops before whose kernels the GPU is idle for launching longer than these then take."""
    joined, launching = seen.joined, _launching(seen)
    many_ops = len(joined.ops) + 1
    own = np.flatnonzero(seen.computing & (joined.node != NONE))
    op = joined.activity_op[own]
    late, worked = sums(op, launching[own], many_ops), sums(op, seen.time[own], many_ops)
    rows = own[(late > worked)[op] & (launching[own] > 0)]
    total = seen.most(rows, launching[rows])
    if total <= LAUNCHES * seen.span_ns:
        return None
    figures = {
        "ops": len(np.unique(joined.activity_op[rows])),
        "idle_ns": total,
        "idle_share": total / seen.span_ns,
    }
    saved = np.maximum(launching[rows] - FROM_A_GRAPH_NS, 0)
    table = rule.of_activities(seen, rows, launching[rows])
    return Finding(figures, table, total, seen.most(rows, saved))


def _launching(seen: Seen) -> Ints:
    """Return how long its GPU was idle for launching right before each activity, if not for so long that the host did more."""
    before, starved = seen.idle_before
    return np.where(before + starved <= LAUNCH_NS, before, 0)


def bound_by_the_host(seen: Seen) -> Finding | None:
    """Gaps longer than launches take, in which the host works on something else."""
    idle = seen.idle
    own = np.isin(idle.cause, HOST) & (idle.gaps.length[idle.gap] > LAUNCH_NS)
    length, gap = idle.length[own], idle.gap[own]
    total = int(sums(idle.gaps.device[gap], length, len(idle.gaps.devices)).max(initial=0))
    if total <= HOST_SHARE * seen.span_ns:
        return None
    table = rule.grouped(
        {"cause": (idle.cause[own], WORDS), "op": (idle.op[own], seen.joined.ops)},
        length,
        idle.gaps.ended_by[gap],
    )
    figures = {"gaps": len(np.unique(gap)), "idle_ns": total, "idle_share": total / seen.span_ns}
    return Finding(figures, table, total)


def short_kernels(seen: Seen) -> Finding | None:
    """Kernels that are mostly too short to be worth their launch."""
    kernels = np.flatnonzero(seen.computing)
    rows = kernels[seen.time[kernels] < SHORT_NS]
    if len(kernels) < LEAST_KERNELS or len(rows) <= SHORT * len(kernels):
        return None
    before = _launching(seen)[rows]
    figures = {
        "short_share": len(rows) / len(kernels),
        "kernels": len(kernels),
        "limit_ns": SHORT_NS,
        "idle_ns": seen.most(rows, before),
    }
    ceiling = seen.most(rows, before) + seen.most_work(rows)
    return Finding(figures, rule.of_activities(seen, rows), ceiling, seen.most(rows, before))


RULES = (
    Rule(
        "low-gpu-use",
        "A GPU is used too little",
        f"a GPU is busy less than {UTILISED:.0%} of its span",
        "{device} is busy {busy_share} of its {span_ns}",
        "find what it waits for: bridge report --by idle; larger batches give it more at a time",
        NOT_ESTIMATED,
        TENSORBOARD,
        ("work",),
        low_use,
    ),
    Rule(
        "low-use-stretches",
        "A GPU is used little for a while",
        f"in one of {STRETCHES} equal parts of its span a GPU is busy less than {UTILISED:.0%}, and in all of it more",
        "stretches of low use: {stretches}; in the one with most idle time {device} is busy {busy_share} of {length_ns}",
        "look at these stretches: bridge trace --from TIME --to TIME, or bridge report --by idle with them",
        NOT_ESTIMATED,
        NSYS,
        ("work",),
        low_stretches,
    ),
    Rule(
        "long-gaps",
        "A GPU does nothing for long",
        f"a gap is longer than {LONG_GAP_NS / 1e9} s or {LONG_GAP:.0%} of the longest span, whichever is less",
        "gaps over {limit_ns}: {gaps}; the longest is {longest_ns}: {cause}",
        "see what the host did in each gap: bridge report --by gap",
        NOT_ESTIMATED,
        NSYS,
        ("work", "calls"),
        long_gaps,
    ),
    Rule(
        "launch-bound",
        "The host issues work more slowly than the GPU does it",
        f"idle time of at most {LAUNCH_NS / 1e3:.0f} us before its kernels, for launching, is longer than the kernels of an op; of all such ops more than {LAUNCHES:.0%} of the span",
        "ops whose work is shorter than the idle time before it: {ops}; for launching it a GPU is idle {idle_ns}, {idle_share} of its time",
        "issue less at a time: CUDA graphs (torch.cuda.graph, torch.compile(mode='reduce-overhead')), fused ops, larger batches",
        "the idle time before their work, but 1.5 us each, which a CUDA graph takes",
        HERE,
        ("work", "calls", "ops"),
        bound_by_launches,
    ),
    Rule(
        "host-bound",
        "The host works on something else while a GPU waits",
        f"gaps over {LAUNCH_NS / 1e3:.0f} us, in which the host is in an op, in none or in an API call that does not wait, are more than {HOST_SHARE:.0%} of the span",
        "gaps: {gaps}; the host works elsewhere for {idle_ns} of them, {idle_share} of a GPU's time",
        "profile that code on the host; move it to other processes, or between launches that are far ahead",
        NOT_ESTIMATED,
        HERE,
        ("work", "calls"),
        bound_by_the_host,
    ),
    Rule(
        "short-kernels",
        "Most kernels are very short",
        f"of at least {LEAST_KERNELS} kernels more than {SHORT:.0%} take less than {SHORT_NS / 1e3:.0f} us",
        "{short_share} of {kernels} kernels take less than {limit_ns}; for launching these a GPU is idle {idle_ns}",
        "fuse them: torch.compile, fused optimizers and norms; or launch them together as a CUDA graph",
        "the idle time for launching before them",
        HERE,
        ("kernels", "calls"),
        short_kernels,
    ),
)
