"""Where instants lie among the events of their own thread; how much of the time before them was covered."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from bridge.join.intervals import unions
from bridge.join.order import Flags, Ints, runs, stable


def places(
    events: tuple[Ints, Ints], stack: Ints, time: Ints, side: Literal["left", "right"]
) -> Ints:
    """Return how many events come before each instant, counting all those of the stacks before its own.

    ``events`` are stacks and times, sorted by both; an event at the instant itself comes before it
    on the "right" side alone.
    """
    of_stack, when = events
    found = np.searchsorted(of_stack, stack, side="left")
    bounds = {int(of_stack[a]): (a, b) for a, b in pairwise(runs(of_stack).tolist())}
    order = stable(stack)
    for first, last in pairwise(runs(stack[order]).tolist()):  # a turn per thread
        asked = order[first:last]
        a, b = bounds.get(int(stack[asked[0]]), (0, 0))
        if b > a:
            found[asked] = a + np.searchsorted(when[a:b], time[asked], side=side)
    return found


@dataclass(frozen=True)
class Cover:
    """Times at which any of some intervals was open, by stack: disjoint and sorted."""

    stack: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, stack: Ints, start: Ints, end: Ints) -> Cover:
        """Unite intervals."""
        return cls(*unions(stack, start, end))

    def within(self, stack: Ints, start: Ints, end: Ints) -> Ints:
        """Return how many ns of each interval are covered."""
        if not len(self.stack):
            return np.zeros(len(stack), np.int64)
        return self._until(stack, end) - self._until(stack, start)

    def meets(self, stack: Ints, start: Ints, end: Ints) -> Flags:
        """Tell which intervals of some length are covered in part at least."""
        begun = places((self.stack, self.start), stack, end, "left")
        ended = places((self.stack, self.end), stack, start, "right")
        meets: Flags = begun > ended
        return meets

    def _until(self, stack: Ints, time: Ints) -> Ints:
        """Return what is covered before each instant, plus all that is of the stacks before."""
        place = places((self.stack, self.start), stack, time, "right")
        total = np.concatenate(([0], np.cumsum(self.end - self.start)))
        last = np.maximum(place - 1, 0)
        ahead = np.where((place > 0) & (self.stack[last] == stack), self.end[last] - time, 0)
        before: Ints = total[place] - np.maximum(ahead, 0)
        return before
