"""Lines of JSON printed from whole columns: exact, without a Python object per line.

A piece prints one field for a chunk of rows as a matrix of bytes, in which short fields are padded.
Between its pieces a line may have spaces, which mean nothing in JSON: numbers are padded in front,
texts to whole words of `WORD` bytes. Words that a line does not need are NUL; the matrices side by
side, without these words, are the lines. Chunks are small enough for the cache, and those with wide
texts are halved until their matrices are small.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bridge.importers.records import record

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Flags = NDArray[np.bool_]
Codes = NDArray[np.signedinteger[Any]]

CHUNK = 8_192  # rows at a time: twice as many exceed the cache and take longer
MAX_MATRIX = 1 << 25  # bytes: the largest matrix of all padded texts
MAX_PRINTED = 1 << 24  # bytes: the largest matrix of the texts of a chunk
GROUP_DIGITS, GROUP = 4, 10_000  # digits are printed in groups of four
WORD = 4  # bytes
MISSING = -1
POINT, ZERO, MINUS, SLASH, SPACE, QUOTE = b'.0-/ "'


def _four_digits() -> tuple[Bytes, Bytes]:
    """Return the digits of all numbers below `GROUP`: with leading zeros, and with spaces (0 as four)."""
    whole = np.char.zfill(np.arange(GROUP).astype("S4"), 4).view(np.uint8).reshape(GROUP, 4)
    is_leading = np.logical_and.accumulate(whole == ZERO, axis=1)
    return whole, np.where(is_leading, np.uint8(SPACE), whole)


DIGITS, _LEADING = _four_digits()
# Four digits in one word, for one lookup: the first group of a number, then groups after the first.
WORDS = np.concatenate((_LEADING, DIGITS)).view(np.uint32).ravel()
LAST_WORDS = WORDS.copy()
LAST_WORDS[:1].view(np.uint8)[3] = ZERO  # the number zero keeps one digit


Sizes = TypeVar("Sizes", int, Ints)


def _rounded_up(size: Sizes, word: int = WORD) -> Sizes:
    """Return sizes in bytes, rounded up to whole words."""
    return -(-size // word) * word


@record
class Text:
    """The same bytes in every line."""

    text: bytes

    def at(self, _rows: Ints) -> Bytes:
        """Return the field's bytes, once for all rows."""
        return np.frombuffer(self.text, np.uint8)[None]


@record
class Number:
    """An integer per line."""

    values: Ints

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows; once if all are the same."""
        values = self.values[rows]
        smallest, largest = int(values.min()), int(values.max())
        if smallest == largest:
            return np.frombuffer(str(smallest).encode(), np.uint8)[None]
        if smallest >= 0:
            return _digits(values)
        # Unsigned, because the smallest integer has no positive counterpart.
        digits = _digits(np.abs(values).view(np.uint64))
        return _preceded(digits, MINUS, np.flatnonzero(values < 0))


@record
class NumberText:
    """The digits of an integer per line, which must not be negative, as a text."""

    values: Ints

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        quoted = _preceded(_digits(self.values[rows]), QUOTE, np.arange(len(rows)))
        return np.hstack((quoted, np.full((len(rows), 1), QUOTE, np.uint8)))


@record
class OptionalNumber:
    """``head`` and an integer per line; nothing if the integer is missing (-1)."""

    head: bytes
    values: Ints

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows, in whole words."""
        missing = self.values[rows] == MISSING
        if missing.all():
            return np.empty((1, 0), np.uint8)
        number = Number(self.values).at(rows)
        fields = [Text(self.head).at(rows), number]
        if missing.any() and len(number) == 1:
            fields[1] = np.broadcast_to(number, (len(rows), number.shape[1]))
        template, columns = _layout(fields, [False, False])
        printed = filled_lines(len(rows) if columns else 1, template, columns)
        if missing.any():
            printed[missing] = 0
        return printed


@record
class Micros:
    """Nanoseconds since ``base`` (not negative), printed in microseconds with three decimals."""

    values: Ints
    base: int = 0

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        values = (self.values[rows] - self.base).view(np.uint64)
        whole = values // np.uint64(1_000)
        rest = values - whole * np.uint64(1_000)
        digits = _digits(whole)
        printed = np.empty((len(whole), digits.shape[1] + WORD), np.uint8)
        printed[:, :-WORD] = digits
        printed[:, -WORD:] = DIGITS[rest]
        printed[:, -WORD] = POINT  # in place of the first of four digits, which is zero
        return printed


class Names:
    """One of some texts per line, by code (-1: the last); the texts must not contain NUL.

    The texts are padded by spaces to a multiple of ``word`` bytes, and by NUL to the longest.
    """

    def __init__(self, codes: Codes, texts: Sequence[bytes], word: int = WORD) -> None:
        self.codes = codes
        self.length = np.array([len(text) for text in texts], np.int64)
        self.size = _rounded_up(self.length, word)
        if word > 1:
            texts = list(map(bytes.ljust, texts, self.size.tolist()))
        self.texts = np.array(texts, object)
        self.matrix = self._matrix(texts)

    def width(self, rows: Ints) -> int:
        """Return the number of bytes of the widest text of some rows."""
        width: int = self.size[self.codes[rows]].max()
        return width

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows; once, without padding, if all are the same."""
        codes = self.codes[rows]
        code = int(codes[0])
        if (codes == code).all():
            return np.frombuffer(self.texts[code], np.uint8)[None, : self.length[code]]
        width = self.width(rows)
        if not width:  # different texts, all empty
            return np.empty((1, 0), np.uint8)
        if self.matrix is not None:
            whole_texts = self.matrix[:, :width].view(f"V{width}")[:, 0]  # a lookup moves one item
            return whole_texts[codes].view(np.uint8).reshape(len(codes), width)
        texts = np.array(self.texts[codes].tolist(), f"S{width}")
        return texts.view(np.uint8).reshape(len(codes), width)

    def _matrix(self, texts: Sequence[bytes]) -> Bytes | None:
        """Return the texts as a matrix for fast lookups; None if the matrix would be too large."""
        width = int(self.size.max(initial=0))
        if not width or width * len(texts) > MAX_MATRIX:
            return None
        return np.array(texts, f"S{width}").view(np.uint8).reshape(len(texts), width)


@record
class Gather:
    """For each line the row ``row`` of another piece."""

    piece: Piece
    row: Ints

    def width(self, rows: Ints) -> int:
        """Return the number of bytes of the texts of some rows."""
        return _width(self.piece, self.row[rows])

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        return self.piece.at(self.row[rows])


class Path:
    """The texts from the root of a tree to a node, between ``head`` and ``tail``; or nothing.

    Unlike the other pieces, it leaves single NULs within and between its texts.
    """

    def __init__(self, node: Ints, parent: Ints, names: Names, head: bytes, tail: bytes) -> None:
        self.node, self.parent, self.names = node, parent, names
        self.head, self.tail = (np.frombuffer(text, np.uint8)[None] for text in (head, tail))

    def width(self, rows: Ints) -> int:
        """Return the number of bytes of the texts of some rows, those of each level beside each other."""
        node, width = self.node[rows], 0
        node = node[node >= 0]
        while len(node):
            width += self.names.width(node) + 1
            node = self.parent[node]
            node = node[node >= 0]
        return width

    def at(self, rows: Ints) -> Bytes:
        """Return the field's bytes for some rows."""
        node = self.node[rows]
        present = node >= 0
        blocks = [self.tail * present[:, None]]
        while present.any():
            shown = np.where(present, node, node[np.argmax(present)])  # others are as wide as one
            blocks.append(self.names.at(shown) * present[:, None])
            node = np.where(present, self.parent[node], MISSING)
            present = node >= 0
            blocks.append((present * np.uint8(SLASH))[:, None])
        blocks.append(self.head * (self.node[rows] >= 0)[:, None])
        return _side_by_side(blocks[::-1])


Piece = Text | Number | NumberText | OptionalNumber | Micros | Names | Gather | Path
WITHOUT_NULS = Number, NumberText, Micros  # pieces that need not begin with a word


@record
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
        count = len(self.rows)
        if count > 1 and count * sum(_width(p, self.rows) for p in self.pieces) > MAX_PRINTED:
            halves = (self.rows[: count // 2], self.rows[count // 2 :])
            return b"".join(Lines(self.pieces, rows).print() for rows in halves)
        kinds = [type(p.piece if isinstance(p, Gather) else p) for p in self.pieces]
        fields = [piece.at(self.rows) for piece in self.pieces]
        template, columns = _layout(fields, [kind not in WITHOUT_NULS for kind in kinds])
        lines = filled_lines(len(self.rows), template, columns)
        words = lines.view(np.uint32).ravel()
        printed: bytes = words[words != 0].tobytes()
        return printed.replace(b"\0", b"") if Path in kinds else printed


def _width(piece: Piece, rows: Ints) -> int:
    """Return the number of bytes of the texts that a piece pads for some rows, 0 for other pieces."""
    return piece.width(rows) if isinstance(piece, Names | Gather | Path) else 0


def _layout(
    fields: Sequence[Bytes], in_words: Sequence[bool]
) -> tuple[Bytes, list[tuple[int, Bytes]]]:
    """Return a line with what is the same in all of them, and the columns with their places in it.

    Columns ``in_words`` begin with a word, and so does the next line.
    """
    template, columns = bytearray(), []
    for field, begins_with_word in zip(fields, in_words, strict=True):
        if len(field) == 1:
            template += field.tobytes()
            continue
        if begins_with_word:
            template += b" " * (-len(template) % WORD)
        columns.append((len(template), field))
        template += bytes(field.shape[1])
    template += b" " * (-len(template) % WORD)
    return np.frombuffer(template, np.uint8), columns


def filled_lines(count: int, template: Bytes, columns: Sequence[tuple[int, Bytes]]) -> Bytes:
    """Return lines with columns in their places.

    What is written into a line is one item to NumPy, which it copies fastest.
    """
    width = len(template)
    lines = np.empty((count, width), np.uint8)
    lines.view(f"V{width}")[:] = template.view(f"V{width}")
    for place, column in columns:
        item = f"V{column.shape[1]}"
        np.ndarray(count, item, lines, place, lines.strides[:1])[:] = column.view(item)[:, 0]
    return lines


def _side_by_side(blocks: Sequence[Bytes]) -> Bytes:
    """Return blocks of bytes beside each other, padded by NUL to whole words."""
    width = sum(block.shape[1] for block in blocks)
    padding = np.zeros((len(blocks[0]), _rounded_up(width) - width), np.uint8)
    return np.hstack((*blocks, padding))


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
    """Return the digits of numbers that are not negative, padded in front with spaces.

    A number is printed in groups of four digits. A group has leading zeros if the groups before it hold a digit.
    """
    digits = len(str(values.max()))
    groups = _groups_of_digits(values.view(np.uint64), -(-digits // GROUP_DIGITS))
    printed = np.empty((len(values), len(groups)), np.uint32)
    has_digits = np.zeros(len(values), bool)
    for index, group in enumerate(groups):
        words = LAST_WORDS if index == len(groups) - 1 else WORDS
        printed[:, index] = words[group + has_digits * np.uint64(GROUP)]
        has_digits |= group != 0
    return printed.view(np.uint8)[:, -digits:]


def _groups_of_digits(values: NDArray[np.uint64], count: int) -> list[NDArray[np.uint64]]:
    """Return ``count`` groups of four digits of each number, the highest first."""
    groups = []
    for _ in range(count - 1):
        above = values // np.uint64(GROUP)
        groups.append(values - above * np.uint64(GROUP))  # much faster than divmod
        values = above
    return [values, *groups[::-1]]


def _preceded(digits: Bytes, sign: int, rows: Ints) -> Bytes:
    """Return numbers with a sign directly before the first digit in some rows."""
    printed = np.hstack((np.full((len(digits), 1), SPACE, np.uint8), digits))
    spaces = np.count_nonzero(printed[rows] == SPACE, axis=1)
    printed[rows, spaces - 1] = sign
    return printed


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
