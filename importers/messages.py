"""Messages of protocol buffers as rows: their numbers and texts as columns, and the messages in them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from bridge.importers.arrays import MISSING, Flags, Integers, Ints, lookup
from bridge.importers.frames import Names
from bridge.importers.kineto.events import clean_names
from bridge.importers.records import record
from bridge.importers.texts import distinct
from bridge.importers.wire import LENGTH, VARINT, Fields, Wire

ROWS = 1 << 18  # messages whose fields are held at a time


@record
class Messages:
    """Messages of one kind: where they lie, and the row of the message that each is a part of."""

    wire: Wire
    owner: Ints
    start: Ints
    end: Ints

    @classmethod
    def whole(cls, wire: Wire) -> Messages:
        """Return the whole file as one message."""
        return cls(wire, np.zeros(1, np.int64), np.zeros(1, np.int64), np.full(1, wire.size))

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def fields(self) -> Fields:
        return self.wire.fields(self.start, self.end)

    def blocks(self, size: int = ROWS) -> Iterator[tuple[int, Messages]]:
        """Yield the messages in parts of bounded size, at least one, and the first row of each."""
        for first in range(0, max(len(self), 1), size):
            yield first, self.take(slice(first, first + size))

    def take(self, rows: Integers | Flags | slice) -> Messages:
        return Messages(self.wire, self.owner[rows], self.start[rows], self.end[rows])

    def parts(self, number: int) -> Messages:
        """Return the messages that are a field of these."""
        fields = self.fields.of(number, LENGTH)
        return Messages(self.wire, fields.message, fields.start, fields.end)

    def integers(self, number: int, missing: int = 0) -> Ints:
        """Return a number of each message; the last of several."""
        fields = self.fields.of(number, VARINT)
        result = np.full(len(self), missing)
        result[fields.message] = fields.value
        return result

    def has(self, number: int) -> Flags:
        result = np.zeros(len(self), bool)
        result[self.fields.message[self.fields.number == number]] = True
        return result

    @property
    def contents(self) -> Names:
        """What is a text and no message, as names."""
        return names_of(self.wire, self.start, self.end)

    def texts(self, number: int) -> Names:
        """Return a text of each message, '' where it has none; the last of several."""
        return names_of(self.wire, *self.places(number))

    def places(self, number: int) -> Ints:
        """Return where a text of each message begins and ends, twice 0 where it has none."""
        fields, place = self.fields.of(number, LENGTH), np.zeros((2, len(self)), np.int64)
        place[:, fields.message] = fields.start, fields.end
        return place


def names_of(wire: Wire, start: Ints, end: Ints) -> Names:
    """Return ranges of bytes as names."""
    code, first = distinct(wire.words, start, end - start)
    texts = wire.texts(start[first], end[first]).decode()
    return clean_names(texts or [""])[code]


class Pairs:
    """Rows by a pair of numbers, such as a plane and the number of a name in it; of equal pairs the last row."""

    def __init__(self, first: Ints, second: Ints) -> None:
        self._numbers = np.unique(second)
        key = self._keys(first, second)
        self._order = np.argsort(key, kind="stable")
        self._key = key[self._order]

    def rows(self, first: Ints, second: Ints) -> Ints:
        """Return the row of each pair, -1 where there is none."""
        key = self._keys(first, second)
        place = np.searchsorted(self._key, key, side="right") - 1
        found = (key != MISSING) & (lookup(self._key, place) == key)
        return np.where(found, lookup(self._order, place), MISSING)

    def _keys(self, first: Ints, second: Ints) -> Ints:
        """Return a number for each pair, -1 if its second is in none or its first is missing."""
        if not len(self._numbers):
            return np.full(len(second), MISSING)
        place = np.minimum(np.searchsorted(self._numbers, second), len(self._numbers) - 1)
        known = (self._numbers[place] == second) & (first != MISSING)
        return np.where(known, first * len(self._numbers) + place, MISSING)
