"""What ranges and the work under them amount to, per group: calls, self, total, busy, span, per call; GPU and CPU.

Every table of ranges is made of these columns; only what is asked for is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bridge.analyze import causes, flops, kinds
from bridge.analyze.calltree import once, own_time, stacks, subtree_sums
from bridge.analyze.concurrency.exposure import exposed
from bridge.analyze.groups import counts, ratio, sums
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
from bridge.analyze.tables.views import COSTS
from bridge.join.arrays import NONE, Flags, Ints, busy_apart, by
from bridge.join.attributed import Attributed
from importers import frames

EXPOSED = ("communication_ns", "exposed_ns")
KINDS = dict(zip(("kernels", "memcpys", "memsets", "graphs"), frames.ACTIVITY_KINDS, strict=True))


@dataclass(frozen=True)
class Groups:
    """Rows of a table of ranges: the group of each listed range, of each node, of each activity; NONE for none.

    An activity within a range is of its node's group.
    """

    joined: Attributed
    count: int
    of_range: Ints
    of_node: Ints
    of_activity: Ints
    costs: flops.Costs = flops.Costs()  # noqa: RUF009 - frozen

    def columns(self, wanted: Collection[str]) -> Columns:
        """Return the columns that are wanted, in the order of `COLUMNS`."""
        order = (*COLUMNS, f"gpu_{TIMES}", f"cpu_{TIMES}", *statistics.NAMES)
        return computed(self, FIGURES, order, wanted)

    @cached_property
    def outer(self) -> Flags:
        """Which nodes lie in no other of their group: recursion is counted once."""
        return self._outer(self.joined.around)

    @cached_property
    def outer_listed(self) -> Flags:
        """The same among those that began in the time that is counted."""
        return self.outer if self.joined.chosen is None else self._outer(self.joined.listed)

    @property
    def in_time(self) -> Flags:
        """The nodes of ranges that began in the time that is counted, of both directions."""
        chosen, of_node = self.joined.chosen, self.joined.attribution.nesting.range
        return np.ones(len(of_node), bool) if chosen is None else chosen.ranges[of_node]

    def _outer(self, among: Flags) -> Flags:
        return once(self.joined.attribution.nesting, self.of_node, among & (self.of_node != NONE))

    @cached_property
    def node_totals(self) -> Ints:
        """Time of the activities under each node, in ns."""
        node = self.joined.node
        has = node != NONE
        nesting = self.joined.attribution.nesting
        return subtree_sums(nesting, sums(node[has], self.joined.duration[has], len(nesting)))

    @cached_property
    def reached(self) -> flops.Reached:
        """What the groups compute and move."""
        nodes = (self.of_node, _of_call(self), self.outer_listed, self.node_totals)
        return flops.Reached(self.joined, self.count, *nodes, self.costs)

    @cached_property
    def own(self) -> tuple[Ints, Ints]:
        """The activities that are in a group themselves, and which."""
        rows = np.flatnonzero(self.joined.counted & (self.of_activity != NONE))
        return rows, self.of_activity[rows]

    @cached_property
    def free(self) -> tuple[Ints, Ints]:
        """The activities of a group that are in no range, and which."""
        rows, group = self.own
        bare = self.joined.node[rows] == NONE
        return rows[bare], group[bare]

    @cached_property
    def under(self) -> tuple[Ints, Ints]:
        """(activity, group) once for each group that it is under or in."""
        row, node = stacks(self.joined.attribution.nesting, self.joined.node)
        listed = self.outer[node]
        row, group = row[listed], self.of_node[node[listed]]
        rows, groups = self.free
        return np.concatenate((row, rows)), np.concatenate((group, groups))


def _counts(groups: Groups) -> Columns:
    rows, group = groups.own
    activities = groups.joined.report.activities
    found = {"activities": counts(group, groups.count)}
    for column, kind in KINDS.items():
        found[column] = counts(group[frames.is_kind(activities, kind)[rows]], groups.count)
    return found


def _gpu_self(groups: Groups) -> Columns:
    rows, group = groups.own
    own = sums(group, groups.joined.duration[rows], groups.count)
    return {"gpu_self_ns": own, "share": ratio(own, groups.joined.whole_ns)}


def _gpu_total(groups: Groups) -> Columns:
    outer, (rows, group) = groups.outer, groups.free
    total = sums(groups.of_node[outer], groups.node_totals[outer], groups.count)
    total += sums(group, groups.joined.duration[rows], groups.count)
    return {"gpu_total_ns": total, "total_share": ratio(total, groups.joined.whole_ns)}


def _gpu_busy(groups: Groups) -> Columns:
    return {"gpu_busy_ns": busy_apart(*_intervals(groups), groups.count)}


def _gpu_span(groups: Groups) -> Columns:
    return {"gpu_span_ns": span_apart(*_intervals(groups), groups.count)}


def _intervals(groups: Groups) -> tuple[Ints, Ints, Ints, Ints]:
    """Return group, clock, start and end of each activity in each group that it is under or in."""
    row, group = groups.under
    joined = groups.joined
    several = len(joined.report.facts) > 1  # clocks: one takes no memory
    of, start = (frames.ints(joined.report.activities, c) for c in ("report", "start"))
    clock = of[row] if several else np.broadcast_to(np.int64(0), row.shape)
    return group, clock, start[row], joined.end[row]


def _gpu_intervals(groups: Groups) -> Columns:
    row, group = groups.under
    start = frames.ints(groups.joined.report.activities, "start")[row]
    return statistics.intervals(group, start, groups.joined.end[row], groups.count)


def _there(groups: Groups) -> Columns:
    return statistics.there(groups.of_range, groups.of_activity, groups.count)


def _calls_of(groups: Groups) -> Columns:
    return statistics.calls(_of_call(groups), first_slices(groups.joined), groups.count)


def _cpu(groups: Groups) -> Columns:
    nesting, outer = groups.joined.attribution.nesting, groups.outer_listed
    own, length = own_time(nesting), nesting.end - nesting.start
    listed = groups.joined.listed & (groups.of_node != NONE)
    self_ns = sums(groups.of_node[listed], own[listed], groups.count)
    return {
        "cpu_self_ns": self_ns,
        "cpu_total_ns": sums(groups.of_node[outer], length[outer], groups.count),
        "cpu_share": ratio(self_ns, int(own[groups.in_time].sum())),
    }


def _calls(groups: Groups) -> Columns:
    return {"calls": counts(_of_call(groups), groups.count)}


def _gpu_calls(groups: Groups) -> Columns:
    return spread("gpu_", _of_call(groups), _per_call(groups, groups.node_totals), groups.count)


def _cpu_calls(groups: Groups) -> Columns:
    nesting = groups.joined.attribution.nesting
    length = _per_call(groups, nesting.end - nesting.start)
    return spread("cpu_", _of_call(groups), length, groups.count)


def _gpu_times(groups: Groups) -> Columns:
    times = _per_call(groups, groups.node_totals)
    return {f"gpu_{TIMES}": times_of(_of_call(groups), times, groups.count)}


def _cpu_times(groups: Groups) -> Columns:
    nesting = groups.joined.attribution.nesting
    times = _per_call(groups, nesting.end - nesting.start)
    return {f"cpu_{TIMES}": times_of(_of_call(groups), times, groups.count)}


def _of_call(groups: Groups) -> Ints:
    """Return the group of each call: of the first of its slices."""
    return groups.of_range[first_slices(groups.joined)]


def first_slices(joined: Attributed) -> Ints:
    """Return the range that each call is, of one in slices the first in time."""
    call = joined.call
    rows = np.flatnonzero(call != NONE)
    found = np.full(int(call.max(initial=NONE)) + 1, NONE)
    if len(rows) > len(found):
        rows = rows[by(frames.ints(joined.report.ranges, "start")[rows])[::-1]]
    found[call[rows]] = rows
    return found


def _per_call(groups: Groups, of_node: Ints) -> Ints:
    """Return the sum of what the nodes of each call have."""
    call, listed = groups.joined.call, groups.joined.listed
    node_call = call[groups.joined.attribution.nesting.range]
    listed = listed & (node_call != NONE)
    return sums(node_call[listed], of_node[listed], int(call.max(initial=NONE)) + 1)


def _causes(groups: Groups) -> Columns:
    return causes.causes(groups.joined, groups.of_node, groups.count, groups.of_activity)


def _communication(groups: Groups) -> Columns:
    return exposed(groups.joined, groups.of_node, groups.count, groups.of_activity)


def _tensor_cores(groups: Groups) -> Columns:
    return kinds.tensor_core_times(groups.joined, *groups.own, groups.count)


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
    (statistics.THERE,): _there,
    (statistics.CALLS_OF,): _calls_of,
    (statistics.FIRST, statistics.LAST, statistics.UNION): _gpu_intervals,
    causes.COLUMNS: _causes,
    EXPOSED: _communication,
    kinds.TENSOR_CORE_COLUMNS: _tensor_cores,
    flops.FLOPS: lambda groups: groups.reached.computed(),
    flops.BYTES: lambda groups: groups.reached.moved(),
    flops.INTENSITY: lambda groups: groups.reached.intensity(),
    flops.PEAK: lambda groups: groups.reached.shares(),
    flops.FORMULA: lambda groups: groups.reached.formulas(),
}
COLUMNS: tuple[str, ...] = (
    *("calls", "activities", *KINDS, "gpu_self_ns", "gpu_total_ns", "gpu_busy_ns", "gpu_span_ns"),
    *(
        "cpu_self_ns",
        "cpu_total_ns",
        *statistic_names("gpu_"),
        *statistic_names("cpu_"),
        *causes.COLUMNS,
        *EXPOSED,
    ),
    *COSTS,
    *kinds.TENSOR_CORE_COLUMNS,
    *("share", "total_share", "cpu_share"),
)
SETS: Mapping[str, Sequence[str]] = {
    "gpu": tuple(name for name in COLUMNS if name.startswith("gpu_")),
    "cpu": tuple(name for name in COLUMNS if name.startswith("cpu_")),
    "causes": ("calls", "gpu_self_ns", "launch_gap_ns", "starved_ns", *causes.COLUMNS[:4], "bound"),
    "communication": ("calls", "gpu_self_ns", *EXPOSED),
    kinds.TENSOR_CORES: ("calls", "gpu_self_ns", *kinds.TENSOR_CORE_COLUMNS),
    "flops": ("calls", "gpu_total_ns", *COSTS),
}
