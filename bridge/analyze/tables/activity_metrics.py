"""What activities of a group amount to: count, sum, union, span, and how long single ones are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.calltree import once, stacks
from bridge.analyze.groups import counts, quantiles, ratio, sums, texts
from bridge.analyze.kinds import TENSOR_CORE_COLUMNS, TENSOR_CORES, tensor_core_times
from bridge.analyze.names import KERNEL_NAMES, named
from bridge.analyze.tables import statistics
from bridge.analyze.tables.statistics import (
    TIMES,
    Columns,
    computed,
    span_apart,
    spread,
    statistic_names,
    times_of,
)
from bridge.analyze.tables.views import VIEWS
from bridge.join.arrays import NONE, Ints, busy_apart, number
from bridge.join.attributed import Attributed
from importers import frames


@dataclass(frozen=True)
class Groups:
    """Rows of a table of activities: the group of each of some activities; ``whole_ns`` is what shares are of."""

    joined: Attributed
    count: int
    rows: Ints
    group: Ints
    whole_ns: int

    def columns(self, wanted: Collection[str]) -> Columns:
        """Return the columns that are wanted, in the order of `COLUMNS`."""
        return computed(self, FIGURES, (*COLUMNS, "median_ns", TIMES, *statistics.NAMES), wanted)

    @property
    def time(self) -> Ints:
        """Time of each activity in ns."""
        return self.joined.duration[self.rows]

    def ints(self, column: str) -> Ints:
        """Return a column of the activities."""
        return frames.ints(self.joined.report.activities, column)[self.rows]


def _sums(groups: Groups) -> Columns:
    total = sums(groups.group, groups.time, groups.count)
    return {
        "count": counts(groups.group, groups.count),
        "total_ns": total,
        "share": ratio(total, groups.whole_ns),
    }


def _intervals(groups: Groups) -> Columns:
    clock, start = groups.ints("report"), groups.ints("start")
    intervals = (groups.group, clock, start, start + groups.time, groups.count)
    return {"busy_ns": busy_apart(*intervals), "span_ns": span_apart(*intervals)}


def _union(groups: Groups) -> Columns:
    start = groups.ints("start")
    return statistics.intervals(groups.group, start, start + groups.time, groups.count)


def _spread(groups: Groups) -> Columns:
    return spread("", groups.group, groups.time, groups.count)


def _bytes(groups: Groups) -> Columns:
    moved = np.maximum(groups.ints("bytes"), 0)
    moved = sums(groups.group, moved, groups.count)
    return {
        "bytes": moved,
        "gb_per_s": ratio(moved, sums(groups.group, groups.time, groups.count)),
    }


def _median(groups: Groups) -> Columns:
    (p50,) = quantiles(groups.group, groups.time, groups.count, 0.5)
    return {"median_ns": p50}


def _times(groups: Groups) -> Columns:
    return {TIMES: times_of(groups.group, groups.time, groups.count)}


def _tensor_cores(groups: Groups) -> Columns:
    return tensor_core_times(groups.joined, groups.rows, groups.group, groups.count)


FIGURES: Mapping[tuple[str, ...], Callable[[Groups], Columns]] = {
    ("count", "total_ns", "share"): _sums,
    ("busy_ns", "span_ns"): _intervals,
    statistic_names(""): _spread,
    ("bytes", "gb_per_s"): _bytes,
    ("median_ns",): _median,
    (TIMES,): _times,
    (statistics.FIRST, statistics.LAST, statistics.UNION): _union,
    TENSOR_CORE_COLUMNS: _tensor_cores,
}
COLUMNS: tuple[str, ...] = (
    *(
        "count",
        "total_ns",
        "busy_ns",
        "span_ns",
        *statistic_names(""),
        "bytes",
        "gb_per_s",
        "share",
    ),
    *TENSOR_CORE_COLUMNS,
)
SETS: Mapping[str, Sequence[str]] = {
    TENSOR_CORES: ("count", "total_ns", *TENSOR_CORE_COLUMNS),
}
ALSO_MEDIAN = ("p50_ns",)  # what the table of kernels calls median_ns


# -- What API calls of a group amount to: count, time on the host, and the work that they launched


@dataclass(frozen=True)
class CallGroups:
    """Rows of a table of API calls: the group of each of some calls."""

    joined: Attributed
    count: int
    rows: Ints
    group: Ints

    def columns(self, wanted: Collection[str]) -> Columns:
        """Return the columns that are wanted, in the order of `COLUMNS`."""
        return computed(self, CALL_FIGURES, (*CALL_COLUMNS, TIMES), wanted)

    @property
    def time(self) -> Ints:
        """Time of each call on the host, in ns; 0 for one that ends before it starts."""
        return call_time(self.joined)[self.rows]


def call_time(joined: Attributed) -> Ints:
    """Return the time of each API call in ns; 0 for one that ends before it starts."""
    launches = joined.report.launches
    length: Ints = np.maximum(frames.ints(launches, "end") - frames.ints(launches, "start"), 0)
    return length


def _of_calls_sums(groups: CallGroups) -> Columns:
    total = sums(groups.group, groups.time, groups.count)
    whole = int(call_time(groups.joined)[groups.joined.accounted_launches].sum())
    return {
        "count": counts(groups.group, groups.count),
        "total_ns": total,
        "share": ratio(total, whole),
    }


def _of_calls_spread(groups: CallGroups) -> Columns:
    return spread("", groups.group, groups.time, groups.count)


def _of_calls_times(groups: CallGroups) -> Columns:
    return {TIMES: times_of(groups.group, groups.time, groups.count)}


def _launched(groups: CallGroups) -> Columns:
    """The work that the calls launched, whenever it ran."""
    joined = groups.joined
    group = np.full(len(joined.report.launches) + 1, NONE)
    group[groups.rows] = groups.group
    of_activity = group[joined.attribution.launch]
    there = np.flatnonzero(of_activity != NONE)
    launched = of_activity[there]
    return {
        "activities": counts(launched, groups.count),
        "gpu_ns": sums(launched, joined.duration[there], groups.count),
    }


CALL_FIGURES: Mapping[tuple[str, ...], Callable[[CallGroups], Columns]] = {
    ("count", "total_ns", "share"): _of_calls_sums,
    statistic_names(""): _of_calls_spread,
    (TIMES,): _of_calls_times,
    ("activities", "gpu_ns"): _launched,
}
CALL_COLUMNS: tuple[str, ...] = (
    "count",
    "total_ns",
    *statistic_names(""),
    "activities",
    "gpu_ns",
    "share",
)


# -- Tables per kernel, per memcpy and memset, and per op and kernel


ENDS = ("source", "target")
MEMORY = texts([*frames.MEMORY_KINDS, ""])  # by code; the last is for -1, not known


def by_kernel(
    joined: Attributed,
    kernel_names: str = "short",
    columns: Collection[str] = VIEWS["kernel"].columns,
) -> pd.DataFrame:
    """Return one row per kernel name; ``share`` is of all kernels' time."""
    rows = _of_kind(joined, frames.KERNEL)
    name, names = named(joined, KERNEL_NAMES[kernel_names], rows)
    is_kernel = frames.is_kind(joined.report.activities, frames.KERNEL)
    whole = int(joined.duration[is_kernel & joined.accounted].sum())
    groups = Groups(joined, len(names), rows, name, whole)
    return pd.DataFrame({"kernel": texts(names), **groups.columns(columns)})


def by_memcpy(
    joined: Attributed,
    *,
    memory_kinds: bool = False,
    columns: Collection[str] = VIEWS["memcpy"].columns,
) -> pd.DataFrame:
    """Return one row per kind of memcpy and for memsets; ``gb_per_s`` is 10**9 bytes per second.

    With ``memory_kinds``, one for each pair of memories: ``source`` and ``target`` are pageable, pinned,
    device …, '' where the report does not say. ``share`` is of the time of all activities.
    """
    rows = _of_kind(joined, frames.MEMCPY, frames.MEMSET)
    name, names = named(joined, "name", rows)
    kinds = {
        end: frames.ints(joined.report.activities, f"{end}_kind")[rows]
        for end in (ENDS if memory_kinds else ())
    }
    group, some = number(name, *kinds.values())
    groups = Groups(joined, len(some), rows, group, joined.whole_ns)
    return pd.DataFrame(
        {
            "operation": texts(names)[name[some]],
            **{end: MEMORY[kind[some]] for end, kind in kinds.items()},
            **groups.columns(columns),
        }
    )


def by_op_kernel(
    joined: Attributed,
    kernel_names: str = "short",
    *,
    inclusive: bool = False,
    columns: Collection[str] = VIEWS["op-kernel"].columns,
) -> pd.DataFrame:
    """Return one row per op and kernel name: of the innermost op, or of every op on the stack.

    ``share`` is of the time of all activities.
    """
    rows = _of_kind(joined, frames.KERNEL)
    rows = rows[joined.node[rows] != NONE]
    op = joined.activity_op[rows]
    if inclusive:
        place, op = _ops_above(joined, rows)
        rows = rows[place]
    name, names = named(joined, KERNEL_NAMES[kernel_names], rows)
    pair, distinct = pd.factorize(op * max(1, len(names)) + name)
    ops, kernels = np.divmod(distinct, max(1, len(names)))
    groups = Groups(joined, len(distinct), rows, pair, joined.whole_ns)
    return pd.DataFrame(
        {
            "op": texts(joined.ops[o] for o in ops.tolist()),
            "kernel": texts(names[k] for k in kernels.tolist()),
            **groups.columns(columns),
        }
    )


def _ops_above(joined: Attributed, rows: Ints) -> tuple[Ints, Ints]:
    """Return (place in rows, op) once for every distinct op on the stack of each row."""
    nesting, op = joined.attribution.nesting, joined.node_op
    place, node = stacks(nesting, joined.node[rows])
    outer = once(nesting, op, joined.around)[node]
    return place[outer], op[node[outer]]


def _of_kind(joined: Attributed, *kinds: str) -> Ints:
    """Return the rows of these kinds that are counted."""
    return np.flatnonzero(frames.is_kind(joined.report.activities, *kinds) & joined.counted)
