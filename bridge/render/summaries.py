"""What is said of memory as a whole, a line per process, device and kind."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

import pandas as pd

from bridge.analyze.primitives import Totals
from bridge.analyze.steps.pace import Pace
from bridge.render import document, units
from bridge.render.headings import MISSING

# -- The ranks of a run, for people and as JSON in the format bridge.ranks/1


FORMAT = "bridge.ranks/1"
UNKNOWN = -1


def ranks_line(totals: Mapping[str, float]) -> str:
    """Return ``4 ranks on 2 hosts, 1.234 s: GPUs busy 91.2 %, …``; the time is from the first event to the last."""
    hosts = int(totals["hosts"])
    where = f" on {_count(hosts, 'host')}" if hosts else ""
    found = [
        f"{units.count(int(totals['kernels']))} kernels",
        f"GPUs busy {units.percent(totals['busy_share'])}",
        f"{units.percent(totals['attributed_share'])} of GPU time in ops",
        f"{units.time(int(totals['exposed_ns']))} of communication exposed",
    ]
    head = f"{_count(int(totals['ranks']), 'rank')}{where}, {units.time(int(totals['span_ns']))}"
    return f"{head}: {', '.join(found)}{_clocks(int(totals['clock_spread_ns']))}"


def _clocks(spread: int) -> str:
    """Say how well clocks agree, where they are several."""
    if spread == 0:
        return ""
    known = f"within ± {units.time(spread)}" if spread != UNKNOWN else "only as hosts keep time"
    return f"; clocks agree {known}"


def _count(number: int, what: str) -> str:
    return f"{units.count(number)} {what}{'' if number == 1 else 's'}"


def ranks_json(source: Sequence[str], totals: Mapping[str, float], table: pd.DataFrame) -> str:
    """Return one JSON object, a line per rank."""
    return document.with_rows({"format": FORMAT, "source": list(source), "totals": totals}, table)


# -- What is said of steps as a whole, a line per process


MATTERS = 0.05  # of a step: what passes between two steps is said from here on
ROLES = {
    "kernel": "kernels",
    "memcpy": "memcpys",
    "memset": "memsets",
    "runtime": "API calls",
    "dataloader": "waiting for data",
    "cpu": "the CPU",
    "other": "nothing that is recorded",
}


def step_lines(paces: Iterable[Pace]) -> str:
    """Return a line per process, two where much time passes between its steps; '' for none."""
    found = [*paces]
    return "".join(f"{_steps_line(pace, several=len(found) > 1)}\n" for pace in found)


def _steps_line(pace: Pace, *, several: bool) -> str:
    pid, _, *file = pace.home
    whose = f" of process {pid}{''.join(f' in {name}' for name in file)}" if several else ""
    how = ", found by repetition" if pace.found == "repetition" else ""
    odd = f", {units.count(pace.outliers)} of them out of the ordinary" if pace.outliers else ""
    warm = f" ({units.count(pace.warm_up)} to warm up)" if pace.warm_up else ""
    by = f": {units.time(pace.excess_ns)} more of {ROLES.get(pace.slower_by, pace.slower_by)}"
    more = by if pace.excess_ns > 0 else ""
    if pace.steps == 1:
        return f"1 step{whose}{how}: {units.time(pace.slowest_ns)}"
    return (
        f"{units.count(pace.steps)} steps{whose}{how}{warm}: median {units.time(pace.median_ns)},"
        f" mean {units.time(pace.mean_ns)}, p95 {units.time(pace.p95_ns)},"
        f" varying by {units.percent(pace.variation)}{odd};"
        f" slowest is step {pace.slowest}, {units.time(pace.slowest_ns)}{more}{_between(pace)}"
    )


def _between(pace: Pace) -> str:
    if pace.between_ns <= MATTERS * pace.median_ns:
        return ""
    data = f", {units.percent(pace.between_dataloader)} of it waiting for data"
    said = data if pace.between_dataloader > 0 else ""
    return f"\n{units.time(pace.between_ns)} pass between two steps{said}"


# -- What a log of oneDNN says as a whole


def primitives_line(totals: Totals) -> str:
    """Return one line: how much ran and how long, and what it took to make it."""
    ran = _times(totals.calls, totals.total_ns, "execution")
    made = _times(totals.creations, totals.creation_ns, "creation")
    return f"{ran}; {made}" if totals.creations else ran


def _times(many: int, ns: int, what: str) -> str:
    return f"{units.count(many)} {what}{'' if many == 1 else 's'}, {units.time(ns)}"


# -- What is said of memory as a whole, a line per process, device and kind


def memory_lines(summary: pd.DataFrame) -> str:
    """Return a line per row of the summary."""
    several = len(summary[["pid"]].drop_duplicates()) > 1
    return "".join(f"{_line(row, several=several)}\n" for row in summary.to_dict("records"))


def sampled_lines(peaks: pd.DataFrame) -> str:
    """Return a line per process and device of samples."""
    several = len(peaks[["pid"]].drop_duplicates()) > 1
    return "".join(f"{_of_samples(row, several=several)}\n" for row in peaks.to_dict("records"))


def _of_samples(row: Mapping[Hashable, object], *, several: bool) -> str:
    whose = f" of process {row['pid']}" if several else ""
    seen = f"peak at least {_size(row['peak_bytes'])}{_when(row, 'peak')}"
    return f"{row['device']}{whose}: {seen}; {units.count(_int(row['samples']))} samples{_reserved(row)}"


def _line(row: Mapping[Hashable, object], *, several: bool) -> str:
    gpu = "" if row["device"] == MISSING else f" of GPU {row['device']}"
    whose = f" of process {row['pid']}" if several else ""
    peak = f"peak {_size(row['peak_bytes'])}{_when(row, 'peak')}"
    before = f", {_size(row['before_bytes'])} of it from before the capture"
    return (
        f"{row['memory']} memory{gpu}{whose}: {peak}{before if row['before_bytes'] else ''};"
        f" {units.count(_int(row['allocations']))} allocations of {_size(row['allocated_bytes'])},"
        f" {_size(row['end_bytes'])} held at the end{_reserved(row)}"
    )


def _reserved(row: Mapping[Hashable, object]) -> str:
    if row["peak_reserved_bytes"] == MISSING:
        return ""
    share = row["fragmentation"]
    unused = f", {units.percent(float(str(share)))} of it unused" if share != MISSING else ""
    return f"; reserved at most {_size(row['peak_reserved_bytes'])}{_when(row, 'reserved')}{unused}"


def _when(row: Mapping[Hashable, object], what: str) -> str:
    if row[f"{what}_ns"] == MISSING:
        return " at the beginning"
    op, step = row[f"{what}_op"], row[f"{what}_step"]
    where = f" in {op}" if op else ""
    return f" at {units.time(_int(row[f'{what}_ns']))}{where}{'' if step == MISSING else f', step {step}'}"


def _size(value: object) -> str:
    return units.size(_int(value))


def _int(value: object) -> int:
    return int(str(value))
