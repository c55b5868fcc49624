"""The columns of tables of ranges: calls, times on GPU and CPU, statistics per call.

Only the requested columns are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bridge.analyze.core.calltree import outermost, self_times, subtree_sums
from bridge.analyze.core.catalog.column import COLUMNS, statistic_names
from bridge.analyze.core.groups import counts, ratio, sums
from bridge.analyze.tables import statistics
from bridge.analyze.tables.statistics import (
    TIMES,
    Columns,
    computed,
    spread,
    times_of,
)
from bridge.analyze.tables.work_under import WorkUnder
from bridge.importers import frames
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, order_by
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import OF_ANOTHER_THREAD

if TYPE_CHECKING:
    from bridge.analyze.cost.flops import Costs, GroupCosts

KINDS = dict(zip(("kernels", "memcpys", "memsets", "graphs"), frames.ACTIVITY_KINDS, strict=True))


@record
class Groups:
    """The rows of a table of ranges. An activity within a range has the group of its node.

    Attributes:
        attributed: the report.
        count: the number of groups, each a row of the table.
        of_range: the group of each listed range, NONE for none.
        of_node: the group of each node of the nesting, NONE for none.
        of_activity: the group of each activity, NONE for none.
        costs: how FLOPs are counted; None for the default.

    """

    attributed: AttributedCapture
    count: int
    of_range: Ints
    of_node: Ints
    of_activity: Ints
    costs: Costs | None = None

    def columns(self, columns: Collection[str]) -> Columns:
        """Return the requested columns, in the order of the catalogue."""
        order = (*COLUMNS["ranges"].names, f"gpu_{TIMES}", f"cpu_{TIMES}", *statistics.NAMES)
        return computed(self, FIGURES, order, columns)

    @cached_property
    def outer(self) -> Flags:
        """Which nodes are in no other node of their group: recursion is counted once."""
        return self._outer(self.attributed.nodes_in_direction)

    @cached_property
    def outer_listed(self) -> Flags:
        """The same among the nodes that began in the selected time."""
        return (
            self.outer if self.attributed.selection is None else self._outer(self.attributed.listed)
        )

    @cached_property
    def outer_on_thread(self) -> Flags:
        """Which listed nodes are in no other of their group on their own thread, for host times."""
        nesting, is_listed = self.attributed.attribution.nesting, self.of_node != NONE
        return outermost(nesting, self.of_node, self.attributed.listed & is_listed)

    @property
    def in_time(self) -> Flags:
        """Which nodes are of ranges that began in the selected time, in both directions."""
        selection, of_node = self.attributed.selection, self.attributed.attribution.nesting.range
        return np.ones(len(of_node), bool) if selection is None else selection.ranges[of_node]

    def _outer(self, among: Flags) -> Flags:
        return outermost(self.attributed.hierarchy, self.of_node, among & (self.of_node != NONE))

    @cached_property
    def node_totals(self) -> Ints:
        """The time of the activities under each node, in ns."""
        node = self.attributed.node
        has_node = node != NONE
        nesting = self.attributed.hierarchy
        return subtree_sums(
            nesting, sums(node[has_node], self.attributed.duration[has_node], len(nesting))
        )

    @cached_property
    def group_costs(self) -> GroupCosts:
        nodes = (self.of_node, _call_groups(self), self.outer_listed, self.node_totals)
        from bridge.analyze.cost.flops import Costs, GroupCosts  # most tables count no FLOPs

        return GroupCosts(self.attributed, self.count, *nodes, self.costs or Costs())

    @cached_property
    def own(self) -> tuple[Ints, Ints]:
        """The activities that are in a group themselves, and their groups."""
        rows = np.flatnonzero(self.attributed.counted & (self.of_activity != NONE))
        return rows, self.of_activity[rows]

    @cached_property
    def free(self) -> tuple[Ints, Ints]:
        """The activities of a group that are in no range, and their groups."""
        rows, group = self.own
        no_range = self.attributed.node[rows] == NONE
        return rows[no_range], group[no_range]

    @cached_property
    def under(self) -> WorkUnder:
        """The activities under and in each group."""
        of_node = np.where(self.outer, self.of_node, NONE)
        return WorkUnder(self.attributed, of_node, self.count, self.free)


def _counts(groups: Groups) -> Columns:
    rows, group = groups.own
    activities = groups.attributed.capture.activities
    result = {"activities": counts(group, groups.count)}
    for column, kind in KINDS.items():
        result[column] = counts(group[activities.kind.among(kind)[rows]], groups.count)
    return result


def _gpu_self(groups: Groups) -> Columns:
    rows, group = groups.own
    self_time = sums(group, groups.attributed.duration[rows], groups.count)
    return {"gpu_self_ns": self_time, "share": ratio(self_time, groups.attributed.whole_ns)}


def _adopted(groups: Groups) -> Columns:
    rows, group = groups.own
    adopted = np.isin(groups.attributed.attribution.rule[rows], OF_ANOTHER_THREAD)
    time = groups.attributed.duration[rows[adopted]]
    return {"adopted_ns": sums(group[adopted], time, groups.count)}


def _gpu_total(groups: Groups) -> Columns:
    outer, (rows, group) = groups.outer, groups.free
    total = sums(groups.of_node[outer], groups.node_totals[outer], groups.count)
    total += sums(group, groups.attributed.duration[rows], groups.count)
    return {"gpu_total_ns": total, "total_share": ratio(total, groups.attributed.whole_ns)}


def _gpu_busy(groups: Groups) -> Columns:
    return {"gpu_busy_ns": groups.under.busy()}


def _gpu_span(groups: Groups) -> Columns:
    clocks = len(groups.attributed.capture.facts)
    first, last = groups.under.extremes(clocks)
    return {"gpu_span_ns": (last - first).reshape(groups.count, clocks).sum(axis=1)}


def _gpu_intervals(groups: Groups) -> Columns:
    row, group = groups.under.pairs
    start = groups.attributed.capture.activities.start[row]
    return statistics.intervals(group, start, groups.attributed.end[row], groups.count)


def _presence(groups: Groups) -> Columns:
    return statistics.presence(groups.of_range, groups.of_activity, groups.count)


def _call_ranges(groups: Groups) -> Columns:
    return statistics.calls(_call_groups(groups), first_slices(groups.attributed), groups.count)


def _cpu(groups: Groups) -> Columns:
    nesting, outer = groups.attributed.attribution.nesting, groups.outer_on_thread
    self_time, duration = self_times(nesting), nesting.end - nesting.start
    listed = groups.attributed.listed & (groups.of_node != NONE)
    self_ns = sums(groups.of_node[listed], self_time[listed], groups.count)
    return {
        "cpu_self_ns": self_ns,
        "cpu_total_ns": sums(groups.of_node[outer], duration[outer], groups.count),
        "cpu_share": ratio(self_ns, int(self_time[groups.in_time].sum())),
    }


def _calls(groups: Groups) -> Columns:
    return {"calls": counts(_call_groups(groups), groups.count)}


def _gpu_calls(groups: Groups) -> Columns:
    return spread("gpu_", _call_groups(groups), _per_call(groups, groups.node_totals), groups.count)


def _cpu_calls(groups: Groups) -> Columns:
    nesting = groups.attributed.attribution.nesting
    length = _per_call(groups, nesting.end - nesting.start)
    return spread("cpu_", _call_groups(groups), length, groups.count)


def _gpu_times(groups: Groups) -> Columns:
    times = _per_call(groups, groups.node_totals)
    return {f"gpu_{TIMES}": times_of(_call_groups(groups), times, groups.count)}


def _cpu_times(groups: Groups) -> Columns:
    nesting = groups.attributed.attribution.nesting
    times = _per_call(groups, nesting.end - nesting.start)
    return {f"cpu_{TIMES}": times_of(_call_groups(groups), times, groups.count)}


def _call_groups(groups: Groups) -> Ints:
    """Return the group of each call; for a call in slices, that of its first slice."""
    return groups.of_range[first_slices(groups.attributed)]


def first_slices(attributed: AttributedCapture) -> Ints:
    """Return the range of each call; for a call in slices, its first slice in time."""
    call = attributed.call
    rows = np.flatnonzero(call != NONE)
    result = np.full(int(call.max(initial=NONE)) + 1, NONE)
    if len(rows) > len(result):
        rows = rows[order_by(attributed.capture.ranges.start[rows])[::-1]]
    result[call[rows]] = rows
    return result


def _per_call(groups: Groups, node_value: Ints) -> Ints:
    """Return the sum of the values of each call's nodes."""
    call, listed = groups.attributed.call, groups.attributed.listed
    node_call = call[groups.attributed.attribution.nesting.range]
    listed = listed & (node_call != NONE)
    return sums(node_call[listed], node_value[listed], int(call.max(initial=NONE)) + 1)


def _causes(groups: Groups) -> Columns:
    from bridge.analyze.run.causes import causes  # most tables do not need it

    return causes(groups.attributed, groups.of_node, groups.count, groups.of_activity)


def _communication(groups: Groups) -> Columns:
    from bridge.analyze.run.concurrency.overlap import exposure

    return exposure(groups.attributed, groups.of_node, groups.count, groups.of_activity)


def _tensor_cores(groups: Groups) -> Columns:
    from bridge.analyze.core.kinds import tensor_core_times

    return tensor_core_times(groups.attributed, *groups.own, groups.count)


def _counters(groups: Groups) -> Columns:
    from bridge.analyze.cost.counters import counter_columns

    return counter_columns(groups.attributed, *groups.own, groups.count)


def _energy(groups: Groups) -> Columns:
    from bridge.analyze.cost.counters import energy_columns

    return dict(energy_columns(groups.attributed, *groups.own, groups.count))


FIGURES: Mapping[tuple[str, ...], Callable[[Groups], Columns]] = {
    ("calls",): _calls,
    ("activities", *KINDS): _counts,
    ("gpu_self_ns", "share"): _gpu_self,
    ("gpu_total_ns", "total_share"): _gpu_total,
    ("gpu_busy_ns",): _gpu_busy,
    ("gpu_span_ns",): _gpu_span,
    ("cpu_self_ns", "cpu_total_ns", "cpu_share"): _cpu,
    statistic_names("gpu_"): _gpu_calls,
    statistic_names("cpu_"): _cpu_calls,
    (f"gpu_{TIMES}",): _gpu_times,
    (f"cpu_{TIMES}",): _cpu_times,
    (statistics.THERE,): _presence,
    (statistics.CALLS_OF,): _call_ranges,
    (statistics.FIRST, statistics.LAST, statistics.UNION): _gpu_intervals,
    ("adopted_ns",): _adopted,
    ("host_ns", "api_ns", "sync_ns", "queue_ns", "launch_gap_ns", "starved_ns", "bound"): _causes,
    ("communication_ns", "exposed_ns"): _communication,
    COLUMNS["@tensor-cores"].names: _tensor_cores,
    COLUMNS["@counters"].names: _counters,
    COLUMNS["@energy"].names: _energy,
    ("flop", "flop_once", "counted_ns", "tflop_per_s", "uncounted"): lambda groups: (
        groups.group_costs.computed()
    ),
    ("moved_bytes", "gb_per_s"): lambda groups: groups.group_costs.moved(),
    ("intensity",): lambda groups: groups.group_costs.intensity(),
    ("peak_share", "bandwidth_share"): lambda groups: groups.group_costs.shares(),
    ("formula",): lambda groups: groups.group_costs.formulas(),
}
