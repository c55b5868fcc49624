"""Which columns of a table add up over reports, and what the others are made of: by the functions that one report uses.

A column adds up if that of two reports together is the sum of theirs. Quantiles do not, but what they are taken of can be
put together: the times of every group. What is neither is refused, never approximated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from bridge.analyze import causes, tensor_cores
from bridge.analyze.breakdown import ACTIVITIES, CALLS, RANGES
from bridge.analyze.breakdown.of_ranges import EXPOSED, KINDS
from bridge.analyze.breakdown.statistics import TIMES, Columns, named, spread
from bridge.analyze.groups import quantiles, ratio
from bridge.scale.merging import Merged, Wholes

MEDIAN, SHARE_OF_CORES = "median_ns", "tensor_core_share"
CORES = tuple(name for name in tensor_cores.COLUMNS if name != SHARE_OF_CORES)
CPU = ("cpu_self_ns", "cpu_total_ns")
ON_GPU = ("gpu_self_ns", "gpu_total_ns", "gpu_busy_ns", "gpu_span_ns")
ADDING_UP: Mapping[str, Collection[str]] = {
    RANGES: {"calls", "activities", *KINDS, *ON_GPU, *CPU, *causes.COLUMNS[:6], *EXPOSED, *CORES},
    CALLS: {"count", "total_ns", "activities", "gpu_ns"},
    ACTIVITIES: {"count", "total_ns", "busy_ns", "span_ns", "bytes", *CORES},
}
OF_TIMES: Mapping[str, tuple[str, ...]] = {
    RANGES: ("gpu_", "cpu_"),
    CALLS: ("",),
    ACTIVITIES: ("",),
}
RATIOS: Mapping[str, Mapping[str, tuple[str, str]]] = {  # of a column and another, or a whole
    RANGES: {
        "share": ("gpu_self_ns", "gpu"),
        "total_share": ("gpu_total_ns", "gpu"),
        "cpu_share": ("cpu_self_ns", "cpu"),
        SHARE_OF_CORES: ("tensor_core_ns", "in_kernels_ns"),
    },
    CALLS: {"share": ("total_ns", "calls")},
    ACTIVITIES: {
        "share": ("total_ns", "gpu"),
        "gb_per_s": ("bytes", "total_ns"),
        SHARE_OF_CORES: ("tensor_core_ns", "in_kernels_ns"),
    },
}
# What a store keeps of every report: what does not need a look at all that ran at the same time.
KEPT: Mapping[str, tuple[str, ...]] = {
    RANGES: ("calls", "activities", *KINDS, *ON_GPU, *CPU, f"gpu_{TIMES}", f"cpu_{TIMES}"),
    CALLS: ("count", "total_ns", "activities", "gpu_ns", TIMES),
    ACTIVITIES: ("count", "total_ns", "busy_ns", "span_ns", "bytes", TIMES),
}


def needed(rows: str, columns: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that each report is asked for; ValueError, in words for the user, for what is not put together."""
    found: list[str] = []
    for column in columns:
        if column in ADDING_UP[rows]:
            found.append(column)
        elif column in RATIOS[rows]:
            found += (c for c in RATIOS[rows][column] if c in ADDING_UP[rows])
        elif (prefix := _prefix(rows, column)) is not None:
            found.append(prefix + TIMES)
        else:
            raise ValueError(
                f"no {column} over reports apart: give them without --workers and --scheduler"
            )
    return tuple(dict.fromkeys(found))


def _prefix(rows: str, column: str) -> str | None:
    """Return what the times begin with that a column is a statistic of, None for another column."""
    if column == MEDIAN and rows == ACTIVITIES:
        return ""
    return next((prefix for prefix in OF_TIMES[rows] if column in named(prefix)), None)


def figures(rows: str, merged: Merged, whole: Wholes, columns: Iterable[str]) -> Columns:
    """Return the columns of a table, those that `needed` has names for, of what has been put together."""
    found: Columns = {**merged.sums}
    for prefix in OF_TIMES[rows]:
        if (times := merged.times.get(prefix + TIMES)) is not None:
            group, values = times.every()
            found |= spread(prefix, group, values, merged.rows)
            (found[MEDIAN],) = quantiles(group, values, merged.rows, 0.5)
    for name, (part, of) in RATIOS[rows].items():
        if part in found and (of in whole or of in found):
            by: np.ndarray | int = whole[of] if of in whole else found[of]
            found[name] = ratio(found[part], by)
    return {name: found[name] for name in columns}
