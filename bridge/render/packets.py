"""Protobuf messages made of whole columns: the wire format alone, without a Python object per row.

A piece gives one field for a chunk of rows as a matrix of bytes. Integers are varints, padded with
continuation bits to the width of the chunk's largest; what is missing in some rows is squeezed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Column = Callable[[Ints], Ints]  # the integers of some rows

CHUNK = 32_768  # rows at a time: with fewer, threads wait for each other; more take memory
MISSING = -1
VARINT, FIXED64, LENGTH = 0, 1, 2  # wire types
GROUP_BITS, GROUP, MORE = 7, 0x7F, 0x80
HALF = 32


def of(values: Ints) -> Column:
    """Return an array as a column."""
    return lambda rows: values[rows]


def through(table: Ints, codes: Ints) -> Column:
    """Return what a table says of each row's code, as a column."""
    return lambda rows: table[codes[rows]]


def varint(value: int) -> bytes:
    """Return one integer, not negative, in as few bytes as it takes."""
    groups = []
    while value > GROUP:
        groups.append(value & GROUP | MORE)
        value >>= GROUP_BITS
    return bytes((*groups, value))


def tag(field: int, wire: int = VARINT) -> bytes:
    """Return what stands before a field."""
    return varint(field << 3 | wire)


def integer(field: int, value: int) -> bytes:
    """Return an integer field; negative ones take ten bytes."""
    return tag(field) + varint(value % 2**64)


def message(field: int, *content: bytes) -> bytes:
    """Return a field of bytes: a text, or a message of fields."""
    whole = b"".join(content)
    return tag(field, LENGTH) + varint(len(whole)) + whole


def varints(values: Ints) -> Bytes:
    """Return integers as rows of bytes, all as wide as the largest; negative ones take ten bytes."""
    unsigned = values.view(np.uint64)
    bits = int(unsigned.max(initial=1)).bit_length()
    shifted = unsigned.copy() if bits > HALF else unsigned.astype(np.uint32)
    width = -(-bits // GROUP_BITS)
    rows = np.empty((len(values), width), np.uint8)
    for place in range(width):
        rows[:, place] = shifted  # the low byte; all but the last have their highest bit set below
        np.right_shift(shifted, GROUP_BITS, out=shifted)
    rows[:, :-1] |= MORE
    return rows


@dataclass(frozen=True)
class Part:
    """Bytes of some rows: one row of them where all are alike.

    ``size`` is how many of the bytes each row has, from the first on; None: all.
    """

    data: Bytes
    size: Ints | None = None

    @property
    def width(self) -> int:
        """How many bytes a row has at most."""
        width: int = self.data.shape[1]
        return width

    def only(self, there: Flags | None) -> Part:
        """Return the bytes of some of the rows alone."""
        if there is None:
            return self
        return Part(self.data, there * (self.width if self.size is None else self.size))


class Piece(Protocol):
    """A field, or several."""

    def parts(self, rows: Ints, /) -> list[Part]:
        """Return the bytes for some rows; none at all if no row has any."""


@dataclass(frozen=True)
class Fixed:
    """The same bytes in every row."""

    data: bytes

    def parts(self, _rows: Ints) -> list[Part]:
        """Return the bytes, once for all rows."""
        return [_alike(self.data)]


@dataclass(frozen=True)
class Integers:
    """``head`` and a varint per row; nothing where the value is ``missing``."""

    head: bytes
    column: Column
    missing: int | None = MISSING

    def parts(self, rows: Ints) -> list[Part]:
        """Return the field's bytes for some rows."""
        values = self.column(rows)
        least, most = int(values.min()), int(values.max())
        if least == most:
            alike = self.head + varint(least % 2**64)
            return [] if least == self.missing else [_alike(alike)]
        there, values = _there(values, least, self.missing)
        return [_alike(self.head).only(there), Part(varints(values)).only(there)]


@dataclass(frozen=True)
class Words:
    """``head`` and eight bytes per row, the lowest first; nothing where the value is ``missing``."""

    head: bytes
    column: Column
    missing: int | None = MISSING

    def parts(self, rows: Ints) -> list[Part]:
        """Return the field's bytes for some rows."""
        values = self.column(rows)
        there, values = _there(values, int(values.min()), self.missing)
        if there is not None and not there.any():
            return []
        words = values.astype("<i8").view(np.uint8).reshape(len(rows), 8)
        return [_alike(self.head).only(there), Part(words).only(there)]


@dataclass(frozen=True)
class Message:
    """A message of fields, as a field of another; ``strict``: none for rows that lack any of its fields."""

    field: int
    pieces: Sequence[Piece]
    strict: bool = False

    def parts(self, rows: Ints) -> list[Part]:
        """Return the message's bytes for some rows."""
        fields = [piece.parts(rows) for piece in self.pieces]
        found = [part for of in fields for part in of]
        if not self.strict:
            return [*self._head(found), *found]
        if not all(fields):
            return []
        some = [part.size > 0 for part in found if part.size is not None]
        there = np.logical_and.reduce(some) if some else None
        whole = [Part(part.data) for part in found]
        return [part.only(there) for part in (*self._head(whole), *whole)]

    def _head(self, found: Sequence[Part]) -> list[Part]:
        """Return the tag and the length of what was found."""
        head = tag(self.field, LENGTH)
        sizes = [part.size for part in found if part.size is not None]
        alike = sum(part.width for part in found if part.size is None)
        if not sizes:
            return [_alike(head + varint(alike))]
        return [_alike(head), Part(varints(np.add.reduce(sizes) + alike))]


@dataclass(frozen=True)
class Packets:
    """What is written for a row, and the rows that get it, in order, so many at a time."""

    pieces: Sequence[Piece]
    rows: Ints
    size: int = CHUNK

    def chunks(self) -> Iterator[Packets]:
        """Cut into lots to be printed apart."""
        for first in range(0, len(self.rows), self.size):
            yield Packets(self.pieces, self.rows[first : first + self.size])

    def print(self) -> bytes:
        """Return the bytes; for a chunk, not for a whole table."""
        parts = [part for piece in self.pieces for part in piece.parts(self.rows)]
        return _side_by_side(parts, len(self.rows))


def _alike(data: bytes) -> Part:
    return Part(np.frombuffer(data, np.uint8)[None])


def _there(values: Ints, least: int, missing: int | None) -> tuple[Flags | None, Ints]:
    """Tell which values are there, and put 0 for those that are not: they take the least room."""
    if missing is None or least > missing:
        return None, values
    there = values != missing
    return (None, values) if there.all() else (there, np.where(there, values, 0))


def _side_by_side(parts: Sequence[Part], count: int) -> bytes:
    """Return the rows of all parts, each row's parts one after another."""
    edges = np.cumsum([0, *(part.width for part in parts)]).tolist()
    rows = np.empty((count, edges[-1]), np.uint8)
    rows[:] = np.concatenate([part.data[0] for part in parts])  # what is alike is filled in at once
    for part, first, last in zip(parts, edges, edges[1:], strict=False):
        if len(part.data) == count:
            rows[:, first:last] = part.data
    if all(part.size is None for part in parts):
        return rows.tobytes()
    kept = np.ones(rows.shape, bool)
    for part, first, last in zip(parts, edges, edges[1:], strict=False):
        if part.size is not None:
            kept[:, first:last] = np.arange(last - first) < part.size[:, None]
    return rows[kept].tobytes()
