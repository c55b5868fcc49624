"""The end of a run if some of its elements took no time: the longest path through its graph.

Every point keeps its delay after its latest predecessor, but for the delays that are taken away.
The predecessor that is the latest may change. Which one it is, is found by improvement: times follow
from a choice of predecessors, and where another predecessor is later by these times, it is chosen
instead. Times only grow in this, and when no choice changes, they are those of the longest paths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.run.critical.graph import NEVER, Graph
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.forest import sums_above

MAX_ROUNDS = 200  # of improvement, for one row
MAX_SHIFT = 1 << 62  # of times, so that chains can follow one another on one axis


@dataclass(frozen=True)
class Retiming:
    """The graph without the points that only pass on the time of the point before.

    ``time`` is the recorded time of each kept point. ``lag`` is the delay of all points left out
    before it, ``delay`` its own. ``chained`` and ``cross`` are as in `Graph`, by the numbers of
    kept points. ``kept`` is the kept point that each point of
    the graph adds its delay to, ``is_kept`` whether it is that point. ``ends`` are the kept points
    with which chains end.
    """

    time: Ints
    lag: Ints
    delay: Ints
    chained: Flags
    cross: Ints
    by_cross: Flags
    kept: NDArray[np.int32]
    is_kept: Flags
    ends: NDArray[np.int32]

    @classmethod
    def of(cls, graph: Graph, last: int) -> Retiming:
        """Prepare a graph; the run ends with the latest of the points up to the time ``last``."""
        ends = graph.time <= last
        ends[:-1] &= ~(graph.chained[1:] & (graph.time[1:] <= last))
        is_kept = graph.cross != NONE
        is_kept[graph.cross[is_kept]] = True
        is_kept |= ~graph.chained
        is_kept |= ends
        points = np.flatnonzero(is_kept)
        number = np.cumsum(is_kept, dtype=np.int32) - 1  # of kept points
        passed = np.cumsum(np.where(is_kept, 0, graph.delay))[points]
        lag = np.diff(passed, prepend=0)
        cross = graph.cross[points]
        return cls(
            time=graph.time[points],
            lag=np.where(graph.chained[points], lag, 0),
            delay=graph.delay[points],
            chained=graph.chained[points],
            cross=np.where(cross == NONE, NONE, number[cross]),
            by_cross=graph.by_cross[points],
            kept=number + ~is_kept,
            is_kept=is_kept,
            ends=number[ends],
        )

    def end_without(self, points: Ints, saved: Ints) -> int:
        """Return when the run ends if these points had a delay shorter by ``saved`` ns each.

        NONE if the choice of predecessors did not settle within `MAX_ROUNDS`.
        """
        lag, delay = self.lag.copy(), self.delay.copy()
        own = self.is_kept[points]
        delay[self.kept[points[own]]] -= saved[own]
        inside = self.kept[points[~own]]
        known = inside < len(lag)  # points after the last kept one delay nothing
        np.subtract.at(lag, inside[known], saved[~own][known])
        by_cross = self.by_cross
        for _ in range(MAX_ROUNDS):
            time = self._times(lag, delay, by_cross)
            improved, by_cross = self._improved(lag, delay, time)
            if (improved == time).all():
                return int(time[self.ends].max())
        return NONE

    def _improved(self, lag: Ints, delay: Ints, time: Ints) -> tuple[Ints, Flags]:
        """Return the times of all chains by the latest of their predecessors, and the choice of these.

        Predecessors on other chains keep their ``time``.
        """
        total = np.cumsum(np.where(self.chained, lag, 0) + delay)
        other = np.where(self.cross == NONE, NEVER, time[self.cross] + delay - total)
        begins = ~self.chained & (self.cross == NONE)
        other[begins] = self.time[begins] - total[begins]
        latest = self._running_maximum(other)
        by_cross = np.ones(len(other), bool)
        by_cross[1:] = other[1:] > latest[:-1]
        return latest + total, by_cross & (self.cross != NONE) | ~self.chained & ~begins

    def _running_maximum(self, values: Ints) -> Ints:
        """Return the largest value so far on each chain."""
        known = values != NEVER
        low, high = int(values[known].min()), int(values[known].max())
        chain = np.cumsum(~self.chained)
        if int(chain[-1]) * (high - low + 1) > MAX_SHIFT:  # ranks are smaller than times
            distinct, rank = np.unique(values, return_inverse=True)
            highest = np.maximum.accumulate(rank + chain * len(distinct))
            by_rank: Ints = distinct[highest - chain * len(distinct)]
            return by_rank
        shift = chain * (high - low + 1)
        shifted = np.where(known, values - low + shift, 0)
        latest: Ints = np.maximum.accumulate(shifted) - shift + low
        return latest

    def _times(self, lag: Ints, delay: Ints, by_cross: Flags) -> Ints:
        """Return the time of each kept point by a choice of predecessors."""
        leaves = by_cross | ~self.chained
        heads = np.flatnonzero(leaves)
        run = np.cumsum(leaves) - 1  # the head that each point follows
        total = np.cumsum(np.where(leaves, 0, lag + delay))
        since = total - total[heads][run]
        cross = self.cross[heads]
        is_root = cross == NONE
        start = np.where(is_root, self.time[heads], delay[heads] + since[cross])
        time: Ints = sums_above(np.where(is_root, NONE, run[cross]), start)[run] + since
        return time
