"""Protobuf's wire format read into whole columns, without a Python object per field.

A field is a tag (its number and wire type) and a value (protobuf.dev/programming-guides/encoding); where it ends is
known only when it is read. So messages are read side by side: a cursor in each, and all cursors go on by a field
at a time. A long message, such as a thread with a million events, gets cursors at `cuts`: beginnings of fields
that are some hundred bytes or more apart.
"""

from __future__ import annotations

import os
from math import isqrt
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import Flags, Integers, Ints
from bridge.importers.records import record
from bridge.importers.texts import MASKS, Bytes, Texts

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5  # wire types
WIRE_BITS, WIRE = 3, 7
GROUP_BITS, GROUP, MORE = 7, 0x7F, 0x80
WORD = 8
PADDING = 4 * WORD  # bytes behind the end that may be looked at
LONGEST = 10  # bytes of a varint
CURSORS = 1 << 15  # that go on together: their columns fit into the cache
LONG = 2048  # bytes of a message that gets several cursors
CHUNK = 1 << 19  # bytes in which `cuts` follows fields at a time
BLOCK = 512  # bytes between the cursors of a very long message
LARGEST = (1 << 31) - (1 << 20)  # bytes of a file; protobuf knows no message of 2 GiB
STRETCH, JUMP = (
    1 << 24,
    32,
)  # bytes of a file that are searched at a time; messages that are passed at once
SHORT = 4  # bytes of a number that are read at once

Words = NDArray[np.uint64]
Places = NDArray[np.int32]  # of bytes in a chunk
ONE, HIGH, LOW, ONES, WHOLE = (
    np.uint64(int(word, 16)) for word in ("1", "80" * WORD, "7F" * WORD, "01" * WORD, "FFFFFFFF")
)
# Groups of bits are joined to pairs: where the lower and the upper one of each pair lie, and how far that moves.
JOINED = tuple(
    (np.uint64(int(lower, 16)), np.uint64(int(upper, 16)), np.uint64(shift))
    for lower, upper, shift in (
        ("007F" * 4, "7F00" * 4, 1),
        ("00003FFF" * 2, "3FFF0000" * 2, 2),
        ("000000000FFFFFFF", "0FFFFFFF00000000", 4),
    )
)


class DamagedMessageError(Exception):
    """The bytes are no sequence of whole fields."""


@record
class Fields:
    """The fields of messages, in the order of the file.

    ``message`` is the row of the message, ``value`` what a number says: 64 bits, as they are. ``start`` and ``end``
    are where the content lies: a text, a message, or the bytes of the number.
    """

    message: Ints
    number: Ints
    wire: Ints
    value: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.number)

    def take(self, rows: Integers | Flags) -> Fields:
        return Fields(*(getattr(self, column)[rows] for column in COLUMNS))

    def of(self, number: int, wire: int) -> Fields:
        """Return the fields of a number; those of another wire type are unknown ones, as protobuf has it."""
        return self.take(np.flatnonzero((self.number == number) & (self.wire == wire)))


COLUMNS = ("message", "number", "wire", "value", "start", "end")


class Wire:
    """The bytes of a file of protocol buffers."""

    def __init__(self, data: Bytes) -> None:
        """Take the bytes, with `PADDING` zeros behind them."""
        self.data = data
        self.size = len(data) - PADDING
        self.words: Words = np.ndarray((len(data) - WORD + 1,), "<u8", data, strides=(1,))

    @classmethod
    def of_bytes(cls, content: bytes) -> Wire:
        """Copy bytes that are in memory."""
        data = np.zeros(len(content) + PADDING, np.uint8)
        data[: len(content)] = np.frombuffer(content, np.uint8)
        return cls(data)

    @classmethod
    def of(cls, path: Path) -> Wire:
        """Read a file of at most `LARGEST` bytes; raises `DamagedMessageError` if it becomes shorter meanwhile."""
        with path.open("rb") as file:
            size = min(os.fstat(file.fileno()).st_size, LARGEST)
            data = np.zeros(size + PADDING, np.uint8)
            if file.readinto(data[:size].data) < size:
                raise DamagedMessageError
        return cls(data)

    def texts(self, start: Ints, end: Ints) -> Texts:
        """Return ranges of bytes as texts."""
        return Texts(self.data, np.array([0, self.size])).slices(start, end)

    def rows_of(self, text: bytes, start: Ints, end: Ints) -> Ints:
        """Return which ranges of bytes are this text."""
        rows = np.flatnonzero(end - start == len(text))
        for place in range(0, len(text), WORD):
            part = text[place : place + WORD]
            found = self.words[start[rows] + place] & MASKS[len(part)]
            rows = rows[found == np.uint64(int.from_bytes(part, "little"))]
        return rows

    def varints(self, at: Ints) -> tuple[Ints, Ints]:
        """Return the numbers at positions, and the bytes of each: more than `LONGEST` if it is no number."""
        first = self.data[at]
        if (first < MORE).all():  # as most tags and lengths are
            return first.astype(np.int64), np.ones(len(at), np.int64)
        word = self.words[at]
        stop = ~word & HIGH
        last = stop & (~stop + ONE)  # the lowest bit: in the first byte that no other follows
        size = (((((last - ONE) >> np.uint64(GROUP_BITS)) & ONES) * ONES) >> np.uint64(56)) + ONE
        value = word & ((last << ONE) - ONE) & LOW
        for lower, upper, shift in JOINED:
            value = (value & lower) | ((value & upper) >> shift)
        long = np.flatnonzero(last == 0)
        if len(long):
            value[long], size[long] = self._long_varints(at[long], value[long])
        return value.view(np.int64), size.view(np.int64)

    def _long_varints(self, at: Ints, value: Words) -> tuple[Words, Words]:
        """Return the same of numbers of nine bytes and more, of which ``value`` has the first eight."""
        ninth, tenth = (self.data[at + WORD + place].astype(np.uint64) for place in (0, 1))
        more = ninth >= MORE
        value = value | (ninth & np.uint64(GROUP)) << np.uint64(56)
        value |= np.where(more, tenth << np.uint64(63), np.uint64(0))
        size = np.where(more, np.where(tenth > 1, LONGEST + 1, LONGEST), LONGEST - 1)
        return value, size.astype(np.uint64)

    # -- Fields

    def fields(self, start: Ints, end: Ints) -> Fields:
        """Return the fields of messages; raises `DamagedMessageError` if one does not end within its message."""
        cursors = self._cursors(start, end)
        parts = [
            self._fields(*(column[first : first + CURSORS] for column in cursors))
            for first in range(0, len(cursors[0]), CURSORS)
        ]
        none = np.empty(0, np.int64)
        columns = ([none, *(getattr(part, column) for part in parts)] for column in COLUMNS)
        return Fields(*map(np.concatenate, columns))

    def _cursors(self, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
        """Return message, position and end of each cursor: one per message, several in long ones."""
        count, long = np.ones(len(start), np.int64), np.flatnonzero(end - start > LONG)
        cuts = [
            self.cuts(*bounds)
            for bounds in zip(start[long].tolist(), end[long].tolist(), strict=True)
        ]
        count[long] = [len(places) for places in cuts]
        message = np.repeat(np.arange(len(start)), count)
        at, stop = start[message], end[message]
        at[np.isin(message, long)] = np.concatenate([np.empty(0, np.int64), *cuts])
        inner = np.flatnonzero(message[1:] == message[:-1])
        stop[inner] = at[inner + 1]
        return message, at, stop

    def _fields(self, message: Ints, at: Ints, stop: Ints) -> Fields:
        """Return the fields from each position up to its end."""
        parts: list[tuple[Ints, ...]] = []
        while len(going := np.flatnonzero(at < stop)):
            if len(going) < len(at):
                message, at, stop = message[going], at[going], stop[going]
            number, wire, value, start, at = self._field(at, stop)
            parts.append((message, number, wire, value, start, at))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        if not columns:
            return Fields(*[np.empty(0, np.int64)] * len(COLUMNS))
        order = np.argsort(columns[COLUMNS.index("start")], kind="stable")
        return Fields(*(column[order] for column in columns))

    def _field(self, at: Ints, stop: Ints) -> tuple[Ints, ...]:
        """Return number, wire type, value, and start and end of the content, of the field at each position."""
        tag, size = self.varints(at)
        start = at + size
        value, length = self.varints(start)
        wire, end = tag & WIRE, start + length
        is_long = wire == LENGTH
        start = np.where(is_long, end, start)
        end = np.where(is_long, end + np.clip(value, 0, self.size), end)
        bad = (tag >> WIRE_BITS <= 0) | (size > LONGEST) | (is_long & (value < 0))
        fixed = np.flatnonzero(~is_long & (wire != VARINT))
        if len(fixed):
            value[fixed], length[fixed] = self._fixed(start[fixed], wire[fixed])
            end[fixed] = start[fixed] + length[fixed]
        if (bad | (length > LONGEST) | (end > stop)).any():
            raise DamagedMessageError
        return tag >> WIRE_BITS, wire, value, start, end

    def _fixed(self, start: Ints, wire: Ints) -> tuple[Ints, Ints]:
        """Return value and length of fields of a fixed length; more than `LONGEST` bytes for unknown wire types."""
        word, half = self.words[start], wire == FIXED32
        length = np.select([half, wire == FIXED64], [WORD // 2, WORD], LONGEST + 1)
        return np.where(half, word & WHOLE, word).view(np.int64), length

    # -- A whole file of one kind of messages

    def repeated(self, number: int) -> tuple[Ints, Ints]:
        """Return where the messages begin and end that are the whole file; raises `DamagedMessageError` for another.

        Wherever the byte of their tag lies, the end of a message is computed that would begin there, and from the
        first on these are followed, `JUMP` of them at a time.
        """
        tag, at = number << WIRE_BITS | LENGTH, 0
        starts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        while at < self.size:
            begin = at + np.flatnonzero(self.data[at : min(at + STRETCH, self.size)] == tag)
            value, length = self.varints(begin + 1)
            start = begin + 1 + length
            end = start + np.clip(value, 0, self.size)
            whole = (length <= LONGEST) & (value >= 0) & (end <= self.size)
            rows = _chain(begin - at, np.where(whole, end - at, -1))
            if not len(rows) or not whole[rows].all():
                raise DamagedMessageError
            starts.append(start[rows])
            ends.append(end[rows])
            at = int(end[rows[-1]])
        return np.concatenate(starts), np.concatenate(ends)

    # -- Beginnings of fields in a long message

    def cuts(self, start: int, end: int) -> Ints:
        """Return beginnings of fields of a message in order, the first of all included.

        Long fields are passed one by one. Between them the bytes are divided into blocks, and where fields that
        begin in a block leave it is found for all its bytes at once; so only blocks are gone through one by one.
        """
        places, block = [], min(BLOCK, isqrt(end - start))
        at = start
        while at < end:
            places.append(at)
            at = self._behind(at, end)
            if at - places[-1] < LONG and at < end:
                inner, at = self._followed(at, min(end, at + CHUNK), block)
                places += inner
        return np.array(places, np.int64)

    def _behind(self, at: int, end: int) -> int:
        """Return the end of the field at a position."""
        here = np.array([at])
        return int(self._field(here, np.array([end]))[-1][0])

    def _followed(self, start: int, end: int, block: int) -> tuple[list[int], int]:
        """Return the first beginning of a field in each block from a position on, and the last field's end."""
        exits, places, at = _exits(self._next(start, end), block), [], 0
        while 0 <= at < end - start:
            place, at = at, int(exits[at % block, at // block])
            places.append(start + place)
        if at < 0:
            raise DamagedMessageError
        return places, start + at

    def _next(self, start: int, end: int) -> Places:
        """Return where a field ends that begins at each position, counted from the first; -1 if it is not known."""
        data = self.data[start : end + PADDING]
        count = end - start
        place = np.arange(len(data), dtype=np.int32)
        last = np.where(data < MORE, place, np.int32(len(data) - 1))
        behind = np.minimum.accumulate(last[::-1])[::-1] + 1  # of a varint that begins there
        after_tag, wire = np.minimum(behind[:count], count + LONGEST), data[:count] & WIRE
        after = behind[after_tag]
        result = np.where(wire == VARINT, after, np.int32(-1))
        long = np.flatnonzero(wire == LENGTH)
        result[long] = self._ends(start, after_tag[long], after[long])
        for fixed, length in ((FIXED64, WORD), (FIXED32, WORD // 2)):
            rows = np.flatnonzero(wire == fixed)
            result[rows] = after_tag[rows] + np.int32(length)
        return result

    def _ends(self, start: int, length: Places, content: Places) -> Places:
        """Return the ends of contents whose lengths are written at places; -1 where one is too long or no number."""
        word = self.words[start + length].astype(np.uint32)
        stop = ~word & np.uint32(HIGH & WHOLE)
        value = word & (((stop & (~stop + np.uint32(1))) << np.uint32(1)) - np.uint32(1))
        parts = ((value >> np.uint32(8 * n)) & np.uint32(GROUP) for n in range(SHORT))
        joined = (part << np.uint32(GROUP_BITS * n) for n, part in enumerate(parts))
        result: Places = content + np.bitwise_or.reduce([*joined]).astype(np.int32)
        larger = np.flatnonzero(content - length > SHORT)
        number, size = self.varints(start + length[larger].astype(np.int64))
        fits = (size <= LONGEST) & (number >= 0) & (number <= self.size)
        result[larger] = np.where(fits, content[larger] + np.where(fits, number, 0), -1)
        return result


def _chain(begin: Ints, end: Ints) -> Ints:
    """Return the rows that follow one another from position 0 on, where each begins as the one before ends."""
    count = len(begin)
    row = np.full(int(begin.max(initial=0)) + 1, count)
    row[begin] = np.arange(count)
    following = np.full(count + 1, count)
    inner = np.flatnonzero((end >= 0) & (end < len(row)))
    following[inner] = row[end[inner]]
    far = following
    for _ in range(JUMP.bit_length() - 1):
        far = far[far]
    heads, at = [], int(row[0])
    while at < count:
        heads.append(at)
        at = int(far[at])
    steps = [np.array(heads, np.int64)]
    for _ in range(JUMP - 1):
        steps.append(following[steps[-1]])
    rows = np.stack(steps, 1).reshape(-1)
    return rows[rows < count]


def _exits(following: Places, block: int) -> Places:
    """Return where the fields leave the block that follow one another from each position on.

    It is -1 where one cannot be followed. Row and column are the position in the block, and the block.
    """
    blocks = -(-len(following) // block)
    padded = np.arange(
        blocks * block, dtype=np.int32
    )  # behind the last position nothing is followed
    padded[: len(following)] = following
    exits = np.ascontiguousarray(padded.reshape(blocks, block).T)
    flat, column = exits.reshape(-1), np.arange(blocks, dtype=np.int64)
    for place in range(block - 1, -1, -1):
        inner = exits[place] - column * block
        within = np.flatnonzero((inner >= 0) & (inner < block))
        exits[place, within] = flat[inner[within] * blocks + within]
    return exits
