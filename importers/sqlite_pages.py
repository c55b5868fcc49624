"""Read columns of an SQLite table from the pages of its file, with NumPy alone.

SQLite's virtual machine takes several times as long for the same columns. `Unreadable` is raised
for whatever is not known here and for any sign of damage; SQLite then reads the table, and tells
what is wrong with it.

All rows of some pages are decoded together. The header of a record holds the types of its values:
the few distinct headers of a table are decoded once, and tell the place of each value in its row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import NamedTuple

import numpy as np

from bridge.importers.arrays import Ints, factorize
from bridge.importers.query import Value
from bridge.importers.records import record
from bridge.importers.sqlite_file import (
    UTF8,
    Bytes,
    PageFile,
    Pages,
    Unreadable,
    Words,
    pairs_of,
    quads_of,
    require,
    words_of,
)
from bridge.importers.texts import MIX, Texts

# -- The tree of a table


INTERIOR, LEAF = 5, 13  # kinds of pages
MAX_DEPTH = 20
NO_LIMIT = np.iinfo(np.int64)
LOW_BITS = (
    127  # of a byte of a variable-length number; the highest bit says that another byte follows
)
MAX_NUMBER_BYTES = 8  # a ninth byte would have eight bits


class Cells(NamedTuple):
    """The cells of some pages: the index of the page of each, and its position among their bytes."""

    page: Ints
    position: Ints


def _cells(file: PageFile, pages: Pages, kind: int, *, is_empty: bool = False) -> Cells:
    """Return the cells of pages of one kind, in order; only the page of an empty table has none."""
    require((pages.data[pages.head] == kind).all(), "kinds of pages")
    count = pairs_of(pages.data)[pages.head + 3].astype(np.int64)
    require(is_empty or count.all(), "an empty page")
    pointers = pages.head + (12 if kind == INTERIOR else 8)
    after = pointers + 2 * count - pages.base
    require((after <= file.usable).all(), "number of cells")
    page = np.repeat(np.arange(len(count)), count)
    before = np.repeat(pointers - 2 * (np.cumsum(count) - count), count)
    offset = pairs_of(pages.data)[before + 2 * np.arange(len(page))].astype(np.int64)
    lowest = np.minimum.reduceat(offset, (np.cumsum(count) - count)[count > 0]) if len(page) else 0
    is_inside = (lowest >= after[count > 0]).all() and offset.max(initial=0) <= file.usable - 4
    require(is_inside, "place of a cell")
    return Cells(page, np.repeat(pages.base, count) + offset)


class Leaves(NamedTuple):
    """The leaf pages of a table in order; rows of each have low < rowid <= high."""

    number: Ints
    low: Ints
    high: Ints


def leaves_of(file: PageFile, root: int) -> Leaves:
    """Return the leaf pages of the tree with this root, level by level."""
    level = Leaves(np.array([root]), np.array([NO_LIMIT.min]), np.array([NO_LIMIT.max]))
    visited = 0
    for _ in range(MAX_DEPTH):
        visited += len(level.number)
        require(visited <= file.pages, "a page twice")
        first = file.read(level.number[:1])
        if first.data[first.head[0]] == LEAF:  # so are all others, or reading their rows tells
            require(len(np.unique(level.number)) == len(level.number), "a page twice")
            return level
        level = _children(file, level, file.read(level.number))
    raise Unreadable("depth")


def _children(file: PageFile, level: Leaves, pages: Pages) -> Leaves:
    """Return the children of interior pages."""
    cells = _cells(file, pages, INTERIOR)
    rightmost = quads_of(pages.data)[pages.head + 8]
    child = quads_of(pages.data)[cells.position].astype(np.int64)
    key, _ = _varints(pages.data, cells.position + 4)
    count = np.bincount(cells.page, minlength=len(level.number))
    place = np.arange(len(child)) + cells.page
    last = np.cumsum(count + 1) - 1
    number = np.empty(len(child) + len(rightmost), np.int64)
    high, low = number.copy(), number.copy()
    number[place], number[last] = child, rightmost
    high[place], high[last] = key, level.high
    low[1:] = high[:-1]
    low[last - count] = level.low
    require((low[place] < high[place]).all() and (low[last] <= high[last]).all(), "order of keys")
    return Leaves(number, low, high)


def _varints(data: Bytes, position: Ints) -> tuple[Ints, Ints]:
    """Return variable-length numbers, and how many bytes each has."""
    byte, size = data[position], 1
    value = (byte & LOW_BITS).astype(np.int64)
    while len(byte) and (byte > LOW_BITS).all():  # most numbers of some pages are equally long
        byte, size = data[position + size], size + 1
        value = value << 7 | (byte & LOW_BITS)
        require(size <= MAX_NUMBER_BYTES, "a long number")
    sizes = np.full(len(position), size)
    more = np.flatnonzero(byte > LOW_BITS)
    while len(more):
        byte = data[position[more] + sizes[more]]
        value[more] = value[more] << 7 | (byte & LOW_BITS)
        sizes[more] += 1
        require((sizes[more] <= MAX_NUMBER_BYTES).all(), "a long number")
        more = more[byte > LOW_BITS]
    return value, sizes


# -- Records


NULL, ABSENT, REAL = 0, -1, 7  # types of values; ABSENT is that of a column added later
ZERO, ONE = 8, 9
FIRST_BLOB, FIRST_TEXT = 12, 13  # from these on, even types are blobs and odd ones texts
SIZES = (0, 1, 2, 3, 4, 6, 8, 8, 0, 0)


@record
class StoredTable:
    """A table in a file.

    Attributes:
        root: the number of its first page.
        columns: its columns as stored.
        alias: the position of the column that is the rowid, -1 if there is none.
        filled: the columns with a default value, which rows from before the column have.
        reals: the columns whose whole numbers SQLite gives as real numbers.

    """

    root: int
    columns: tuple[str, ...]
    alias: int = -1
    filled: frozenset[str] = frozenset()
    reals: frozenset[str] = frozenset()


class Place(NamedTuple):
    """The place of a value in the rows of one layout.

    Attributes:
        offset: the position after the header of the record.
        size: its bytes; 0 for a constant, -1 for the rowid.
        added: what is added to it.

    """

    offset: int
    size: int
    added: int


@dataclass
class Layouts:
    """The distinct headers of the records of a table, and the place of each value in their rows."""

    table: StoredTable
    columns: Sequence[Value]
    known: dict[bytes, int] = field(default_factory=dict)
    bodies: list[int] = field(default_factory=list)
    places: list[list[Place]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def number(self, header: bytes) -> int:
        """Return the number of the layout of a header, which is without its length."""
        with self.lock:
            if header not in self.known:
                types, offsets, size = self.parsed(header)
                self.places.append([self._place(value, types, offsets) for value in self.columns])
                self.bodies.append(size)
                self.known[header] = len(self.known)
            return self.known[header]

    def parsed(self, header: bytes) -> tuple[list[int], list[int], int]:
        """Return the type and the offset of each column, and the size of all values."""
        types = [*_numbers(header)]
        require(len(types) <= len(self.table.columns), "number of columns")
        sizes = [_size(kind) for kind in types]
        offsets = [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
        absent = len(self.table.columns) - len(types)
        return [*types, *[ABSENT] * absent], [*offsets, *[0] * absent], offsets[-1]

    def _place(self, value: Value, types: Sequence[int], offsets: Sequence[int]) -> Place:
        """Return where the value is that SQL would give."""
        added = value.flag if any(self._type(name, types) > NULL for name in value.flags) else 0
        for name in value.sources:
            kind = self._type(name, types)
            if kind == NULL:
                continue
            position = self.table.columns.index(name)
            if position == self.table.alias and not value.is_text:
                return Place(0, -1, added)
            is_text = kind >= FIRST_TEXT and kind % 2 == 1
            is_integer = kind <= ONE and kind != REAL and position != self.table.alias
            if is_integer and name in self.table.reals:
                raise Unreadable("a real number")
            if is_text if value.is_text else is_integer:
                return Place(offsets[position], _size(kind), added + (kind == ONE))
            require(value.mixed, "the type of a value")
        require(value.missing is not None, "nothing where a value belongs")
        return Place(0, 0, added + (0 if value.is_text else int(value.missing or 0)))

    def _type(self, name: str, types: Sequence[int]) -> int:
        """Return the type of a column in a row; the rowid is an integer."""
        position = self.table.columns.index(name)
        if position == self.table.alias:
            return ONE
        if types[position] != ABSENT:
            return types[position]
        require(name not in self.table.filled, "a default value")
        return NULL


def _numbers(data: bytes) -> Iterator[int]:
    """Yield the variable-length numbers of some bytes."""
    value = length = 0
    for byte in data:
        length += 1
        require(length <= MAX_NUMBER_BYTES, "a long number")
        value = value << 7 | byte & LOW_BITS
        if byte <= LOW_BITS:
            yield value
            value = length = 0
    require(not length, "header of a record")


def _size(kind: int) -> int:
    """Return the number of bytes of a value by its type."""
    if kind < len(SIZES):
        return SIZES[kind]
    require(kind >= FIRST_BLOB, "the type of a value")
    return (kind - FIRST_BLOB) // 2


class Records(NamedTuple):
    """The records of some pages.

    Attributes:
        data: the bytes that hold the pages.
        rowid: the number of each row.
        body: the position of its first value.
        code: the index of its layout among ``layouts``.
        layouts: the numbers of the layouts.

    """

    data: Bytes
    rowid: Ints
    body: Ints
    code: Ints
    layouts: Ints


def records(file: PageFile, pages: Pages, leaves: Leaves, layouts: Layouts) -> Records:
    """Return the records of leaf pages. Raises `Unreadable` if one of them goes on elsewhere."""
    is_empty = bool((leaves.low == leaves.high).all())
    data, cells = pages.data, _cells(file, pages, LEAF, is_empty=is_empty)
    payload, payload_bytes = _varints(data, cells.position)
    rowid, rowid_bytes = _varints(data, cells.position + payload_bytes)
    require(payload.max(initial=0) <= file.usable - 35, "a record of several pages")
    start = cells.position + payload_bytes + rowid_bytes
    ends = pages.base + file.usable
    require((start + payload <= ends[cells.page]).all(), "end of a record")
    _check_order(rowid, cells.page, leaves)
    header = data[start].astype(np.int64)
    require((header <= LOW_BITS).all() and (header >= 1).all(), "a long header")
    require((header <= payload).all(), "length of a header")
    code, examples = _distinct_headers(words_of(data), start, header)
    numbers = [
        layouts.number(data[start[row] + 1 : start[row] + header[row]].tobytes())
        for row in examples.tolist()
    ]
    size = np.array([layouts.bodies[number] for number in numbers], np.int64)
    require((header + size[code] == payload).all(), "length of a record")
    return Records(
        data=data, rowid=rowid, body=start + header, code=code, layouts=np.array(numbers, np.int64)
    )


def _check_order(rowid: Ints, page: Ints, leaves: Leaves) -> None:
    """Check that rows are in order, and where the tree says."""
    is_ordered = (rowid[1:] > rowid[:-1]).all()
    is_placed = (rowid > leaves.low[page]).all() and (rowid <= leaves.high[page]).all()
    require(is_ordered and is_placed, "order of rows")


MASKS = np.array([(1 << 8 * count) - 1 for count in range(8)] + [(1 << 64) - 1], np.uint64)


def _distinct_headers(words: Words, start: Ints, length: Ints) -> tuple[Ints, Ints]:
    """Return a code per header, and a row that has the header of each code."""
    parts = []
    hashes = np.zeros(len(start), np.uint64)
    shortest, longest = int(length.min(initial=LOW_BITS)), int(length.max(initial=0))
    for place in range(0, longest, 8):
        part = words[start + place]
        if shortest < place + 8:
            part &= MASKS[np.clip(length - place, 0, 8) if shortest < longest else shortest - place]
        parts.append(part)
        hashes ^= part
        hashes *= MIX
        hashes ^= hashes >> np.uint64(29)
    code, distinct = factorize(hashes)
    example = np.full(len(distinct), len(start), np.int64)
    np.minimum.at(example, code, np.arange(len(start)))
    require(all((part == part[example][code]).all() for part in parts), "equal hashes")
    return code, example


# -- Columns


def integers(rows: Records, places: Sequence[Place]) -> Ints:
    """Return an integer of each row; ``places`` are those in each layout."""
    offset, size, added = (np.array(column, np.int64) for column in zip(*places, strict=True))
    if (size == size[0]).all() and (added == added[0]).all():  # one layout, as far as it matters
        if size[0] == 0:
            return np.broadcast_to(added[0], (len(rows.code),))
        if size[0] < 0:
            return _sum(rows.rowid, added[0])
        is_fixed = (offset == offset[0]).all()
        at = rows.body + (offset[0] if is_fixed else offset[rows.code])
        value = _big_endian(rows.data, at)
        value >>= 64 - 8 * size[0]
        return _sum(value, added[0]) if added[0] else value
    value = _big_endian(rows.data, rows.body + offset[rows.code])
    value >>= np.where(size > 0, 64 - 8 * size, 0)[rows.code]
    for kind, replacement in ((0, np.int64(0)), (-1, rows.rowid)):
        if (size == kind).any():
            value = np.where((size == kind)[rows.code], replacement, value)
    return _sum(value, added[rows.code]) if added.any() else value


def _sum(value: Ints, added: Ints | np.int64) -> Ints:
    """Return the sums; raises `Unreadable` where SQLite would make a real number of one."""
    largest = NO_LIMIT.max - np.maximum(added, 0)
    require((value <= largest).all(), "a number beyond 64 bits")
    return value + added


def _big_endian(data: Bytes, at: Ints) -> Ints:
    words = words_of(data)[at].byteswap(inplace=True)
    value: Ints = words.view(np.int64)
    return value


def texts(rows: Records, places: Sequence[Place]) -> Texts:
    """Return a text of each row; ``places`` are those in each layout."""
    offset, size, _ = (np.array(column, np.int64) for column in zip(*places, strict=True))
    start = rows.body + offset[rows.code]
    result = Texts(rows.data, np.empty(0, np.int64)).slices(start, start + size[rows.code])
    is_view = np.may_share_memory(result.data, rows.data)
    return Texts(result.data.copy(), result.offsets) if is_view else result


# -- Tables


SMALLEST_CELL = 4  # bytes
SPAN_BYTES = 1 << 22  # of the file that are read at once, with the pages of all tables in them


@record
class TablePages:
    """The leaf pages of a table, and how its records are decoded.

    ``rows`` are the first and the last rowid of the rows that are wanted.
    """

    layouts: Layouts
    leaves: Leaves
    rows: tuple[int, int] = NO_LIMIT.min + 1, NO_LIMIT.max

    def within(self, first: int, last: int) -> Leaves:
        """Return the pages with first <= number < last; the numbers ascend."""
        a, b = np.searchsorted(self.leaves.number, (first, last))
        return Leaves(*(column[a:b] for column in self.leaves))

    def row_numbers(self, first: int, last: int) -> int:
        """Return how many row numbers the rows may have that the pages first <= number < last hold."""
        of = self.within(first, last)
        if not len(of.number):
            return 0
        last_row, before = (
            min(int(of.high[-1]), self.rows[1]),
            max(int(of.low[0]), self.rows[0] - 1),
        )
        return max(0, last_row - before)

    def wanted(self, rows: Records) -> Records:
        """Return the records of the rows that are wanted."""
        mask = (rows.rowid >= self.rows[0]) & (rows.rowid <= self.rows[1])
        if mask.all():
            return rows
        return rows._replace(rowid=rows.rowid[mask], body=rows.body[mask], code=rows.code[mask])

    def columns(self, rows: Records) -> list[Ints | Texts]:
        """Return the columns of some rows."""
        return [self._column(rows, position) for position in range(len(self.layouts.columns))]

    def _column(self, rows: Records, position: int) -> Ints | Texts:
        is_text = self.layouts.columns[position].is_text
        places = [self.layouts.places[number][position] for number in rows.layouts.tolist()]
        if not places:
            return Texts.of([]) if is_text else np.empty(0, np.int64)
        return texts(rows, places) if is_text else integers(rows, places)


@record
class TablesReader:
    """Reads tables in spans of the file, each of which is read once; threads may share it."""

    file: PageFile
    tables: Mapping[str, TablePages]

    @property
    def spans(self) -> list[range]:
        """The numbers of pages that are read at once, of those spans that hold any table."""
        size = max(1, SPAN_BYTES // self.file.page_size)
        numbers = [np.empty(0, np.int64), *(of.leaves.number for of in self.tables.values())]
        used = np.unique(np.concatenate(numbers) // size)
        return [range(n * size, (n + 1) * size) for n in used.tolist()]

    def read(self, span: range) -> dict[str, list[Ints | Texts] | Unreadable]:
        """Return the columns of each table in a span, in the order of the rows, or why not."""
        leaves = {name: table.within(span.start, span.stop) for name, table in self.tables.items()}
        leaves = {name: of for name, of in leaves.items() if len(of.number)}
        numbers = np.sort(np.concatenate([of.number for of in leaves.values()]))
        try:
            pages = self.file.read(numbers)
        except (OSError, Unreadable) as error:
            return dict.fromkeys(leaves, Unreadable(str(error)))
        return {name: self._columns(name, pages, of) for name, of in leaves.items()}

    def _columns(self, name: str, pages: Pages, leaves: Leaves) -> list[Ints | Texts] | Unreadable:
        table = self.tables[name]
        try:
            rows = records(self.file, pages.take(leaves.number), leaves, table.layouts)
            return table.columns(table.wanted(rows))
        except Unreadable as error:
            return error
        except (IndexError, OverflowError) as error:
            return Unreadable(str(error))


def pages_of(
    file: PageFile,
    table: StoredTable,
    columns: Sequence[Value],
    rows: tuple[int, int] | None = None,
    leaves: Leaves | None = None,
) -> TablePages:
    """Find the pages of a table, or of its rows from a first to a last rowid, among its ``leaves`` if they are known.

    Raises `Unreadable` if they cannot be read here.
    """
    if any(column.is_text for column in columns):
        require(file.encoding == UTF8, "UTF-16")
    used = {name for column in columns for name in (*column.sources, *column.flags)}
    require(used <= {*table.columns}, "an unknown column")
    leaves = leaves or bounded_leaves(file, table.root)
    if rows:
        leaves = Leaves(*(c[(leaves.high >= rows[0]) & (leaves.low < rows[1])] for c in leaves))
    require((np.diff(leaves.number) > 0).all(), "pages out of order")
    result = TablePages(Layouts(table, columns), leaves, *([rows] if rows else []))
    most_rows = len(leaves.number) * file.usable // SMALLEST_CELL
    require(0 <= result.row_numbers(0, file.pages + 1) <= most_rows, "row numbers far apart")
    return result


def bounded_leaves(file: PageFile, root: int) -> Leaves:
    """Return the leaf pages of a table, with the bounds that its first and its last row set.

    Raises `Unreadable` if they cannot be read here.
    """
    try:
        leaves = leaves_of(file, root)
        leaves.low[0], leaves.high[-1] = _ends(file, leaves)
    except (IndexError, OSError) as error:
        raise Unreadable(str(error)) from error
    return leaves


def _ends(file: PageFile, leaves: Leaves) -> tuple[int, int]:
    """Return the number before the first row, and that of the last row."""
    numbers = []
    for end in (leaves.number[:1], leaves.number[-1:]):
        pages = file.read(end)
        cells = _cells(file, pages, LEAF, is_empty=len(leaves.number) == 1)
        _, size = _varints(pages.data, cells.position)
        numbers.append(_varints(pages.data, cells.position + size)[0])
    if not len(numbers[0]):
        require(len(leaves.number) == 1, "an empty page")
        return 0, 0
    require(len(numbers[1]), "an empty page")
    return int(numbers[0][0]) - 1, int(numbers[1][-1])
