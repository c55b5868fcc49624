"""Protobuf's wire format written from whole columns, without a Python object per row.

A piece writes one field for a chunk of rows as a matrix of bytes. Integers are varints, padded with
continuation bits to the width of the chunk's largest; bytes of missing values are removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bridge.importers.records import record
from bridge.render.text_columns import MAX_PRINTED, filled_lines

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Column = Callable[[Ints], Ints]  # returns the integers of some rows

CHUNK = 32_768  # rows at a time: with fewer, threads wait for each other; more need memory
MISSING = -1
VARINT, FIXED64, LENGTH = 0, 1, 2  # wire types
GROUP_BITS, GROUP, MORE = 7, 0x7F, 0x80
HALF = 32


def column_of(values: Ints) -> Column:
    return lambda rows: values[rows]


def gather(table: Ints, codes: Ints) -> Column:
    """Return a column of the entries of a table, by the code of each row."""
    return lambda rows: table[codes[rows]]


def varint(value: int) -> bytes:
    """Return the shortest varint of an integer, which must not be negative."""
    groups = []
    while value > GROUP:
        groups.append(value & GROUP | MORE)
        value >>= GROUP_BITS
    return bytes((*groups, value))


def tag(field: int, wire: int = VARINT) -> bytes:
    """Return the tag of a field: its number and wire type."""
    return varint(field << 3 | wire)


def integer(field: int, value: int) -> bytes:
    """Return an integer field; negative ones take ten bytes."""
    return tag(field) + varint(value % 2**64)


def message(field: int, *content: bytes) -> bytes:
    """Return a length-delimited field: a text, or a message of fields."""
    whole = b"".join(content)
    return tag(field, LENGTH) + varint(len(whole)) + whole


def varints(values: Ints) -> Bytes:
    """Return integers as rows of varints, as wide as the largest; negative ones take ten bytes."""
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


@record
class Part:
    """Bytes of some rows; a single row if they are the same in all rows.

    ``size`` is the number of bytes that each row uses, from the first on; None: all.
    """

    data: Bytes
    size: Ints | None = None

    @property
    def width(self) -> int:
        """The maximum number of bytes of a row."""
        width: int = self.data.shape[1]
        return width

    def only(self, present: Flags | None) -> Part:
        """Return the bytes of the present rows only."""
        if present is None:
            return self
        return Part(self.data, present * (self.width if self.size is None else self.size))


class Piece(Protocol):
    """One or several fields."""

    def width(self, _rows: Ints, /) -> int:
        """Return the number of bytes of the texts that are padded for some rows."""
        return 0

    def parts(self, rows: Ints, /) -> list[Part]:
        """Return the bytes for some rows; an empty list if no row has any."""


@record
class Fixed(Piece):
    """The same bytes in every row."""

    data: bytes

    def parts(self, _rows: Ints) -> list[Part]:
        """Return the bytes, once for all rows."""
        return [_same_in_all_rows(self.data)]


@record
class Integers(Piece):
    """``head`` and a varint per row; nothing if the value is ``missing``."""

    head: bytes
    column: Column
    missing: int | None = MISSING

    def parts(self, rows: Ints) -> list[Part]:
        values = self.column(rows)
        smallest, largest = int(values.min()), int(values.max())
        if smallest == largest:
            data = self.head + varint(smallest % 2**64)
            return [] if smallest == self.missing else [_same_in_all_rows(data)]
        present, values = _present_values(values, smallest, self.missing)
        return [_same_in_all_rows(self.head).only(present), Part(varints(values)).only(present)]


@record
class Words(Piece):
    """``head`` and eight bytes per row, lowest first; nothing if the value is ``missing``."""

    head: bytes
    column: Column
    missing: int | None = MISSING

    def parts(self, rows: Ints) -> list[Part]:
        values = self.column(rows)
        present, values = _present_values(values, int(values.min()), self.missing)
        if present is not None and not present.any():
            return []
        words = values.astype("<i8").view(np.uint8).reshape(len(rows), 8)
        return [_same_in_all_rows(self.head).only(present), Part(words).only(present)]


@record
class Message(Piece):
    """A message as a field of another; with ``strict``, only for rows that have all fields."""

    field: int
    pieces: Sequence[Piece]
    strict: bool = False

    def width(self, rows: Ints) -> int:
        return sum(piece.width(rows) for piece in self.pieces)

    def parts(self, rows: Ints) -> list[Part]:
        fields = [piece.parts(rows) for piece in self.pieces]
        result = [part for field in fields for part in field]
        if not self.strict:
            return [*self._head(result), *result]
        if not all(fields):
            return []
        has_field = [part.size > 0 for part in result if part.size is not None]
        is_complete = np.logical_and.reduce(has_field) if has_field else None
        whole = [Part(part.data) for part in result]
        return [part.only(is_complete) for part in (*self._head(whole), *whole)]

    def _head(self, values: Sequence[Part]) -> list[Part]:
        """Return the tag and the length of the content."""
        head = tag(self.field, LENGTH)
        sizes = [part.size for part in values if part.size is not None]
        fixed_size = sum(part.width for part in values if part.size is None)
        if not sizes:
            return [_same_in_all_rows(head + varint(fixed_size))]
        return [_same_in_all_rows(head), Part(varints(np.add.reduce(sizes) + fixed_size))]


@record
class Packets:
    """The pieces of a row, and the rows to write, in order; ``size`` rows per chunk.

    ``head`` stands before the first row.
    """

    pieces: Sequence[Piece]
    rows: Ints
    size: int = CHUNK
    head: bytes = b""

    def chunks(self) -> Iterator[Packets]:
        """Split the rows into chunks that are printed separately."""
        for first in range(0, len(self.rows), self.size):
            rows, head = self.rows[first : first + self.size], b"" if first else self.head
            yield Packets(self.pieces, rows, head=head)

    def print(self) -> bytes:
        """Return the bytes; to be called for a chunk, not for a whole table."""
        count = len(self.rows)
        if count > 1 and count * sum(p.width(self.rows) for p in self.pieces) > MAX_PRINTED:
            halves = (self.rows[: count // 2], self.rows[count // 2 :])
            return self.head + b"".join(Packets(self.pieces, rows).print() for rows in halves)
        parts = [part for piece in self.pieces for part in piece.parts(self.rows)]
        return self.head + _side_by_side(parts, len(self.rows))


def _same_in_all_rows(data: bytes) -> Part:
    return Part(np.frombuffer(data, np.uint8)[None])


def _present_values(values: Ints, smallest: int, missing: int | None) -> tuple[Flags | None, Ints]:
    """Return which values are present, and the values with 0 (the shortest) for missing ones."""
    if missing is None or smallest > missing:
        return None, values
    present = values != missing
    return (None, values) if present.all() else (present, np.where(present, values, 0))


def _side_by_side(parts: Sequence[Part], count: int) -> bytes:
    """Return the rows, each row's parts one after another."""
    edges = np.cumsum([0, *(part.width for part in parts)]).tolist()
    template = np.concatenate([part.data[0] for part in parts])
    columns = [
        (first, part.data)
        for part, first in zip(parts, edges, strict=False)
        if len(part.data) == count and part.width
    ]
    rows = filled_lines(count, template, columns)
    if all(part.size is None for part in parts):
        return rows.tobytes()
    is_used = np.ones(rows.shape, bool)
    for part, first, last in zip(parts, edges, edges[1:], strict=False):
        if part.size is not None:
            is_used[:, first:last] = np.arange(last - first) < part.size[:, None]
    return rows[is_used].tobytes()
