"""The run that would have been: the longest path through a graph whose delays and edges were changed.

Every point keeps its delay after its latest predecessor, unless a change says otherwise. The predecessor that is the
latest may change. Which one it is, is found by improvement: times follow from a choice of predecessors, and where
another predecessor is later by these times, it is chosen instead. When no choice changes, the times are those of the
longest paths.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.run.critical.graph import NEVER, Graph
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Integers, Ints, Rows, stable_order
from bridge.join.forest import sums_above

Floats = NDArray[np.float64]
MAX_ROUNDS = 60  # of improvement; after them each point is computed once, in the order of the edges
MANY_CHAINS = 1_000  # more are looked at together
MAX_SHIFT = 1 << 62  # of times, so that chains can follow one another on one axis


@dataclass
class Draft:
    """A graph with other delays and edges than the recorded ones.

    ``delay`` and ``cross`` are as in `Graph`; all changes are made in place. Edges may only lead to points that were
    not earlier in the recorded run, so that no change makes a circle. What makes a delay shorter twice counts
    once, the shorter one. ``changed`` are the points whose delay may differ from that in the recorded ``graph``.
    ``annotating`` is the part of each delay that annotations took, None where nobody measured it: it is not the
    program's, and stays, unless the program runs without (``annotated`` is False).
    """

    graph: Graph
    delay: Ints
    cross: Rows
    changed: list[Ints] = field(default_factory=list)
    relinked: bool = False
    annotating: Ints | None = None
    annotated: bool = True

    @classmethod
    def of(cls, graph: Graph) -> Draft:
        """Return a draft without any change."""
        return cls(graph, graph.delays(), graph.cross)

    def set(self, points: Ints, ns: Ints) -> None:
        """Let the delay before each of some points be so long."""
        self.delay[points] = ns
        self.changed.append(points)

    def limit(self, points: Ints, ns: Ints | int) -> None:
        """Let the delay before each of some points be at most so long."""
        if self.annotating is not None:
            ns = np.maximum(ns, self.annotating[points])
        self.set(points, np.minimum(self.delay[points], ns))

    def scale(self, points: Ints, factor: float | Floats) -> None:
        """Let the delay before some points be a part of what was recorded; 0 removes it."""
        delay = self.graph.delay_of(points)
        kept = 0 if self.annotating is None else self.annotating[points]
        self.limit(points, kept + np.rint((delay - kept) * factor).astype(np.int64))

    def shorten(self, points: Ints, ns: Ints) -> None:
        """Take ns from the recorded delay before each of some points, at most all of it."""
        self.limit(points, np.maximum(self.graph.delay_of(points) - ns, 0))

    def remove(self, points: Ints) -> None:
        """Let no time pass between some points and what they wait for."""
        self.limit(points, 0)

    def remove_annotations(self) -> None:
        """Let the program run without annotations."""
        self.annotated = False

    def settle(self) -> None:
        """Take the time of annotations from all delays if the program runs without; called when all is changed."""
        if self.annotating is not None and not self.annotated:
            points = np.flatnonzero(self.annotating)
            self.set(points, np.maximum(self.delay[points] - self.annotating[points], 0))

    def cut(self, points: Ints) -> None:
        """Let some points no longer wait for a point of another thread or stream."""
        self.link(points, np.full(len(points), NONE))

    def link(self, points: Ints, to: Integers) -> None:
        """Let some points wait for other ones, instead of those of other threads or streams that they waited for.

        The other ones are some that a point of another thread or stream waits for in the recorded run, or that
        `Retiming.of` was told of.
        """
        if not self.relinked:
            self.cross, self.relinked = self.cross.copy(), True
        self.cross[points] = to


Change = Callable[[Draft], None]


@record
class Retiming:
    """The graph without the points that only pass on the time of the point before.

    ``points`` are the numbers of the kept points in the graph, and ``ends`` the kept points with which chains end.
    ``chained`` and ``cross`` are as in `Graph`, by the numbers of kept points.
    """

    graph: Graph
    points: Ints
    ends: Rows
    chained: Flags
    cross: Rows

    @classmethod
    def of(cls, graph: Graph, last: int, others: Ints, asides: Flags) -> Retiming:
        """Prepare a graph; the run ends with the latest of the points up to the time ``last``, without ``asides``.

        ``others`` are points for which drafts may let points wait.
        """
        ends = graph.time <= last
        ends[:-1] &= ~(graph.chained[1:] & (graph.time[1:] <= last))
        ends &= ~asides
        is_kept = graph.cross != NONE
        is_kept[graph.cross[is_kept]] = True
        is_kept[others] = True
        is_kept |= ~graph.chained
        is_kept |= ends
        points = np.flatnonzero(is_kept)
        chained, cross = graph.chained[points], graph.cross[points]
        number = np.cumsum(is_kept, dtype=np.int32)
        number -= 1
        return cls(
            graph=graph,
            points=points,
            ends=number[ends],
            chained=chained,
            cross=np.where(cross == NONE, np.int32(NONE), number[cross]),
        )

    def end(self, draft: Draft) -> int:
        """Return when the run of a draft ends."""
        if self._keeps_end(draft):
            return int(self.graph.time[self.points[self.ends]].max())
        chains = self._chains(draft)
        del draft  # as large as the graph, and not needed while times are computed
        return int(chains.times(self._by_cross)[self.ends].max())

    def _keeps_end(self, draft: Draft) -> bool:
        """Return whether a draft only makes delays shorter, and none on the recorded path to the end."""
        if draft.relinked:
            return False
        for points in draft.changed:
            shorter = self.graph.delay_of(points) - draft.delay[points]
            if (shorter < 0).any() or shorter[self._is_critical[points]].any():
                return False
        return True

    @cached_property
    def _is_critical(self) -> Flags:
        """Whether each point of the graph is on the recorded path to the end."""
        ends = self.points[self.ends]
        result = np.zeros(len(self.graph), bool)
        result[self.graph.path(int(ends[np.argmax(self.graph.time[ends])]))] = True
        return result

    @cached_property
    def _by_cross(self) -> Flags:
        """`Graph.by_cross` of the kept points."""
        return self.graph.by_cross[self.points]

    def retimed(self, draft: Draft) -> tuple[Graph, int]:
        """Return the graph with the times of all points in the run of a draft, and the point that ends it."""
        kept, passed = self._chains(draft).times(self._by_cross), np.cumsum(draft.delay)
        size = np.diff(self.points, append=len(passed))  # a kept point, and those left out after it
        is_kept = np.zeros(len(passed), bool)
        is_kept[self.points] = True
        graph = Graph(
            np.repeat(kept - passed[self.points], size) + passed,
            self.graph.chained | ~is_kept,
            np.where(is_kept, draft.cross, np.int32(NONE)),
        )
        return graph, int(self.points[self.ends[np.argmax(kept[self.ends])]])

    def _chains(self, draft: Draft) -> _Chains:
        """Return the kept points as they are in a draft."""
        points, cross = self.points, self.cross
        if draft.relinked:
            linked = draft.cross[points]
            rows = np.flatnonzero(linked != self.graph.cross[points])
            linked = linked[rows]
            number = np.searchsorted(points, linked)
            if (lookup(points, number) != linked)[linked != NONE].any():
                raise ValueError("a draft lets points wait only for points that others waited for")
            cross = cross.copy()
            cross[rows] = np.where(linked == NONE, NONE, number)
        begins = np.flatnonzero(~self.chained & (cross == NONE))
        before = np.append(0, points[:-1] + 1)  # the first of the points that lead to each kept one
        joins = np.flatnonzero(cross != NONE)
        return _Chains(
            total=np.cumsum(np.add.reduceat(draft.delay[: points[-1] + 1], before)),
            chained=self.chained,
            cross=cross,
            joins=joins,
            delay=draft.delay[points[joins]],
            begins=begins,
            first=self.graph.time[points[begins]],
        )


@record
class _Chains:
    """Some points of a graph, and the ``total`` of the delays up to each as if the graph were one chain.

    Totals are compared only within chains. ``joins`` are the points with a predecessor on another chain, and ``delay``
    the delay before each. ``begins`` are the points without a predecessor, and ``first`` the time of each.
    """

    total: Ints
    chained: Flags
    cross: Rows
    joins: Ints
    delay: Ints
    begins: Ints
    first: Ints

    @cached_property
    def join_offset(self) -> Ints:
        """The delay before each join, less its total."""
        result: Ints = self.delay - self.total[self.joins]
        return result

    def times(self, by_cross: Flags) -> Ints:
        """Return the time of each point; ``by_cross`` is a first guess of the predecessor that is the latest."""
        by_cross = by_cross & (self.cross != NONE)
        for _ in range(MAX_ROUNDS):
            time = self._by_choice(by_cross)
            improved, by_cross = self._improved(time)
            if np.array_equal(improved, time):
                return time
        return self._in_order()

    def _improved(self, time: Ints) -> tuple[Ints, Flags]:
        """Return the times of all chains by the latest of their predecessors, and the choice of these.

        Predecessors on other chains keep their ``time``.
        """
        joins, begins = self.joins, self.begins
        other = time[self.cross[joins]] + self.join_offset
        latest = np.full(len(self.cross), NEVER)
        latest[joins], latest[begins] = other, self.first - self.total[begins]
        latest = _running_maximum(latest, self.chained)
        by_cross = np.zeros(len(latest), bool)
        by_cross[joins] = (other > latest[joins - 1]) | ~self.chained[joins]
        latest += self.total
        return latest, by_cross

    def _by_choice(self, by_cross: Flags) -> Ints:
        """Return the time of each point by a choice of predecessors."""
        heads = np.flatnonzero(by_cross | ~self.chained)
        size = np.diff(np.append(heads, len(self.chained)))
        run = np.repeat(
            np.arange(len(heads), dtype=np.int32), size
        )  # the head that each point follows
        cross = self.cross[heads]
        is_root = cross == NONE
        start = self.total[cross] - self.total[heads[run[cross]]]
        start[~is_root] += self.delay[by_cross[self.joins] | ~self.chained[self.joins]]
        start[is_root] = self.first
        above = sums_above(np.where(is_root, NONE, run[cross]), start)
        time: Ints = np.repeat(above - self.total[heads], size)
        time += self.total
        return time

    def _in_order(self) -> Ints:
        """Return the time of each point, one after the other: each edge is followed once.

        This is a loop over points, which is slow but has an end that does not depend on their order.
        """
        following = stable_order(self.cross)
        first = np.searchsorted(self.cross[following], np.arange(len(self.cross) + 1)).tolist()
        following, chained = following.tolist(), [*self.chained.tolist(), False]
        missing = (self.chained.astype(np.int64) + (self.cross != NONE)).tolist()
        passed, delay = (
            np.diff(self.total, prepend=0).tolist(),
            dict(zip(self.joins.tolist(), self.delay.tolist(), strict=True)),
        )
        begun = np.full(len(self.cross), NEVER)
        begun[self.begins] = self.first
        time, ready = begun.tolist(), self.begins.tolist()

        def reach(point: int, at: int) -> None:
            time[point] = max(time[point], at)
            missing[point] -= 1
            if not missing[point]:
                ready.append(point)

        while ready:
            point = ready.pop()
            if chained[point + 1]:
                reach(point + 1, time[point] + passed[point + 1])
            for other in following[first[point] : first[point + 1]]:
                reach(other, time[point] + delay[other])
        return np.array(time, np.int64)


def _running_maximum(values: Ints, chained: Flags) -> Ints:
    """Return the largest value so far on each chain, in place of the values if chains are few."""
    edges = np.append(np.flatnonzero(~chained), len(values))
    if len(edges) <= MANY_CHAINS:
        for first, last in pairwise(edges.tolist()):  # one iteration per thread or stream
            np.maximum.accumulate(values[first:last], out=values[first:last])
        return values
    known = values != NEVER
    low, high = int(values[known].min()), int(values[known].max())
    chain = np.cumsum(~chained)
    if int(chain[-1]) * (high - low + 1) > MAX_SHIFT:  # ranks are smaller than times
        distinct, rank = np.unique(values, return_inverse=True)
        highest = np.maximum.accumulate(rank + chain * len(distinct))
        by_rank: Ints = distinct[highest - chain * len(distinct)]
        return by_rank
    shift = chain * (high - low + 1)
    shifted = np.where(known, values - low + shift, 0)
    latest: Ints = np.maximum.accumulate(shifted) - shift + low
    return latest
