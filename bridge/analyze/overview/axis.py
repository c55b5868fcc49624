"""The time axis of a page: where it begins, and how work is spread over its bins, to the nanosecond."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.analyze.groups import counts, sums
from bridge.join.attributed import Attributed
from bridge.join.order import Flags, Ints, by, number
from importers import frames


@dataclass(frozen=True)
class Axis:
    """From ``start`` to ``end``, in ns of the report's clock: all that a report holds lies between."""

    start: int
    end: int

    @classmethod
    def of(cls, joined: Attributed) -> Axis:
        """Return the axis of a report: from its first event to its last."""
        spans = [facts.span for facts in joined.report.facts]
        start = frames.ints(joined.report.activities, "start")
        first, last = min(s[0] for s in spans), max(s[1] for s in spans)
        if len(start):
            first, last = min(first, int(start.min())), max(last, int(joined.end.max()))
        return cls(first, last)

    @property
    def length(self) -> int:
        """How long it is, in ns."""
        return self.end - self.start

    def bins(self, most: int) -> Bins:
        """Part the axis into at most so many bins of equal width."""
        width = max(1, -(-self.length // most))
        return Bins(self.start, width, max(1, -(-self.length // width)))


@dataclass(frozen=True)
class Bins:
    """``count`` bins of ``width`` ns, the first from ``start``; the last may reach beyond the axis."""

    start: int
    width: int
    count: int

    def at(self, time: Ints) -> Ints:
        """Return the bin of each time; a time at the very end is of the last bin."""
        return np.clip((time - self.start) // self.width, 0, self.count - 1)

    def spread(self, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Cut intervals at the edges of bins; return the interval, the bin and the length in ns of each piece.

        Lengths of an interval's pieces add up to its own; one of no length has one piece of none.
        """
        first, last = self.at(start), self.at(np.maximum(end - 1, start))
        size = last - first + 1
        row = np.repeat(np.arange(len(start)), size)
        place = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size) + first[row]
        edge = self.start + place * self.width
        length = np.minimum(end[row], edge + self.width) - np.maximum(start[row], edge)
        return row, place, length


def summed(values: Ints, *keys: Ints) -> tuple[Ints, list[Ints], Ints]:
    """Return the sum of values, the keys, and the number of rows of each distinct combination of keys."""
    group, rows = number(*keys)
    return sums(group, values, len(rows)), [key[rows] for key in keys], counts(group, len(rows))


def largest(values: Ints, most: int) -> Flags:
    """Choose at most so many of the largest values; of equal ones the first."""
    chosen = np.zeros(len(values), bool)
    chosen[by(-values)[:most]] = True
    return chosen
