"""What is said of memory as a whole, a line per process, device and kind."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

import pandas as pd

from bridge.render import units
from bridge.render.headings import MISSING


def lines(summary: pd.DataFrame) -> str:
    """Return a line per row of the summary."""
    several = len(summary[["pid"]].drop_duplicates()) > 1
    return "".join(f"{_line(row, several=several)}\n" for row in summary.to_dict("records"))


def sampled(peaks: pd.DataFrame) -> str:
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
