"""What every thread of the host was in at every instant: from one edge to the next the same."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from bridge.join.arrays import Flags, Ints, by, runs, stable, unions

# -- Where instants lie among the events of their own thread; how much of the time before them was covered


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


# -- What every thread of the host was in at every instant: from one edge to the next the same


EVER = np.iinfo(np.int64).min


@dataclass(frozen=True)
class Pieces:
    """Pieces of intervals: which interval it is of, what it is, the stack that told, and from when to when."""

    of: Ints
    state: Ints
    stack: Ints
    start: Ints
    end: Ints

    def taken(self, rows: Ints | np.ndarray) -> Pieces:
        """Return some of them."""
        columns = (self.of, self.state, self.stack, self.start, self.end)
        return Pieces(*(column[rows] for column in columns))

    @property
    def length(self) -> Ints:
        """The length of each in ns."""
        return self.end - self.start


def joined_pieces(*parts: Pieces) -> Pieces:
    """Put pieces one after another."""
    columns = ("of", "state", "stack", "start", "end")
    return Pieces(*(np.concatenate([getattr(part, c) for part in parts]) for c in columns))


@dataclass(frozen=True)
class Timeline:
    """Edges by stack and time: from each to the next of its stack the state is the same.

    A state is a number; of several open at once the greatest counts, 0 is for none.
    """

    stack: Ints
    time: Ints
    state: Ints

    @classmethod
    def of(cls, stack: Ints, start: Ints, end: Ints, kind: Ints) -> Timeline:
        """Lay intervals, whose kinds are numbers from 1, over one another."""
        lasting = end > start
        if not lasting.all():
            stack, start, end, kind = (c[lasting] for c in (stack, start, end, kind))
        both = np.concatenate((stack, stack))
        time = np.concatenate((start, end))
        step = np.repeat(np.array([1, -1]), len(stack))
        order = by(both, time)
        both, time, step, kind = (
            both[order],
            time[order],
            step[order],
            np.concatenate((kind, kind))[order],
        )
        state = np.zeros(len(time), np.int64)
        for one in np.unique(kind).tolist():  # a turn per kind, the greatest last
            state[np.cumsum(np.where(kind == one, step, 0)) > 0] = one
        last = np.ones(len(time), bool)  # of the edges at one instant
        last[:-1] = (both[1:] != both[:-1]) | (time[1:] != time[:-1])
        return cls(both[last], time[last], state[last])

    def cut(self, stack: Ints, start: Ints, end: Ints) -> Pieces:
        """Cut intervals, each of some length on a stack, where the state of that stack changes."""
        first = places((self.stack, self.time), stack, start, "right") - 1
        last = places((self.stack, self.time), stack, end, "left") - 1
        size = last - first + 1
        row = np.repeat(np.arange(len(stack)), size)
        place = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size - first, size)
        own = np.append(self.stack, EVER)[place] == stack[row]  # not before the first edge
        opened = np.where(own, np.append(self.time, EVER)[place], EVER)
        closes = np.append(self.time, EVER)[np.minimum(place + 1, len(self.time))]
        inner = np.arange(len(row)) < np.repeat(np.cumsum(size), size) - 1
        return Pieces(
            row,
            np.where(own, np.append(self.state, 0)[place], 0),
            stack[row],
            np.maximum(start[row], opened),
            np.where(inner, closes, end[row]),
        )
