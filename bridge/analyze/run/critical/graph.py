"""A graph of points in time, in columns: what each point waits for, and the path back from a point.

A point is an instant at which something begins or ends. Points of one thread or stream follow each
other, so that the first predecessor of a point is the point before it. The second predecessor is a
point of another thread or stream.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, Rows, blocks

NEVER = np.iinfo(np.int64).min  # before all times


@record
class Graph:
    """Points and their predecessors.

    ``time`` is in ns. ``chained`` is whether the point before it (by number) is a predecessor of a
    point. ``cross`` is its other predecessor, or NONE. No predecessor is later than its point.
    """

    time: Ints
    chained: Flags
    cross: Rows

    def __len__(self) -> int:
        return len(self.time)

    @cached_property
    def by_cross(self) -> Flags:
        """Whether each point has the other predecessor as its latest; of equal ones the chain counts."""
        joins = np.flatnonzero(self.cross != NONE)
        chain = np.where(self.chained[joins], self.time[joins - 1], NEVER)
        result = np.zeros(len(self.time), bool)
        result[joins[self.time[self.cross[joins]] > chain]] = True
        return result

    @cached_property
    def delay(self) -> Ints:
        """The time of each point since its latest predecessor, in ns; 0 without a predecessor."""
        return self.delays()

    def delays(self) -> Ints:
        """Return `delay` as a column of its own, which is not kept."""
        result = np.empty_like(self.time)
        result[1:] = self.time[:-1]
        heads = np.flatnonzero(self.by_cross | ~self.chained)
        result[heads] = self.time[np.where(self.by_cross[heads], self.cross[heads], heads)]
        return np.subtract(self.time, result, out=result)

    def delay_of(self, points: Ints) -> Ints:
        """Return the `delay` of some points, without that of the others."""
        result = np.empty(len(points), np.int64)
        for rows in blocks(len(points)):
            here = points[rows]
            by_cross = self.by_cross[here]
            before = here - (by_cross | self.chained[here])
            before[by_cross] = self.cross[here[by_cross]]
            np.subtract(self.time[here], self.time[before], out=result[rows])
        return result

    @cached_property
    def _heads(self) -> tuple[Ints, Ints, Ints]:
        """The points at which a walk leaves its chain; the number of the head after each, and the time there.

        The last entries are for the end of a walk, which heads without a predecessor lead to.
        """
        heads = np.flatnonzero(self.by_cross | ~self.chained)
        is_last = self.cross[heads] == NONE
        after = np.searchsorted(heads, self.cross[heads], side="right") - 1
        after[is_last] = len(heads)
        time = np.where(is_last, NEVER, self.time[self.cross[heads]])
        return heads, np.append(after, len(heads)), np.append(time, NEVER)

    def path(self, last: int) -> Ints:
        """Return the points from ``last`` back to a root, each the latest predecessor of the one before."""
        return self.walks(np.array([last]), np.array([NEVER]))[1]

    def walks(self, last: Ints, since: Ints) -> tuple[Rows, Ints]:
        """Return the points from each of ``last`` back to a time, each the latest predecessor of the one before.

        They are pairs of a position in ``last`` and a point later than the time ``since`` of that position.
        """
        heads, following, time = self._heads
        rows = np.flatnonzero(self.time[last] > since)
        visited = (np.searchsorted(heads, last[rows], side="right") - 1)[:, np.newaxis]
        parts: list[tuple[Rows, Ints]] = []
        while len(rows):  # the known part of each walk doubles
            ends = time[visited[:, -1]] <= since[rows]
            parts.append(
                self._visited(heads, last, since=since, rows=rows[ends], visited=visited[ends])
            )
            rows, visited = rows[~ends], visited[~ends]
            visited = np.hstack((visited, following[visited]))
            following = following[following]
        if len(parts) == 1:  # of many points: not copied
            return parts[0]
        nothing = np.empty(0, np.int32), np.empty(0, np.int64)
        row, point = (np.concatenate(column) for column in zip(nothing, *parts, strict=True))
        return row, point

    def _visited(
        self, heads: Ints, last: Ints, since: Ints, rows: Ints, visited: Ints
    ) -> tuple[Rows, Ints]:
        """Return the points of walks over some heads, given by a line of their numbers for each of ``rows``."""
        entry = np.empty_like(visited)  # the point of each head's chain that the walk comes to
        entry[:, 0] = last[rows]
        before = heads[np.minimum(visited[:, :-1], len(heads) - 1)]
        entry[:, 1:] = self.cross[before]
        is_part = (visited < len(heads)) & (entry != NONE)
        is_part &= self.time[entry] > since[rows, np.newaxis]
        row, entry = np.repeat(rows, is_part.sum(axis=1)), entry[is_part]
        first = self._first_after(since[row], heads[visited[is_part]], entry)
        size = entry - first + 1
        point = np.repeat(entry + np.cumsum(size) - size, size)
        point -= np.arange(len(point), dtype=np.int32)
        return np.repeat(row.astype(np.int32), size), point

    def _first_after(self, since: Ints, first: Ints, last: Ints) -> Ints:
        """Return the first point later than a time among those from ``first`` to ``last``, of which the last is."""
        low, high = first.copy(), last.copy()
        rows, reach = np.flatnonzero(low < high), 1
        while len(
            rows
        ):  # it is mostly near the last one: steps back from there, each twice as long
            back = np.maximum(last[rows] - reach, first[rows])
            is_later = self.time[back] > since[rows]
            high[rows[is_later]] = back[is_later]
            low[rows[~is_later]] = back[~is_later] + 1
            rows, reach = rows[is_later & (back > first[rows])], 2 * reach
        rows = np.flatnonzero(low < high)
        while len(rows):
            middle = (low[rows] + high[rows]) // 2
            is_later = self.time[middle] > since[rows]
            high[rows[is_later]] = middle[is_later]
            low[rows[~is_later]] = middle[~is_later] + 1
            rows = rows[low[rows] < high[rows]]
        return low
