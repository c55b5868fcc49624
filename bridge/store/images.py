"""Lay out the rows of a table as an SQLite database of that table alone.

SQLite takes four times as long for rows that it is given value by value as for rows that it copies
from another database, record by record: ``INSERT INTO store.t SELECT * FROM image.t``, where both
tables have the same CREATE TABLE statement. The format is that of
https://www.sqlite.org/fileformat2.html. In an image, pages are large, and the numbers before a
record have a fixed width; SQLite copies neither into the store.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import factorize
from bridge.importers.texts import Texts
from bridge.join.arrays import NONE, Ints

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]
Column = Ints | Floats | Texts

PAGE = 65_536  # bytes of a page, the most that SQLite takes
CHUNK = 65_536  # rows that are laid out at a time
LEAF, INTERIOR = 13, 5  # kinds of pages of a table
LEAF_HEADER, INTERIOR_HEADER, POINTER, CHILD = 8, 12, 2, 4  # bytes
FILE_HEADER = 100  # bytes, on the first page
SIZE_BYTES, ROWID_BYTES = 3, 5  # of the two varints before a record
BEFORE_RECORD = SIZE_BYTES + ROWID_BYTES
MOST_CHILDREN = (PAGE - INTERIOR_HEADER) // (POINTER + CHILD + ROWID_BYTES)  # of an interior page
LONGEST_RECORD = PAGE - 35  # longer ones go on in overflow pages, which images do not have
LONGEST_HEADER = 127  # bytes of a record's header, whose size then takes one byte
SERIAL_TYPES = {1: 1, 2: 2, 3: 3, 4: 4, 6: 5, 8: 6}  # of integers, by their bytes
CONSTANT_TYPES = {0: 8, 1: 9}  # of the integers that take no bytes
INTEGER = 8  # bytes
NULL_TYPE = np.zeros((1, 1), np.uint8)
KEY_BITS = 63  # of an integer that is not negative
TEXT = 13  # serial type of the empty text; two more per byte
SQLITE_VERSION = 3_040_000  # in the header: the version that wrote the file


def fits(columns: Sequence[Column | None]) -> bool:
    """Tell whether an image can have these columns: integers, and texts that fit into a page.

    The kinds of a row's values must fit into one integer, by which rows are grouped.
    """
    header, record, kind_bits = 1, 0, 0
    for column in columns:
        part = _Strings if isinstance(column, Texts) else _Integers
        kind_bits += 0 if column is None else part.kind_bits
        if isinstance(column, Texts):
            header, record = header + SIZE_BYTES, record + int(column.sizes.max(initial=0))
        elif column is None or column.dtype == np.int64:
            header, record = header + 1, record + INTEGER
        else:
            return False
    is_short = header <= LONGEST_HEADER and header + record <= LONGEST_RECORD
    return is_short and kind_bits < KEY_BITS


def write_image(
    file: BinaryIO, table: str, statement: str, columns: Sequence[Column | None], first: int
) -> None:
    """Write the image of a table to an empty file.

    ``statement`` creates the table. ``columns`` are in its order, None for the one that is the
    number of the row; that of the first row is ``first``. Missing values (-1, empty texts) become
    NULL.
    """
    rows = next(len(column) for column in columns if column is not None)
    file.seek(PAGE)
    last_rows: list[int] = []  # of each page of a level
    for begin in range(0, rows, CHUNK):
        end = min(begin + CHUNK, rows)
        pages, last = _leaf_pages(_chunk(columns, begin, end), np.arange(begin, end) + first)
        file.write(pages.data)
        last_rows += last
    pages_written, children = 1 + len(last_rows), range(2, len(last_rows) + 2)
    while len(children) > 1:
        level = list(_interior_pages(children, last_rows))
        file.writelines(page for page, _ in level)
        last_rows = [last for _, last in level]
        children = range(pages_written + 1, pages_written + len(level) + 1)
        pages_written += len(level)
    file.seek(0)
    file.write(_first_page(table, statement, children[0], pages_written))


# -- Records


Rows = Ints | slice


class _Integers:
    """Integers of a chunk, all with the bytes that the widest of them takes."""

    kind_bits = 1  # a kind is 0 for NULL, 1 for a value

    def __init__(self, values: Ints) -> None:
        self.values = values
        low, high = int(values.min()), int(values.max())
        self.kinds: int | Ints = 1
        if low <= NONE <= high:
            self.kinds = 0 if low == high else (values != NONE).astype(np.int64)
        if low == high and low in CONSTANT_TYPES:
            self.width, self.type = 0, CONSTANT_TYPES[low]
        else:
            bits = 1 + max((~value if value < 0 else value).bit_length() for value in (low, high))
            self.width = next(width for width in SERIAL_TYPES if 8 * width >= bits)
            self.type = SERIAL_TYPES[self.width]

    def types(self, kind: int, _rows: Rows) -> Bytes:
        """Return the serial type of all rows, shape (1, 1)."""
        return np.array([[self.type if kind else 0]], np.uint8)

    def bodies(self, rows: Rows) -> Bytes:
        """Return the big-endian bytes of each value, shape (rows, width)."""
        whole = self.values[rows].astype(">i8").view(np.uint8).reshape(-1, INTEGER)
        return whole[:, INTEGER - self.width :]


class _Strings:
    """Texts of a chunk."""

    kind_bits = 2  # a kind is the number of bytes of the serial type, 0 for NULL

    def __init__(self, texts: Texts) -> None:
        self.texts, self.sizes = texts, texts.sizes
        types = TEXT + 2 * self.sizes
        long = 1 + (types >= 1 << 7) + (types >= 1 << 14)
        self.kinds = np.where(self.sizes > 0, long, 0).astype(np.int64)

    def types(self, kind: int, rows: Rows) -> Bytes:
        """Return the serial type of each row, shape (rows, kind), or of all rows, shape (1, 1)."""
        return _varints(TEXT + 2 * self.sizes[rows], kind) if kind else NULL_TYPE


_Part = _Integers | _Strings


def _chunk(columns: Sequence[Column | None], begin: int, end: int) -> list[_Part | None]:
    return [
        None
        if column is None
        else _Strings(Texts(column.data, column.offsets[begin : end + 1]))
        if isinstance(column, Texts)
        else _Integers(column[begin:end].astype(np.int64, copy=False))
        for column in columns
    ]


class _Group:
    """The rows of a chunk whose records have the same form: the same columns are NULL."""

    def __init__(self, parts: Sequence[_Part | None], rows: Rows, count: int, first: int) -> None:
        self.rows = rows
        kinds = [0 if part is None else _kind(part, first) for part in parts]
        self.types = [
            NULL_TYPE if part is None else part.types(kind, rows)
            for part, kind in zip(parts, kinds, strict=True)
        ]
        self.filled = [part for part, kind in zip(parts, kinds, strict=True) if part and kind]
        self.header_size = 1 + sum(column.shape[1] for column in self.types)
        widths = sum(part.width for part in self.filled if isinstance(part, _Integers))
        self.record_sizes = np.full(count, self.header_size + widths, np.int64)
        for part in self.filled:
            if isinstance(part, _Strings):
                self.record_sizes += part.sizes[rows]

    def put(self, pages: Bytes, places: Ints, rowids: Ints) -> None:
        """Write the cells of the rows to their places in some pages."""
        before = [_varints(self.record_sizes, SIZE_BYTES), _varints(rowids, ROWID_BYTES)]
        fixed = [*before, np.array([[self.header_size]], np.uint8), *self.types]
        for part in self.filled:
            if isinstance(part, _Integers):
                fixed.append(part.bodies(self.rows))
                continue
            places = _put_bytes(pages, places, fixed)
            places = _put_texts(pages, places, part, self.rows)
            fixed = []
        _put_bytes(pages, places, fixed)


def _kind(part: _Part, row: int) -> int:
    return part.kinds if isinstance(part.kinds, int) else int(part.kinds[row])


def _groups(parts: Sequence[_Part | None], rows: int) -> list[_Group]:
    key, shift = np.zeros(rows, np.int64), 0
    for part in parts:
        if part is not None and not isinstance(part.kinds, int):
            key |= part.kinds << shift
            shift += part.kind_bits
    if (key == key[0]).all():
        return [_Group(parts, slice(None), rows, 0)]
    codes, keys = factorize(key)
    of_group = [np.flatnonzero(codes == code) for code in range(len(keys))]
    return [_Group(parts, own, len(own), int(own[0])) for own in of_group]


def _varints(values: Ints, width: int) -> Bytes:
    """Return numbers as SQLite's varints of a fixed width, shape (values, width)."""
    shifts = 7 * np.arange(width - 1, -1, -1)
    result = (values[:, None] >> shifts) & 0x7F
    result[:, :-1] |= 0x80
    return result.astype(np.uint8)


def _put_bytes(pages: Bytes, places: Ints, columns: Sequence[Bytes]) -> Ints:
    """Write the bytes of a row to each place; columns of shape (1, n) hold for all rows.

    Returns the places after them.
    """
    width = sum(column.shape[1] for column in columns)
    if not width:
        return places
    rows, begin = np.empty((len(places), width), np.uint8), 0
    for column in columns:
        rows[:, begin : begin + column.shape[1]] = column
        begin += column.shape[1]
    _at_each_byte(pages, width)[places] = rows.view(f"V{width}")[:, 0]
    result: Ints = places + width
    return result


def _put_texts(pages: Bytes, places: Ints, part: _Strings, rows: Rows) -> Ints:
    """Write a text to each place, those of a size together; return the places after them."""
    sizes, starts = part.sizes[rows], part.texts.offsets[:-1][rows]
    for size in np.unique(sizes):
        same = np.flatnonzero(sizes == size)
        texts = _at_each_byte(part.texts.data, size)[starts[same]]
        _at_each_byte(pages, size)[places[same]] = texts
    result: Ints = places + sizes
    return result


def _at_each_byte(block: Bytes, width: int) -> NDArray[np.void]:
    """Return the ``width`` bytes from each position of a block on, as a view."""
    return np.ndarray((len(block) - width + 1,), f"V{width}", block.data, strides=(1,))


# -- Pages


def _leaf_pages(parts: Sequence[_Part | None], rowids: Ints) -> tuple[Bytes, list[int]]:
    """Return the pages of a chunk as one block, and the number of the last row of each."""
    groups = _groups(parts, len(rowids))
    sizes = np.empty(len(rowids), np.int64)
    for group in groups:
        sizes[group.rows] = group.record_sizes + BEFORE_RECORD
    ends = _page_ends(sizes)
    firsts = np.concatenate(([0], ends[:-1]))
    counts = ends - firsts
    after = np.cumsum(sizes)
    content = np.add.reduceat(sizes, firsts)  # bytes of the cells of a page, which stand at its end
    page_of = np.repeat(np.arange(len(ends)), counts)
    page_ends = PAGE * np.arange(1, len(ends) + 1)
    places = after - sizes + (page_ends - after[ends - 1])[page_of]

    block = np.zeros(len(ends) * PAGE, np.uint8)
    for group in groups:
        group.put(block, places[group.rows], rowids[group.rows])
    pages = block.reshape(-1, PAGE)
    pages[:, 0] = LEAF
    pages[:, 3:5] = counts.astype(">u2").view(np.uint8).reshape(-1, 2)
    pages[:, 5:7] = (PAGE - content).astype(">u2").view(np.uint8).reshape(-1, 2)
    pointers = block.view(">u2").reshape(-1, PAGE // POINTER)
    within = np.arange(len(rowids)) - firsts[page_of]
    pointers[page_of, LEAF_HEADER // POINTER + within] = places % PAGE
    return block, rowids[ends - 1].tolist()


def _page_ends(sizes: Ints) -> Ints:
    """Return where each page ends: the row after the last whose cell fits into it."""
    after = np.cumsum(sizes + POINTER)
    ends, used = list[int](), 0
    while not ends or ends[-1] < len(sizes):
        ends.append(int(np.searchsorted(after, used + PAGE - LEAF_HEADER, side="right")))
        used = int(after[ends[-1] - 1])
    return np.array(ends, np.int64)


def _interior_pages(
    children: Sequence[int], last_rows: Sequence[int]
) -> Iterator[tuple[bytes, int]]:
    """Yield the pages above some pages, each with the number of the last row below it."""
    cell = CHILD + ROWID_BYTES
    pages = -(
        -len(children) // MOST_CHILDREN
    )  # with about as many each: no page may have one alone
    for below, last in zip(
        np.array_split(children, pages), np.array_split(last_rows, pages), strict=True
    ):
        cells = np.hstack(
            [below.astype(">u4").view(np.uint8).reshape(-1, CHILD), _varints(last, ROWID_BYTES)]
        )[:-1]  # the last child stands in the header
        content = PAGE - cells.size
        header = struct.pack(">BHHHBI", INTERIOR, 0, len(cells), content, 0, int(below[-1]))
        pointers = (content + cell * np.arange(len(cells))).astype(">u2").tobytes()
        yield (header + pointers).ljust(content, b"\0") + cells.tobytes(), int(last[-1])


def _first_page(table: str, statement: str, root: int, pages: int) -> bytes:
    """Return the page with the file's header and the schema, which is one row."""
    texts = [_Strings(Texts.of([text])) for text in ("table", table, table, statement)]
    schema: list[_Part] = [*texts[:3], _Integers(np.array([root])), texts[3]]
    (group,) = _groups(schema, 1)
    cell = np.zeros(int(group.record_sizes[0]) + BEFORE_RECORD, np.uint8)
    group.put(cell, np.array([0]), np.array([1]))
    content = PAGE - len(cell)
    header = struct.pack(
        ">16sHBBBBBB12I20xII",
        b"SQLite format 3\0", 1, 1, 1, 0, 64, 32, 32,  # a page size of 1 stands for 65536
        1, pages, 0, 0, 1, 4, 0, 0, 1, 0, 0, 0, 1, SQLITE_VERSION,
    )  # fmt: skip
    leaf = struct.pack(">BHHHBH", LEAF, 0, 1, content, 0, content)
    return (header + leaf).ljust(content, b"\0") + cell.tobytes()
