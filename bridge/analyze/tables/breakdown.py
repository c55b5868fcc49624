"""Tables by dimensions: rows of ranges, API calls or activities, with the requested columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bridge.analyze.core.catalog.column import COLUMNS
from bridge.analyze.core.catalog.lookup import rows_of_dimensions
from bridge.analyze.core.catalog.views import ACTIVITIES, CALLS, RANGES
from bridge.analyze.core.groups import counts
from bridge.analyze.core.table import Table
from bridge.analyze.tables import activity_columns, range_columns, statistics
from bridge.analyze.tables.dimensions import (
    CODINGS,
    Coding,
    DimensionCodes,
    Events,
    activity_events,
    combine,
    kernel,
    launch_events,
    node_events,
    range_events,
)
from bridge.analyze.tables.statistics import Columns
from bridge.importers.arrays import lookup, scatter
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.attributed import AttributedCapture

if TYPE_CHECKING:
    from bridge.analyze.cost.flops import Costs


def breakdown(
    attributed: AttributedCapture,
    dimensions: Sequence[str],
    columns: Collection[str],
    kernel_names: str = "readable",
    costs: Costs | None = None,
) -> Table:
    """Return one row per combination of dimensions that occurs among the counted records.

    ``dimensions`` are names of `CODINGS`; ``columns`` are those that `bridge.analyze.core.catalog`
    describes for the table. Shares are relative to the time of all activities; in tables of API
    calls, to the time of all calls.
    """
    kind = rows_of_dimensions(dimensions)
    coding_of = {**CODINGS, "kernel": kernel(kernel_names)}
    rows = _Rows(attributed, [coding_of[name] for name in dimensions], costs)
    tables = {RANGES: rows.range_table, CALLS: rows.call_table, ACTIVITIES: rows.activity_table}
    return tables[kind](columns)


class _Rows:
    """The ranges, API calls or activities of a report, grouped by dimensions."""

    def __init__(
        self, attributed: AttributedCapture, codings: Sequence[Coding], costs: Costs | None
    ) -> None:
        self.attributed = attributed
        self.codings = codings
        self.costs = costs

    def range_table(self, columns: Collection[str]) -> Table:
        """Return a row per group of ranges, with the work under them; what has no range is in the group of its own."""
        attributed = self.attributed
        ranges = np.flatnonzero(attributed.listed_ranges)
        activities = np.flatnonzero(attributed.counted)
        coded = self._coded(
            range_events(attributed, ranges),
            node_events(attributed),
            activity_events(attributed, activities),
        )
        of_listed, node_group, of_counted = coded.codes
        range_group = scatter(of_listed, ranges, len(attributed.op))
        activity_group = lookup(node_group, attributed.node)
        outside = attributed.node[activities] == NONE
        activity_group[activities[outside]] = of_counted[outside]
        coded = replace(coded, codes=())  # what follows needs their memory
        del of_listed, of_counted, ranges, activities
        groups = range_columns.Groups(
            attributed=attributed,
            count=coded.size,
            of_range=range_group,
            of_node=node_group,
            of_activity=activity_group,
            costs=self.costs,
        )
        present = _used(range_group, coded.size) | _used(activity_group, coded.size)
        if statistics.THERE in columns:  # a group may have its rows in other parts of the report
            present[:] = True
        return _table(coded, present, groups.columns(columns))

    def call_table(self, columns: Collection[str]) -> Table:
        rows = np.flatnonzero(self.attributed.counted_launches)
        coded = self._coded(launch_events(self.attributed, rows))
        rows, group = _in_groups(rows, coded.codes[0])
        groups = activity_columns.CallGroups(self.attributed, coded.size, rows, group)
        return _table(coded, _used(group, coded.size), groups.columns(columns))

    def activity_table(self, columns: Collection[str]) -> Table:
        attributed, rows = self.attributed, np.flatnonzero(self.attributed.counted)
        coded = self._coded(activity_events(attributed, rows))
        rows, group = _in_groups(rows, coded.codes[0])
        groups = activity_columns.Groups(
            attributed=attributed,
            count=coded.size,
            rows=rows,
            group=group,
            whole_ns=attributed.whole_ns,
        )
        return _table(coded, _used(group, coded.size), groups.columns(columns))

    def _coded(self, *kinds: Events) -> DimensionCodes:
        return combine([coding(self.attributed, kinds) for coding in self.codings])


def _in_groups(rows: Ints, codes: Ints) -> tuple[Ints, Ints]:
    """Return the rows that are in a group, and the group of each."""
    in_group = codes != NONE
    return rows[in_group], codes[in_group]


def _used(codes: Ints, size: int) -> Flags:
    used: Flags = counts(codes[codes != NONE], size) > 0
    return used


def _table(coded: DimensionCodes, present: Flags, columns: Columns) -> Table:
    table = Table({**coded.labels, **columns})
    return table[present]


# -- The table per op


def by_op(
    attributed: AttributedCapture,
    columns: Collection[str] = COLUMNS["op"].default[1:],
    costs: Costs | None = None,
) -> Table:
    """Return one row per op.

    ``self`` is of the innermost op only, so the self times of all ops add up. ``total`` is of the
    op and everything under it; an activity is counted once however often the op recurs on the
    stack. Counts of activities are of the innermost op. ``busy`` is the union of the intervals of
    the total; mean to max are of a call's total.
    """
    return breakdown(attributed, ["op"], columns, costs=costs)[["op", *columns]]
