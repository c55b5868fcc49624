"""Lines of text printed from whole columns: exact, and without a Python object per line.

A piece gives the bytes of one field for a chunk of rows as a matrix, short fields padded with NUL; the
pieces side by side, NULs squeezed out, are the lines. Chunks are small enough to stay in the cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

CHUNK = 8_192  # rows at a time: twice as many fall out of the cache and take twice as long
LARGEST = 1 << 25  # bytes of texts that are kept padded
GROUP = 10_000  # numbers are printed four digits at a time
MISSING = -1
POINT, ZERO, MINUS, SLASH = b".0-/"


def _four_digits() -> tuple[Bytes, Bytes]:
    """Return how numbers below `GROUP` are printed: whole, and without zeros in front (0 as nothing)."""
    whole = np.char.zfill(np.arange(GROUP).astype("S4"), 4).view(np.uint8).reshape(GROUP, 4)
    in_front = np.logical_and.accumulate(whole == ZERO, axis=1)
    return whole, np.where(in_front, np.uint8(0), whole)


DIGITS, _LEADING = _four_digits()
# Four bytes in one word, so that a lookup moves one: a number that begins here, then one that goes on.
WORDS = np.concatenate((_LEADING, DIGITS)).view(np.uint32).ravel()
LAST_WORDS = WORDS.copy()
LAST_WORDS[:1].view(np.uint8)[3] = ZERO  # zero itself keeps one digit


@dataclass(frozen=True)
class Text:
    """The same bytes in every line."""

    text: bytes

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        one = np.frombuffer(self.text, np.uint8)
        return np.broadcast_to(one, (len(rows), len(one)))


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
        # As unsigned: the least integer has no positive twin.
        return np.hstack((sign, _digits(np.abs(values).view(np.uint64))))


@dataclass(frozen=True)
class Given:
    """``head`` and an integer per line; nothing where the integer is missing (-1)."""

    head: bytes
    values: Ints

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        printed = np.hstack((Text(self.head).at(rows), Number(self.values).at(rows)))
        return np.where((self.values[rows] == MISSING)[:, None], np.uint8(0), printed)


@dataclass(frozen=True)
class Micros:
    """Nanoseconds since ``base``, not negative, printed in microseconds with all three decimals."""

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
    """One of some texts per line, by code; texts must hold no NUL."""

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
        """Return the texts as a matrix, so that a lookup copies whole rows; None if that were too large."""
        width = int(self.size.max(initial=0))
        if not width or width * len(texts) > LARGEST:
            return None if width else np.empty((len(texts), 0), np.uint8)
        return np.array(texts, f"S{width}").view(np.uint8).reshape(len(texts), width)


@dataclass(frozen=True)
class Through:
    """Another piece, at the row that ``row`` tells for each line."""

    piece: Piece
    row: Ints

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        return self.piece.at(self.row[rows])


class Path:
    """The texts from the root of a tree down to a node, after ``head``; nothing for no node."""

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


Piece = Text | Number | Given | Micros | Names | Through | Path


@dataclass(frozen=True)
class Lines:
    """What is printed in a line, and the rows that get one, in order."""

    pieces: Sequence[Piece]
    rows: Ints

    def chunks(self) -> Iterator[Lines]:
        """Cut into lots to be printed apart."""
        pieces = _merged(self.pieces)
        for first in range(0, len(self.rows), CHUNK):
            yield Lines(pieces, self.rows[first : first + CHUNK])

    def print(self) -> bytes:
        """Return the lines; for a chunk, not for a whole table."""
        flat = np.hstack([piece.at(self.rows) for piece in self.pieces]).ravel()
        squeezed: bytes = flat[flat != 0].tobytes()
        return squeezed


def _merged(pieces: Sequence[Piece]) -> list[Piece]:
    """Make one piece of texts that follow each other."""
    found: list[Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        if isinstance(piece, Text) and isinstance(last, Text):
            found[-1] = Text(last.text + piece.text)
        else:
            found.append(piece)
    return found


def numbers(head: bytes, values: Ints) -> list[Piece]:
    """Print an integer column after ``head``, as plainly as its values allow."""
    if values.strides == (0,) and len(values):
        return [Text(head + str(int(values[0])).encode())]
    if (values == MISSING).any():
        return [Given(head, values)]
    return [Text(head), Number(values)]


def _digits(values: Ints | NDArray[np.uint64]) -> Bytes:
    """Print numbers that are not negative, padded in front with NUL."""
    groups = [values.view(np.uint64)]
    while groups[0].any() and groups[0].max() >= GROUP:
        above = groups[0] // np.uint64(GROUP)  # much faster than divmod
        groups[:1] = [above, groups[0] - above * np.uint64(GROUP)]
    printed = np.empty((len(values), len(groups)), np.uint32)
    begun = np.zeros(len(values), bool)
    for place, group in enumerate(groups):
        words = LAST_WORDS if place == len(groups) - 1 else WORDS
        printed[:, place] = words[group + begun * np.uint64(GROUP)]
        begun |= group != 0
    return printed.view(np.uint8)
