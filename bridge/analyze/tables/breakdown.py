"""Tables by any dimensions: rows of ranges, of API calls, or of activities, and columns by choice."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from bridge.analyze.flops import Costs
from bridge.analyze.groups import counts
from bridge.analyze.tables import activity_metrics, events, range_metrics, statistics
from bridge.analyze.tables.dimensions import (
    OF_ACTIVITIES,
    OF_CALLS,
    OF_RANGES,
    Coded,
    Dimension,
    kernel,
    together,
)
from bridge.analyze.tables.events import Events
from bridge.analyze.tables.statistics import Columns
from bridge.analyze.tables.views import ACTIVITIES, CALLS, RANGES, VIEWS, rows_of
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.attributed import Attributed

COSTS = Costs()
DIMENSIONS = {**OF_RANGES, **OF_CALLS, **OF_ACTIVITIES}
COLUMNS: Mapping[str, Sequence[str]] = {
    RANGES: range_metrics.COLUMNS,
    CALLS: activity_metrics.CALL_COLUMNS,
    ACTIVITIES: activity_metrics.COLUMNS,
}
SETS: Mapping[str, Mapping[str, Sequence[str]]] = {
    RANGES: range_metrics.SETS,
    CALLS: {},
    ACTIVITIES: activity_metrics.SETS,
}


def breakdown(
    joined: Attributed,
    dimensions: Sequence[str],
    columns: Collection[str],
    kernel_names: str = "short",
    costs: Costs = COSTS,
) -> pd.DataFrame:
    """Return one row per combination of dimensions (of `DIMENSIONS`) that anything counted is in.

    Those of `COLUMNS` that are wanted are computed. Shares are of the time of all activities; of API
    calls, of the time of all calls.
    """
    kind = rows_of(dimensions)
    made = {**DIMENSIONS, "kernel": kernel(kernel_names)}
    parted = _Parted(joined, [made[name] for name in dimensions], costs)
    tables = {RANGES: parted.of_ranges, CALLS: parted.of_calls, ACTIVITIES: parted.of_activities}
    return tables[kind](columns)


class _Parted:
    """A report whose ranges, API calls or activities are told apart by some dimensions."""

    def __init__(self, joined: Attributed, dimensions: Sequence[Dimension], costs: Costs) -> None:
        self.joined = joined
        self.dimensions = dimensions
        self.costs = costs

    def of_ranges(self, columns: Collection[str]) -> pd.DataFrame:
        joined = self.joined
        rows, work = np.flatnonzero(joined.listed_ranges), np.flatnonzero(joined.counted)
        coded = self._coded(
            events.of_ranges(joined, rows),
            events.of_nodes(joined),
            events.of_activities(joined, work),
        )
        of_range = _spread(coded.codes[0], rows, len(joined.op))
        of_node = coded.codes[1]
        of_work = _spread(coded.codes[2], work, len(joined.node))
        within = joined.node != NONE
        of_work[within] = of_node[joined.node[within]]
        groups = range_metrics.Groups(joined, coded.size, of_range, of_node, of_work, self.costs)
        there = _used(of_range, coded.size) | _used(of_work, coded.size)
        there |= statistics.THERE in columns  # who asks for it knows of other parts of the report
        return _table(coded, there, groups.columns(columns))

    def of_calls(self, columns: Collection[str]) -> pd.DataFrame:
        rows = np.flatnonzero(self.joined.counted_launches)
        coded = self._coded(events.of_launches(self.joined, rows))
        rows, group = _in_groups(rows, coded.codes[0])
        groups = activity_metrics.CallGroups(self.joined, coded.size, rows, group)
        return _table(coded, _used(group, coded.size), groups.columns(columns))

    def of_activities(self, columns: Collection[str]) -> pd.DataFrame:
        joined, rows = self.joined, np.flatnonzero(self.joined.counted)
        coded = self._coded(events.of_activities(joined, rows))
        rows, group = _in_groups(rows, coded.codes[0])
        groups = activity_metrics.Groups(joined, coded.size, rows, group, joined.whole_ns)
        return _table(coded, _used(group, coded.size), groups.columns(columns))

    def _coded(self, *kinds: Events) -> Coded:
        return together([dimension(self.joined, kinds) for dimension in self.dimensions])


def _spread(codes: Ints, rows: Ints, size: int) -> Ints:
    """Return the code of each row, NONE for those that have none."""
    found = np.full(size, NONE)
    found[rows] = codes
    return found


def _in_groups(rows: Ints, codes: Ints) -> tuple[Ints, Ints]:
    """Return the rows that are in a group, and which."""
    there = codes != NONE
    return rows[there], codes[there]


def _used(codes: Ints, size: int) -> Flags:
    used: Flags = counts(codes[codes != NONE], size) > 0
    return used


def _table(coded: Coded, there: Flags, columns: Columns) -> pd.DataFrame:
    table = pd.DataFrame({**coded.labels, **columns})
    return table[there].reset_index(drop=True)


# -- The table per op: calls, what ran under it, its time on the GPU and on the CPU


def by_op(
    joined: Attributed,
    columns: Collection[str] = VIEWS["op"].columns,
    costs: Costs = COSTS,
) -> pd.DataFrame:
    """Return one row per op.

    ``self`` is of the innermost op only, so selfs add up; ``total`` is of the op and everything
    under it, once per activity however often the op recurs on the stack. Counts of activities are
    selfs. ``busy`` is the union of the total's intervals; mean to max are of a call's total.
    """
    return breakdown(joined, ["op"], columns, costs=costs)[["op", *columns]]
