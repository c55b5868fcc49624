"""Lines of text printed from whole columns: exact, without a Python object per line.

A piece prints one field for a chunk of rows as a matrix of bytes, with short fields padded by NUL.
The matrices side by side, without their NULs, are the lines. Chunks are small enough for the cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

CHUNK = 8_192  # rows at a time: twice as many exceed the cache and take twice as long
MAX_MATRIX = 1 << 25  # bytes: the largest matrix of padded texts
GROUP = 10_000  # four digits are printed at a time
MISSING = -1
POINT, ZERO, MINUS, SLASH = b".0-/"


def _four_digits() -> tuple[Bytes, Bytes]:
    """Return the digits of all numbers below `GROUP`: with leading zeros, and without (0 as '')."""
    whole = np.char.zfill(np.arange(GROUP).astype("S4"), 4).view(np.uint8).reshape(GROUP, 4)
    is_leading = np.logical_and.accumulate(whole == ZERO, axis=1)
    return whole, np.where(is_leading, np.uint8(0), whole)


DIGITS, _LEADING = _four_digits()
# Four digits in one word, for one lookup: the first group of a number, then groups after the first.
WORDS = np.concatenate((_LEADING, DIGITS)).view(np.uint32).ravel()
LAST_WORDS = WORDS.copy()
LAST_WORDS[:1].view(np.uint8)[3] = ZERO  # the number zero keeps one digit


@dataclass(frozen=True)
class Text:
    """The same bytes in every line."""

    text: bytes

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        text_bytes = np.frombuffer(self.text, np.uint8)
        return np.broadcast_to(text_bytes, (len(rows), len(text_bytes)))


@dataclass(frozen=True)
class Number:
    """An integer per line."""

    values: Ints

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        values = self.values[rows]
        if values.min() >= 0:
            return _digits(values)
        sign = np.where(values < 0, np.uint8(MINUS), np.uint8(0))[:, None]
        # Unsigned, because the smallest integer has no positive counterpart.
        return np.hstack((sign, _digits(np.abs(values).view(np.uint64))))


@dataclass(frozen=True)
class OptionalNumber:
    """``head`` and an integer per line; nothing if the integer is missing (-1)."""

    head: bytes
    values: Ints

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        printed = np.hstack((Text(self.head).at(rows), Number(self.values).at(rows)))
        return np.where((self.values[rows] == MISSING)[:, None], np.uint8(0), printed)


@dataclass(frozen=True)
class Micros:
    """Nanoseconds since ``base`` (not negative), printed in microseconds with three decimals."""

    values: Ints
    base: int = 0

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        values = (self.values[rows] - self.base).view(np.uint64)
        whole = values // np.uint64(1_000)
        rest = values - whole * np.uint64(1_000)
        point = np.full((len(whole), 1), POINT, np.uint8)
        return np.hstack((_digits(whole), point, DIGITS[rest, 1:]))


class Names:
    """One of some texts per line, by code; the texts must not contain NUL."""

    def __init__(self, codes: Ints, texts: Sequence[bytes]) -> None:
        self.codes = codes
        self.size = np.array([len(text) for text in texts], np.int64)
        self.first = np.cumsum(self.size) - self.size
        self.data = np.frombuffer(b"".join(texts), np.uint8)
        self.matrix = self._padded(texts)

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        codes = self.codes[rows]
        size = self.size[codes]
        width = int(size.max())
        if self.matrix is not None:
            return self.matrix[codes, :width]
        place = np.arange(width)
        source = np.minimum(self.first[codes][:, None] + place, len(self.data) - 1)
        return np.where(place < size[:, None], self.data[source], np.uint8(0))

    def _padded(self, texts: Sequence[bytes]) -> Bytes | None:
        """Return the texts as a matrix for fast lookups; None if the matrix would be too large."""
        width = int(self.size.max(initial=0))
        if not width or width * len(texts) > MAX_MATRIX:
            return None if width else np.empty((len(texts), 0), np.uint8)
        return np.array(texts, f"S{width}").view(np.uint8).reshape(len(texts), width)


@dataclass(frozen=True)
class Through:
    """Another piece, at row ``row`` of that piece for each line."""

    piece: Piece
    row: Ints

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        return self.piece.at(self.row[rows])


class Path:
    """The texts from the root of a tree to a node, between ``head`` and ``tail``; or nothing."""

    def __init__(self, node: Ints, parent: Ints, names: Names, head: bytes, tail: bytes) -> None:
        self.node, self.parent, self.names = node, parent, names
        self.head, self.tail = (np.frombuffer(text, np.uint8) for text in (head, tail))

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        node = self.node[rows]
        none = node < 0
        pieces = [np.where(none[:, None], np.uint8(0), self.tail)]
        while not none.all():
            text = self.names.at(np.maximum(node, 0))
            pieces.append(np.where(none[:, None], np.uint8(0), text))
            node = np.where(none, node, self.parent[node])
            none = node < 0
            slash = np.where(none, np.uint8(0), np.uint8(SLASH))
            pieces.append(slash[:, None])
        pieces.append(np.where(self.node[rows][:, None] < 0, np.uint8(0), self.head))
        return np.hstack(pieces[::-1])


Piece = Text | Number | OptionalNumber | Micros | Names | Through | Path


@dataclass(frozen=True)
class Lines:
    """Lines of text: the pieces of a line, and the rows to print, in order."""

    pieces: Sequence[Piece]
    rows: Ints

    def chunks(self) -> Iterator[Lines]:
        """Split the lines into chunks that are printed separately."""
        pieces = _merged(self.pieces)
        for first in range(0, len(self.rows), CHUNK):
            yield Lines(pieces, self.rows[first : first + CHUNK])

    def print(self) -> bytes:
        """Return the lines; to be called for a chunk, not for a whole table."""
        flat = np.hstack([piece.at(self.rows) for piece in self.pieces]).ravel()
        squeezed: bytes = flat[flat != 0].tobytes()
        return squeezed


def _merged(pieces: Sequence[Piece]) -> list[Piece]:
    """Return the pieces with adjacent texts joined."""
    result: list[Piece] = []
    for piece in pieces:
        last = result[-1] if result else None
        if isinstance(piece, Text) and isinstance(last, Text):
            result[-1] = Text(last.text + piece.text)
        else:
            result.append(piece)
    return result


def numbers(head: bytes, values: Ints) -> list[Piece]:
    """Return the pieces that print an integer column after ``head``."""
    if values.strides == (0,) and len(values):
        return [Text(head + str(int(values[0])).encode())]
    if (values == MISSING).any():
        return [OptionalNumber(head, values)]
    return [Text(head), Number(values)]


def _digits(values: Ints | NDArray[np.uint64]) -> Bytes:
    """Return the digits of numbers that are not negative, padded in front with NUL."""
    groups = [values.view(np.uint64)]
    while groups[0].any() and groups[0].max() >= GROUP:
        above = groups[0] // np.uint64(GROUP)  # much faster than divmod
        groups[:1] = [above, groups[0] - above * np.uint64(GROUP)]
    printed = np.empty((len(values), len(groups)), np.uint32)
    has_started = np.zeros(len(values), bool)
    for index, group in enumerate(groups):
        words = LAST_WORDS if index == len(groups) - 1 else WORDS
        printed[:, index] = words[group + has_started * np.uint64(GROUP)]
        has_started |= group != 0
    return printed.view(np.uint8)


# -- Chunks printed on several threads, in order

PRINT_THREADS = 2
MAX_AHEAD = 6  # chunks that are printed before earlier ones are written


class Chunk(Protocol):
    """Rows that are few enough to be printed at once."""

    def print(self) -> bytes:
        """Return the bytes of the rows."""


def printed_chunks(chunks: Iterable[Chunk]) -> Iterator[bytes]:
    """Print chunks on other threads, at most `MAX_AHEAD` in advance; yield them in order."""
    with ThreadPoolExecutor(PRINT_THREADS) as pool:
        ahead: deque[Future[bytes]] = deque()
        for chunk in chunks:
            ahead.append(pool.submit(chunk.print))
            if len(ahead) > MAX_AHEAD:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
