"""Summary lines above or below tables: ranks, steps, oneDNN's primitives, memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bridge.analyze.core.table import Table
from bridge.render import units
from bridge.render.table import clean
from bridge.render.table_columns import MISSING

if TYPE_CHECKING:
    from bridge.analyze.checks.summary import Iteration
    from bridge.analyze.core.session_cycles import ActiveCycles
    from bridge.analyze.run.steps import Pace
    from bridge.analyze.tables.onednn import Totals

# -- Ranks


UNKNOWN = -1


def ranks_line(totals: Mapping[str, float]) -> str:
    """Return ``4 ranks on 2 hosts, 1.234 s: GPUs busy 91.2 %, …``.

    The time is that of the run, or of its selected part, of which GPUs are busy a share.
    """
    hosts = int(totals["hosts"])
    host_count = f" on {_count(hosts, 'host')}" if hosts else ""
    result = [
        f"{units.count(int(totals['kernels']))} kernels",
        f"GPUs busy {units.percent(totals['busy_share'])} of the run",
        f"{units.percent(totals['attributed_share'])} of GPU time in ops",
        f"{units.time(int(totals['exposed_ns']))} of communication exposed",
    ]
    head = (
        f"{_count(int(totals['ranks']), 'rank')}{host_count}, {units.time(int(totals['span_ns']))}"
    )
    return f"{head}: {', '.join(result)}{_clocks(int(totals['clock_spread_ns']))}"


def _clocks(spread: int) -> str:
    """Return how well the clocks agree, '' for a single clock."""
    if spread == 0:
        return ""
    agreement = f"within ± {units.time(spread)}" if spread != UNKNOWN else "only as hosts keep time"
    return f"; clocks agree {agreement}"


def _count(number: int, noun: str) -> str:
    return f"{units.count(number)} {noun}{'' if number == 1 else 's'}"


# -- Steps


def cycles_line(cycles: ActiveCycles | None) -> str:
    """Return the line on the steps in which a session added no ranges, '' if there are none."""
    if cycles is None:
        return ""
    example = f" (such as {cycles.example})" if cycles.ops > 1 else f" ({cycles.example})"
    return (
        f"{cycles.active} of {units.count(cycles.steps)} steps are active in the session's schedule."
        f" The others lack the ranges of {_count(cycles.ops, 'op')}{example}:"
        " their time counts for the ops around them. To see the active steps alone: --range capture\n"
    )


MIN_BETWEEN = 0.05  # share of a step from which on the time between two steps is reported
NOTES = {"optimizer": ", each ended by the optimizer", "repetition": ", found by repetition"}
ROLES = {
    "kernel": "kernel time",
    "memcpy": "memcpy time",
    "memset": "memset time",
    "runtime": "time in API calls",
    "dataloader": "waiting for data",
    "cpu": "CPU time",
    "other": "time without recorded work",
}


def run_line(run_ns: int | None, *, is_part: bool) -> str:
    """Return the line on the length of the run, or of its part, of a critical path, '' for other tables."""
    of = "The selected part of the run" if is_part else "The run"
    return "" if run_ns is None else f"{of} takes {units.time(run_ns)}.\n"


def step_lines(paces: Iterable[Pace]) -> str:
    """Return two lines per loop: its steps, and the time of an iteration; '' without steps."""
    result = [*paces]
    return "".join(f"{_steps_line(pace, several=len(result) > 1)}\n" for pace in result)


def _steps_line(pace: Pace, *, several: bool) -> str:
    of_file = f" in {pace.file}" if pace.file and len(pace.pids) == 1 else ""
    of_loop = f" of {clean(pace.loop)}{of_file}" if several else ""
    note = NOTES.get(pace.found_by, "")
    outliers = f", {_count(pace.outliers, 'outlier')}" if pace.outliers else ""
    warm_up = f" ({units.count(pace.warm_up)} of warm-up)" if pace.warm_up else ""
    role = ROLES.get(pace.slower_by, pace.slower_by)
    cause = f", with {units.time(pace.excess_ns)} more {role} than usual"
    excess = cause if pace.excess_ns > 0 else ""
    if pace.count == 1:
        return f"1 step{of_loop}{note}: {units.time(pace.slowest_ns)}"
    iteration = f"\niteration, median: {iteration_text(pace)}" if pace.iteration_ns else ""
    return (
        f"{units.count(pace.count)} steps{of_loop}{note}{warm_up}: median {units.time(pace.median_ns)},"
        f" mean {units.time(pace.mean_ns)}, p95 {units.time(pace.p95_ns)},"
        f" variation {units.percent(pace.variation)}{outliers};"
        f" step {pace.slowest} is the slowest, {units.time(pace.slowest_ns)}{excess}{iteration}"
    )


def iteration_text(pace: Pace | Iteration) -> str:
    """Return ``153.4 ms (8.3 ms in the step, 145.1 ms between steps, of which 144.9 ms data loading)``.

    Without much time between steps it is the time of an iteration alone. The time on the host is said
    if it differs.
    """
    host = f", on the host {units.time(pace.host_ns)}" if host_differs(pace) else ""
    if pace.between_ns <= MIN_BETWEEN * pace.median_ns:
        return f"{units.time(pace.iteration_ns)}{host}"
    loading = f", of which {units.time(pace.loading_ns)} data loading" if pace.loading_ns else ""
    return (
        f"{units.time(pace.iteration_ns)}{host} ({units.time(pace.median_ns)} in the step,"
        f" {units.time(pace.between_ns)} between steps{loading})"
    )


MIN_DIFFERENCE = 0.05  # of the times of an iteration on the GPU and on the host, if both are said


def host_differs(pace: Pace | Iteration) -> bool:
    """Return whether the time of an iteration on the host is worth saying beside that on the GPU."""
    return (
        abs(pace.host_ns - pace.iteration_ns)
        > MIN_DIFFERENCE * pace.iteration_ns
        > 0
        < pace.host_ns
    )


LOOP_VERBS = {"repetition": "begin", "optimizer": "end"}


def loop_lines(paces: Iterable[Pace]) -> str:
    """Return a line per loop, each once; '' for steps without names."""
    lines = dict.fromkeys(_loop_line(pace) for pace in paces if pace.loop)
    return "".join(f"{line}\n" for line in lines)


def _loop_line(pace: Pace) -> str:
    if verb := LOOP_VERBS.get(pace.found_by):
        return f"steps {verb} with {clean(pace.loop)}"
    first, last = (clean(name) for name in pace.names)
    return f"steps are the ranges {first}" + (f" … {last}" if last != first else "")


# -- Primitives of oneDNN


def primitives_line(totals: Totals) -> str:
    """Return one line: number and time of executions and of creations."""
    executions = _times(totals.calls, totals.total_ns, "execution")
    creations = _times(totals.creations, totals.creation_ns, "creation")
    return f"{executions}; {creations}" if totals.creations else executions


def _times(number: int, ns: int, noun: str) -> str:
    return f"{units.count(number)} {noun}{'' if number == 1 else 's'}, {units.time(ns)}"


# -- Memory: a line per process, device and kind


def memory_lines(summary: Table) -> str:
    """Return a line per row of the summary."""
    several = len(set(summary["pid"].tolist())) > 1
    return "".join(f"{_line(row, several=several)}\n" for row in summary.records())


def sampled_lines(peaks: Table) -> str:
    """Return a line per process and device with samples of memory."""
    several = len(set(peaks["pid"].tolist())) > 1
    return "".join(f"{_samples_line(row, several=several)}\n" for row in peaks.records())


def _samples_line(row: Mapping[str, object], *, several: bool) -> str:
    process = f" of process {row['pid']}" if several else ""
    peak = f"peak at least {_size(row['peak_bytes'])}{_when(row, 'peak')}"
    driver = row["driver_bytes"]
    others = "" if driver == MISSING else f"; driver and libraries take up to {_size(driver)} more"
    count = units.count(_int(row["samples"]))
    return f"{row['device']}{process}: {peak}; {count} samples{_reserved(row)}{others}"


def _line(row: Mapping[str, object], *, several: bool) -> str:
    gpu = "" if row["device"] == MISSING else f" of GPU {row['device']}"
    process = f" of process {row['pid']}" if several else ""
    peak = f"peak {_size(row['peak_bytes'])}{_when(row, 'peak')}"
    before = f", {_size(row['before_bytes'])} of it from before the capture"
    return (
        f"{row['memory']} memory{gpu}{process}: {peak}{before if row['before_bytes'] else ''};"
        f" {units.count(_int(row['allocations']))} allocations of {_size(row['allocated_bytes'])},"
        f" {_size(row['end_bytes'])} held at the end{_reserved(row)}"
    )


def _reserved(row: Mapping[str, object]) -> str:
    if row["peak_reserved_bytes"] == MISSING:
        return ""
    share = row["fragmentation"]
    unused = f", {units.percent(float(str(share)))} of it unused" if share != MISSING else ""
    return f"; reserved at most {_size(row['peak_reserved_bytes'])}{_when(row, 'reserved')}{unused}"


def _when(row: Mapping[str, object], event: str) -> str:
    if row[f"{event}_ns"] == MISSING:
        return " at the beginning"
    op, step = row[f"{event}_op"], row[f"{event}_step"]
    place = f" in {op}" if op else ""
    return f" at {units.time(_int(row[f'{event}_ns']))}{place}{'' if step == MISSING else f', step {step}'}"


def _size(value: object) -> str:
    return units.size(_int(value))


def _int(value: object) -> int:
    return int(str(value))
