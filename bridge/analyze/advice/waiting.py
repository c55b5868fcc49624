"""Rules on GPUs that wait for data, or for a compiler."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from bridge.analyze.advice import rule
from bridge.analyze.advice.facts import Seen
from bridge.analyze.advice.rule import HERE, TENSORBOARD, TIDY, Finding, Rule
from bridge.analyze.causes.api_calls import IN_COMPILER, kinds
from bridge.analyze.causes.gaps import WORDS
from bridge.analyze.groups import sums
from bridge.analyze.roles import compiles, loads_data
from bridge.analyze.steps import by_step
from bridge.analyze.steps.pace import WARM_UP
from bridge.join.arrays import Flags, Ints
from importers import frames

LOADER = 0.05  # of the time of steps
IN_ONE_PROCESS = re.compile(r"enumerate\(DataLoader\)#_SingleProcessDataLoaderIter.*")


def _idle_by(seen: Seen, *causes: str) -> int:
    """Return how long the GPU was idle for these causes that was longest so."""
    idle = seen.idle
    wanted = np.isin(idle.cause, [WORDS.index(cause) for cause in causes])
    of = idle.gaps.device[idle.gap[wanted]]
    return int(sums(of, idle.length[wanted], len(idle.gaps.devices)).max(initial=0))


def _loading(seen: Seen, of: Flags) -> tuple[Ints, Ints]:
    """Return the outermost nodes of some, in a step or between two, and how long each took of the run."""
    rows = np.flatnonzero(seen.outermost(of))
    spent = seen.within_run(rows)
    return rows[spent > 0], spent[spent > 0]


def waits_for_data(seen: Seen) -> Finding | None:
    """Data loading that keeps GPUs idle, or takes more than a twentieth of the steps."""
    loading = loads_data(seen.joined)[seen.joined.node_op] & seen.joined.around
    rows, spent = _loading(seen, loading)
    if not len(rows):
        return None
    thread = seen.joined.attribution.nesting.stack[rows]
    total, idle = seen.most_of_threads(thread, spent), _idle_by(seen, "data loading")
    of_steps = _share_of_steps(seen)
    if max(of_steps, idle / max(1, seen.span_ns)) <= LOADER:
        return None
    figures = {
        "loading_ns": total,
        "idle_ns": idle,
        "idle_share": idle / max(1, seen.span_ns),
        "steps_share": of_steps,
    }
    return Finding(figures, rule.of_nodes(seen, rows, spent), max(total, idle), idle)


def _share_of_steps(seen: Seen) -> float:
    """Return the share of the steps, and the time between them, that waits for data."""
    if not len(seen.joined.iterations):
        return 0.0
    steps = by_step(seen.joined)
    waited = steps["dataloader_ns"].sum() + steps["between_dataloader_ns"].sum()
    return float(waited / max(1, steps["wall_ns"].sum() + steps["between_ns"].sum()))


def loads_in_one_process(seen: Seen) -> Finding | None:
    """A DataLoader of PyTorch that works in the program's own process."""
    rows, spent = _loading(seen, seen.ops_like(IN_ONE_PROCESS.fullmatch, anywhere=True))
    if not len(rows):
        return None
    thread = seen.joined.attribution.nesting.stack[rows]
    idle = _idle_by(seen, "data loading")
    total = seen.most_of_threads(thread, spent)
    figures = {"batches": len(rows), "loading_ns": total}
    return Finding(figures, rule.of_nodes(seen, rows, spent), total, min(idle, total))


def compiles_again(seen: Seen) -> Finding | None:
    """Compilation and module loading in steps after the first ones."""
    joined = seen.joined
    steps = joined.iterations
    settled = np.append(_settled(seen), False)
    calls = np.flatnonzero((kinds(joined) == IN_COMPILER) & joined.counted_launches)
    ranges = np.flatnonzero(seen.outermost(compiles(joined)[joined.node_op] & joined.listed))
    nesting = joined.attribution.nesting
    row = nesting.range[ranges]
    at = _step_at(
        seen, seen.report.launches, calls, frames.ints(seen.report.launches, "start")[calls]
    )
    calls = calls[settled[at]]
    at = _step_at(seen, seen.report.ranges, row, nesting.start[ranges])
    ranges = ranges[settled[at]]
    if not len(calls) + len(ranges):
        return None
    length = (nesting.end - nesting.start)[ranges]
    table = rule.of_nodes(seen, ranges, length) if len(ranges) else rule.of_calls(seen, calls)
    threads = nesting.stack[ranges] if len(ranges) else joined.attribution.stack[calls]
    total = seen.most_of_threads(threads, length if len(ranges) else seen.call_time[calls])
    figures = {
        "compilations": len(ranges) or len(calls),
        "steps": len(steps),
        "compiling_ns": total,
    }
    return Finding(figures, table, total, min(total, _idle_by(seen, "compilation")))


def _settled(seen: Seen) -> Flags:
    """Tell which steps are after the first two of their process, and no warm-up."""
    steps, table = seen.joined.iterations, by_step(seen.joined)
    later = np.zeros(len(steps), bool)
    for first, last in steps.by_process():
        later[first + 2 : last] = True
    if len(table) == len(steps):
        later &= table["state"].to_numpy() != WARM_UP
    return later


def _step_at(seen: Seen, table: pd.DataFrame, rows: Ints, when: Ints) -> Ints:
    of, process = (frames.ints(table, c)[rows] for c in ("report", "process"))
    return seen.joined.iterations.at(of, process, when)


RULES = (
    Rule(
        "data-loading",
        "Training waits for data",
        f"more than {LOADER:.0%} of the steps, or of a GPU's time idle, go into data loading",
        "a thread loads data for {loading_ns}; meanwhile a GPU is idle for {idle_ns}, {idle_share} of its time",
        "give DataLoader more workers (num_workers), pin_memory=True and prefetch_factor; decode and augment on the GPU",
        "the GPU's idle time while data is loaded",
        TENSORBOARD,
        ("work", "ops"),
        waits_for_data,
    ),
    Rule(
        "single-process-loader",
        "Data is loaded by the process that trains",
        "batches come from a loader without workers",
        "batches that the program makes itself: {batches}, in {loading_ns}",
        "DataLoader(num_workers=4) or more: workers load while the GPU works",
        "the GPU's idle time while data is loaded",
        TIDY,
        ("work", "ops"),
        loads_in_one_process,
    ),
    Rule(
        "recompilation",
        "Something is compiled again after the first steps",
        "ops or API calls compile in steps that are neither warm-up nor among the first two",
        "compilations after the first steps: {compilations}, {compiling_ns} of a thread, in {steps} steps",
        "keep shapes constant, or torch.compile(dynamic=True); TORCH_LOGS=recompiles says why; load modules before the loop (CUDA_MODULE_LOADING=EAGER)",
        "the GPU's idle time during compilation",
        HERE,
        ("work", "calls", "steps"),
        compiles_again,
    ),
)
