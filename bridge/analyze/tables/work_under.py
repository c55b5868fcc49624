"""When the work under groups of ranges ran: first start, last end, and the length of its union.

Work that overlaps no other work is summed over the tree of ranges. Only overlapping work is paired
with the groups that it is under. In a deep tree those of a single range are summed for it, too: an
instant counts once for each range around any of the work that runs then.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bridge.analyze.core.groups import counts, highest, lowest, sums
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import (
    NONE,
    Flags,
    Ints,
    busy_time_by_clock,
    order_by,
    running_maximum,
    unions,
)
from bridge.join.attributed import AttributedCapture
from bridge.join.forest import common, depth_first, folded, levels, nearest

FEW_LEVELS = 32  # of groups: up to here overlapping work is paired with all groups that it is under
NEVER = np.iinfo(np.int64)
Intervals = tuple[Ints, Ints, Ints]  # clock, start, end


@record
class WorkUnder:
    """The activities under the nodes of groups.

    Attributes:
        attributed: the report.
        of_node: the group of each node of the hierarchy; NONE for none, and for a node that lies
            in another one of its group.
        groups: the number of groups.
        free: activities that are in a group but in no range, and their groups.

    """

    attributed: AttributedCapture
    of_node: Ints
    groups: int
    free: tuple[Ints, Ints]

    @cached_property
    def pairs(self) -> tuple[Ints, Ints]:
        """(activity, group) for each group that an activity is under or in."""
        place, group = self._groups_above(self._owner, self.of_node != NONE)
        rows, groups = self.free
        return np.concatenate((rows, self._owned[place])), np.concatenate((groups, group))

    def counts(self) -> Ints:
        """Return the number of activities of each group."""
        number = self._summed(counts(self._owner, len(self.of_node)))
        return number + counts(self.free[1], self.groups)

    def extremes(self, clocks: int = 1) -> tuple[Ints, Ints]:
        """Return the first start and the last end of each group; -1 for a group without work.

        With several ``clocks`` a group has a row for each.
        """
        size, (_, start, end) = len(self.of_node), self._intervals(self._owned)
        low = lowest(self._owner, start, size, empty=NEVER.max)
        high = highest(self._owner, end, size, empty=NEVER.min)
        low = folded(self._parent, low, np.minimum)
        high = folded(self._parent, high, np.maximum)
        nodes = self._outer[low[self._outer] != NEVER.max]
        clock, start, end = self._intervals(self.free[0])
        group = np.concatenate((self.of_node[nodes], self.free[1]))
        if clocks > 1:
            group = group * clocks + np.concatenate((self._clock_of(nodes), clock))
        return (
            lowest(group, np.concatenate((low[nodes], start)), self.groups * clocks),
            highest(group, np.concatenate((high[nodes], end)), self.groups * clocks),
        )

    def busy(self) -> Ints:
        """Return the length of the union of the work of each group in ns, summed over clocks."""
        node, start, end = unions(self._owner, *self._intervals(self._owned)[1:])
        clock = self._clock_of(node)
        free = self._intervals(self.free[0])
        columns = zip((clock, start, end), free, strict=True)
        is_shared = _overlapping(*(np.concatenate(pair) for pair in columns))[: len(node)]
        size, alone = len(self.of_node), ~is_shared
        busy = self._summed(sums(node[alone], (end - start)[alone], size))
        if not is_shared.any() and not len(self.free[0]):
            return busy
        clock, node, start, end = (column[is_shared] for column in (clock, node, start, end))
        is_paired = self.of_node != NONE
        if int(levels(self._condensed(is_paired)).max(initial=0)) > FEW_LEVELS:
            time = self._time_around(node, clock, start, end)
            is_single = self._is_single
            busy += sums(self.of_node[is_single], time[is_single], self.groups)
            is_paired &= ~is_single
        place, group = self._groups_above(node, is_paired)
        clock, start, end = (
            np.concatenate((column[place], of_free))
            for column, of_free in zip((clock, start, end), free, strict=True)
        )
        group = np.concatenate((group, self.free[1]))
        return busy + busy_time_by_clock(group, clock, start=start, end=end, groups=self.groups)

    @property
    def _parent(self) -> Ints:
        return self.attributed.hierarchy.parent

    @cached_property
    def _owned(self) -> Ints:
        """The activities that a node owns."""
        return np.flatnonzero(self.attributed.node != NONE)

    @cached_property
    def _owner(self) -> Ints:
        """The nodes that own them."""
        return self.attributed.node[self._owned]

    @cached_property
    def _outer(self) -> Ints:
        """The nodes that have a group."""
        return np.flatnonzero(self.of_node != NONE)

    @property
    def _is_single(self) -> Flags:
        """Which nodes are all that their group has."""
        number = counts(self.of_node[self._outer], self.groups)
        number[self.free[1]] += 1
        flags: Flags = lookup(number, self.of_node, 0) == 1
        return flags

    def _summed(self, values: Ints) -> Ints:
        """Return the sum of the values of all nodes under those of each group."""
        total = folded(self._parent, values)[self._outer]
        return sums(self.of_node[self._outer], total, self.groups)

    def _clock_of(self, node: Ints) -> Ints:
        capture, nesting = self.attributed.capture, self.attributed.hierarchy
        if len(capture.facts) == 1:  # the broadcast array takes no memory
            return np.broadcast_to(np.int64(0), node.shape)
        return capture.ranges.report[nesting.range[node]]

    def _intervals(self, rows: Ints) -> Intervals:
        """Return clock, start and end of some activities."""
        activities = self.attributed.capture.activities
        report, start = activities.report[rows], activities.start[rows]
        return report, start, self.attributed.end[rows]

    def _condensed(self, is_listed: Flags) -> Ints:
        """Return the parent of each node in the forest of listed nodes; others are roots."""
        around = lookup(nearest(self._parent, is_listed), self._parent)
        return np.where(is_listed, around, NONE)

    def _groups_above(self, node: Ints, is_listed: Flags) -> tuple[Ints, Ints]:
        """Return (place, group) for each listed node that each of some nodes is under or is."""
        parent, none = self._condensed(is_listed), np.empty(0, np.int64)
        node = nearest(self._parent, is_listed)[node]
        place, parts = np.flatnonzero(node != NONE), [(none, none)]
        node = node[place]
        while len(place):
            parts.append((place, self.of_node[node]))
            node = parent[node]
            place, node = place[node != NONE], node[node != NONE]
        places, groups = zip(*parts, strict=True)
        return np.concatenate(places), np.concatenate(groups)

    def _time_around(self, node: Ints, clock: Ints, start: Ints, end: Ints) -> Ints:
        """Return how long each node is around any of these intervals of nodes, in ns.

        In each piece of time between two ends, the time of a piece is added at the nodes of its
        work and taken off where the ways from two of them to the root meet.
        """
        time = np.zeros(len(self.of_node), np.int64)
        order = depth_first(self._parent)[0]
        for number in np.unique(clock).tolist():  # one iteration per report
            owner, first, last = (column[clock == number] for column in (node, start, end))
            ends = np.unique(np.concatenate((first, last)))
            first, last = np.searchsorted(ends, first), np.searchsorted(ends, last)
            pieces = np.cumsum(last - first)
            row = np.repeat(np.arange(len(owner)), last - first)
            piece = np.arange(len(row)) - (pieces - last)[row]
            by_piece = order_by(piece, order[owner[row]])
            piece, owner = piece[by_piece], owner[row[by_piece]]
            length = np.diff(ends)[piece]
            np.add.at(time, owner, length)
            same = np.flatnonzero(piece[1:] == piece[:-1])
            meeting = common(self._parent, owner[same], owner[same + 1])
            met = meeting != NONE
            np.subtract.at(time, meeting[met], length[same[met]])
        return folded(self._parent, time)


def _overlapping(clock: Ints, start: Ints, end: Ints) -> Flags:
    """Return which intervals overlap another one of their clock."""
    order = order_by(clock, start)
    clock, start, end = clock[order], start[order], end[order]
    is_same = clock[1:] == clock[:-1]
    overlaps = np.zeros(len(order), bool)
    before, after = order[:-1], order[1:]
    overlaps[after] |= is_same & (start[1:] < running_maximum(clock, start, end)[:-1])
    overlaps[before] |= is_same & (start[1:] < end[:-1])
    return overlaps
