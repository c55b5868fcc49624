"""A graph of points in time, in columns: what each point waits for, and the path back from a point.

A point is an instant at which something begins or ends. Points of one thread or stream follow each
other, so that the first predecessor of a point is the point before it. The second predecessor is a
point of another thread or stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bridge.join.arrays import NONE, Flags, Ints, Rows

NEVER = np.iinfo(np.int64).min  # before all times


@dataclass(frozen=True)
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
        by_cross = self.by_cross[points]
        before = points - (by_cross | self.chained[points])
        before[by_cross] = self.cross[points[by_cross]]
        result: Ints = self.time[points] - self.time[before]
        return result

    def path(self, last: int) -> Ints:
        """Return the points from ``last`` back to a root, each the latest predecessor of the one before."""
        heads = np.flatnonzero(self.by_cross | ~self.chained)  # here a walk leaves its chain
        cross = self.cross[heads]
        after = np.searchsorted(heads, cross, side="right") - 1
        after[cross == NONE] = len(heads)
        first = int(np.searchsorted(heads, last, side="right")) - 1
        visited = _walk(np.append(after, len(heads)), first)
        begin = heads[visited]
        end = np.append(last, self.cross[begin[:-1]])
        size = end - begin + 1
        points: Ints = np.repeat(end + np.cumsum(size) - size, size)
        points -= np.arange(len(points))
        return points


def _walk(following: Ints, first: int) -> Ints:
    """Return the numbers from ``first`` on, each followed by its entry, without the last entry's number."""
    last = len(following) - 1
    visited = np.array([first])
    while visited[-1] != last:  # the known part of the walk doubles
        visited = np.concatenate((visited, following[visited]))
        following = following[following]
    return visited[: np.argmax(visited == last)]
