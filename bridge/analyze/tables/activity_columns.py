"""Columns of tables of activities and API calls; tables per kernel, memcpy, op and kernel."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from bridge.analyze.core.calltree import outermost, stacks
from bridge.analyze.core.catalog.column import COLUMNS, statistic_names
from bridge.analyze.core.groups import counts, highest, lowest, quantiles, ratio, sums, texts
from bridge.analyze.core.kinds import tensor_core_times
from bridge.analyze.core.names import name_codes
from bridge.analyze.core.table import Table
from bridge.analyze.core.totals import call_time
from bridge.analyze.tables import statistics
from bridge.analyze.tables.statistics import (
    TIMES,
    Columns,
    computed,
    span_apart,
    spread,
    times_of,
)
from bridge.importers import frames
from bridge.importers.arrays import factorize
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, busy_time_by_clock, number_groups
from bridge.join.attributed import AttributedCapture
from bridge.join.forest import closure, folded, is_repeated

NEVER = np.iinfo(np.int64)


@record
class Groups:
    """The rows of a table of activities.

    Attributes:
        attributed: the report.
        count: the number of groups, each a row of the table.
        rows: the activities that are in a group.
        group: the group of each of these activities.
        whole_ns: the denominator of shares, in ns.

    """

    attributed: AttributedCapture
    count: int
    rows: Ints
    group: Ints
    whole_ns: int

    def columns(self, columns: Collection[str]) -> Columns:
        """Return the requested columns, in the order of the table's description."""
        return computed(
            self,
            FIGURES,
            (*COLUMNS["kernel"].names, *COLUMNS["activities"].names, TIMES, *statistics.NAMES),
            columns,
        )

    @property
    def time(self) -> Ints:
        """The time of each activity, in ns."""
        return self.attributed.duration[self.rows]

    def ints(self, column: str) -> Ints:
        """Return an integer column of the activities."""
        result: Ints = self.attributed.capture.activities[column][self.rows]
        return result


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
    return {"busy_ns": busy_time_by_clock(*intervals), "span_ns": span_apart(*intervals)}


def _union(groups: Groups) -> Columns:
    start = groups.ints("start")
    return statistics.intervals(groups.group, start, start + groups.time, groups.count)


def _spread(groups: Groups) -> Columns:
    return spread("", groups.group, groups.time, groups.count)


def _bytes(groups: Groups) -> Columns:
    byte_count = np.maximum(groups.ints("bytes"), 0)
    byte_count = sums(groups.group, byte_count, groups.count)
    return {
        "bytes": byte_count,
        "gb_per_s": ratio(byte_count, sums(groups.group, groups.time, groups.count)),
    }


def _median(groups: Groups) -> Columns:
    (p50,) = quantiles(groups.group, groups.time, groups.count, 0.5)
    return {"median_ns": p50}


def _times(groups: Groups) -> Columns:
    return {TIMES: times_of(groups.group, groups.time, groups.count)}


def _tensor_cores(groups: Groups) -> Columns:
    return tensor_core_times(groups.attributed, groups.rows, groups.group, groups.count)


def _counters(groups: Groups) -> Columns:
    from bridge.analyze.cost.counters import counter_columns  # most tables do not need it

    return counter_columns(groups.attributed, groups.rows, groups.group, groups.count)


def _energy(groups: Groups) -> Columns:
    from bridge.analyze.cost.counters import energy_columns

    return dict(energy_columns(groups.attributed, groups.rows, groups.group, groups.count))


FIGURES: Mapping[tuple[str, ...], Callable[[Groups], Columns]] = {
    ("count", "total_ns", "share"): _sums,
    ("busy_ns", "span_ns"): _intervals,
    statistic_names(""): _spread,
    ("bytes", "gb_per_s"): _bytes,
    ("median_ns",): _median,
    (TIMES,): _times,
    (statistics.FIRST, statistics.LAST, statistics.UNION): _union,
    COLUMNS["@tensor-cores"].names: _tensor_cores,
    COLUMNS["@counters"].names: _counters,
    COLUMNS["@energy"].names: _energy,
}


# -- The columns of tables of API calls: count, time on the host, and the work that the calls launched


@record
class CallGroups:
    """The rows of a table of API calls.

    Attributes:
        attributed: the report.
        count: the number of groups, each a row of the table.
        rows: the API calls that are in a group.
        group: the group of each of these calls.

    """

    attributed: AttributedCapture
    count: int
    rows: Ints
    group: Ints

    def columns(self, columns: Collection[str]) -> Columns:
        """Return the requested columns, in the order of the table's description."""
        return computed(self, CALL_FIGURES, (*COLUMNS["calls"].names, TIMES), columns)

    @property
    def time(self) -> Ints:
        """The time of each call on the host, in ns; 0 for a call that ends before it starts."""
        return call_time(self.attributed)[self.rows]


def _call_sums(groups: CallGroups) -> Columns:
    total = sums(groups.group, groups.time, groups.count)
    whole = int(call_time(groups.attributed)[groups.attributed.accounted_launches].sum())
    return {
        "count": counts(groups.group, groups.count),
        "total_ns": total,
        "share": ratio(total, whole),
    }


def _call_spread(groups: CallGroups) -> Columns:
    return spread("", groups.group, groups.time, groups.count)


def _call_times(groups: CallGroups) -> Columns:
    return {TIMES: times_of(groups.group, groups.time, groups.count)}


def _launched(groups: CallGroups) -> Columns:
    """Count and sum the activities that the calls launched, whenever they ran.

    A window chooses calls by their begin: their work counts as a whole, not only what ran in the window.
    """
    attributed = groups.attributed
    duration = (attributed.unselected or attributed).duration
    group = np.full(len(attributed.capture.launches) + 1, NONE)
    group[groups.rows] = groups.group
    activity_group = group[attributed.attribution.launch]
    rows = np.flatnonzero(activity_group != NONE)
    launched_group = activity_group[rows]
    return {
        "activities": counts(launched_group, groups.count),
        "gpu_ns": sums(launched_group, duration[rows], groups.count),
    }


CALL_FIGURES: Mapping[tuple[str, ...], Callable[[CallGroups], Columns]] = {
    ("count", "total_ns", "share"): _call_sums,
    statistic_names(""): _call_spread,
    (TIMES,): _call_times,
    ("activities", "gpu_ns"): _launched,
}


# -- Tables per kernel, per memcpy and memset, and per op and kernel


ENDS = ("source", "target")
MEMORY = texts([*frames.MEMORY_KINDS, ""])  # by code; the last entry is for -1 (unknown)


def by_kernel(
    attributed: AttributedCapture,
    kernel_names: str = "readable",
    columns: Collection[str] = COLUMNS["kernel"].default[1:],
) -> Table:
    """Return one row per kernel name; ``share`` is relative to the time of all kernels."""
    rows = _rows_of_kinds(attributed, frames.KERNEL)
    name, names = name_codes(attributed, kernel_names, rows)
    is_kernel = attributed.capture.activities.kind.among(frames.KERNEL)
    whole = int(attributed.duration[is_kernel & attributed.accounted].sum())
    groups = Groups(attributed=attributed, count=len(names), rows=rows, group=name, whole_ns=whole)
    return Table({"kernel": texts(names), **groups.columns(columns)})


def by_memcpy(
    attributed: AttributedCapture,
    *,
    memory_kinds: bool = False,
    columns: Collection[str] = COLUMNS["memcpy"].default[3:],
) -> Table:
    """Return a row per kind of memcpy, and one for memsets; ``gb_per_s`` is 10**9 bytes/s.

    With ``memory_kinds``, return one row per pair of kinds of memory: ``source`` and ``target`` are
    pageable, pinned, device …, or '' if unknown. ``share`` is relative to the time of all
    activities.
    """
    rows = _rows_of_kinds(attributed, frames.MEMCPY, frames.MEMSET)
    name, names = name_codes(attributed, "short", rows)
    kinds = {
        end: attributed.capture.activities[f"{end}_kind"][rows]
        for end in (ENDS if memory_kinds else ())
    }
    group, first = number_groups(name, *kinds.values())
    groups = Groups(
        attributed=attributed,
        count=len(first),
        rows=rows,
        group=group,
        whole_ns=attributed.whole_ns,
    )
    return Table(
        {
            "operation": texts(names)[name[first]],
            **{end: MEMORY[kind[first]] for end, kind in kinds.items()},
            **groups.columns(columns),
        }
    )


def by_op_kernel(
    attributed: AttributedCapture,
    kernel_names: str = "readable",
    *,
    inclusive: bool = False,
    columns: Collection[str] = COLUMNS["op-kernel"].default[2:],
) -> Table:
    """Return one row per op and kernel name.

    The op is the innermost one; with ``inclusive``, every op on the stack. ``share`` is relative to
    the time of all activities.
    """
    rows = _rows_of_kinds(attributed, frames.KERNEL)
    rows = rows[frames.pick(attributed.node, rows) != NONE]
    op = frames.pick(attributed.activity_op, rows)
    if inclusive and _pairs_above(attributed, rows) > MAX_PAIRS:
        return _folded(attributed, kernel_names, rows, columns)
    if inclusive:
        place, op = _ops_above(attributed, rows)
        rows = rows[place]
    name, names = name_codes(attributed, kernel_names, rows)
    pair, distinct = factorize(op * max(1, len(names)) + name)
    del op, name  # there may be as many as activities
    ops, kernels = np.divmod(distinct, max(1, len(names)))
    groups = Groups(
        attributed=attributed,
        count=len(distinct),
        rows=rows,
        group=pair,
        whole_ns=attributed.whole_ns,
    )
    return Table(
        {
            "op": texts(attributed.ops[o] for o in ops.tolist()),
            "kernel": texts(names[k] for k in kernels.tolist()),
            **groups.columns(columns),
        }
    )


MAX_PAIRS = 1 << 23  # of an activity and an op around it, in a list
FOLDED = ("count", "total_ns", "mean_ns", "min_ns", "max_ns", "share")


def _pairs_above(attributed: AttributedCapture, rows: Ints) -> int:
    """Return how many pairs there are of one of these activities and a range around it."""
    return int((attributed.hierarchy.level[attributed.node[rows]] + 1).sum())


def _ops_above(attributed: AttributedCapture, rows: Ints) -> tuple[Ints, Ints]:
    """Return (place in rows, op) once for every distinct op on the stack of each row."""
    nesting, op = attributed.hierarchy, attributed.node_op
    place, node = stacks(nesting, attributed.node[rows])
    outer = outermost(nesting, op, attributed.nodes_in_direction)[node]
    return place[outer], op[node[outer]]


def _folded(
    attributed: AttributedCapture, kernel_names: str, rows: Ints, columns: Collection[str]
) -> Table:
    """Return what `by_op_kernel` does with ``inclusive``, for stacks that are too deep for a list of pairs.

    Sums and extremes are folded over the nodes that have kernels of a name under them. Raises ValueError
    for the user if other columns are requested.
    """
    if not {*columns} <= {*FOLDED}:
        raise ValueError(
            f"ranges are nested too deep for --inclusive with these columns; take --columns {','.join(FOLDED)}"
        )
    name, names = name_codes(attributed, kernel_names, rows)
    pairs = closure(attributed.hierarchy.parent, attributed.node[rows], name)
    time, size = attributed.duration[rows], len(pairs.node)
    number = folded(pairs.parent, counts(pairs.given, size))
    total = folded(pairs.parent, sums(pairs.given, time, size))
    low = folded(pairs.parent, lowest(pairs.given, time, size, empty=NEVER.max), np.minimum)
    high = folded(pairs.parent, highest(pairs.given, time, size, empty=NEVER.min), np.maximum)

    op = np.where(attributed.nodes_in_direction, attributed.node_op, NONE)[pairs.node]
    # A kernel counts once for an op that is on its stack twice.
    outer = np.flatnonzero((op != NONE) & ~is_repeated(pairs.parent, op * len(names) + pairs.key))
    group, first = number_groups(op[outer], pairs.key[outer])
    number, total = (sums(group, column[outer], len(first)) for column in (number, total))
    figures = {
        "count": number,
        "total_ns": total,
        "mean_ns": ratio(total, number),
        "min_ns": lowest(group, low[outer], len(first)),
        "max_ns": highest(group, high[outer], len(first)),
        "share": ratio(total, attributed.whole_ns),
    }
    return Table(
        {
            "op": texts(attributed.ops[o] for o in op[outer][first].tolist()),
            "kernel": texts(names[k] for k in pairs.key[outer][first].tolist()),
            **{name: figures[name] for name in COLUMNS["op-kernel"].names if name in columns},
        }
    )


def _rows_of_kinds(attributed: AttributedCapture, *kinds: str) -> Ints:
    """Return the counted activities of these kinds."""
    return np.flatnonzero(attributed.capture.activities.kind.among(*kinds) & attributed.counted)
