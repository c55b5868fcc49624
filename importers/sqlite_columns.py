"""Read columns of an SQLite file into NumPy arrays and `Texts`, without a Python object per row.

The file is opened read-only and immutable: nothing is ever written beside it. Tables are read from
the pages of the file where `bridge.importers.sqlite_pages` knows all that is in them, otherwise through
SQLite: large ones in rowid ranges by several threads, tables without row numbers whole.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import adbc_driver_manager
import adbc_driver_sqlite
import nanoarrow
import numpy as np
from nanoarrow.c_array import allocate_c_array
from numpy.typing import NDArray

from bridge.importers.arrays import Ints
from bridge.importers.errors import NotAReport
from bridge.importers.query import Query
from bridge.importers.records import record
from bridge.importers.sqlite_file import PageFile, Unreadable
from bridge.importers.sqlite_pages import (
    Leaves,
    StoredTable,
    TablePages,
    TablesReader,
    bounded_leaves,
    pages_of,
)
from bridge.importers.sqlite_sources import Source, Sources, quoted
from bridge.importers.texts import Texts

LOG = logging.getLogger("bridge.importers")

# -- Arrow streams


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_ErrorCallback = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)


class _Stream(ctypes.Structure):
    _fields_ = (
        ("get_schema", _Callback),
        ("get_next", _Callback),
        ("get_last_error", _ErrorCallback),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


def batches(stream: Any) -> Iterator[Any]:
    """Yield the batches of an Arrow stream as views of nanoarrow, decoded outside the GIL.

    ``stream`` has ``__arrow_c_stream__``. Raises RuntimeError if the stream fails.
    """
    with nanoarrow.c_array_stream(stream) as stream_:
        schema, address = stream_.get_schema(), stream_._addr()  # noqa: SLF001 - documented
        callbacks = _Stream.from_address(address)
        while True:
            batch = allocate_c_array(schema)
            if callbacks.get_next(address, batch._addr()):  # noqa: SLF001 - C interface
                raise RuntimeError(
                    (callbacks.get_last_error(address) or b"").decode(errors="replace")
                )
            if not batch.is_valid():
                return
            yield batch.view()


# -- Integer columns from batches of several threads; each value is copied once


class ColumnBuffer:
    """An integer column that threads fill, one part each; part i has at most ``room[i]`` rows."""

    def __init__(self, room: Sequence[int]) -> None:
        self.first = np.concatenate(([0], np.cumsum(room)))
        self.values = np.empty(int(self.first[-1]), np.int64)  # takes no memory until it is written
        self.parts = [_Part(self.values[a:b]) for a, b in pairwise(self.first)]

    def add(self, part: int, batch: Ints) -> None:
        """Append a batch to a part; only one thread may fill a part."""
        self.parts[part].add(batch)

    def column(self) -> Ints:
        """Return the whole column, its parts in order; a broadcast if all values are equal."""
        filled = [part for part in self.parts if part.rows]
        rows = sum(part.rows for part in filled)
        if filled and all(p.constant and p.value == filled[0].value for p in filled):
            return np.broadcast_to(np.int64(filled[0].value), (rows,))
        for part in filled:
            part.write_out()
        if rows == len(self.values):
            return self.values
        return np.concatenate([np.empty(0, np.int64), *(p.values[: p.rows] for p in filled)])


class _Part:
    def __init__(self, values: Ints) -> None:
        self.values, self.rows = values, 0
        self.constant, self.value = True, 0

    def add(self, batch: Ints) -> None:
        if not len(batch):
            return
        if not self.rows:
            self.value = int(batch[0])
        if self.constant and not _is_constant(batch, self.value):
            self.write_out()
        if not self.constant:
            self.values[self.rows : self.rows + len(batch)] = batch
        self.rows += len(batch)

    def write_out(self) -> None:
        """Write the rows that were only counted, because their values are all equal."""
        if self.constant:
            self.values[: self.rows] = self.value
            self.constant = False


def _is_constant(batch: Ints, value: int) -> bool:
    return bool(batch[0] == value and batch[-1] == value and (batch == value).all())


# -- SQLite files


DRIVER = adbc_driver_sqlite._driver_path()  # noqa: SLF001 - as in its dbapi
PART_ROWS = 150_000  # fewer rows are not worth another connection
BATCH_ROWS = 16_384  # buffers of this size are reused, not mapped again
MIN_ROW_BYTES = 4  # of the file
MAX_TEXT_BYTES = 1 << 26  # no profiler writes longer ones, and each is copied several times
MAX_REASON = 300  # characters: SQLite's messages may quote a whole schema
MAX_TEXT_RATIO = (
    8  # times the size of the file: UTF-16 and numbers become longer when they are read
)

# The maximum of threads that read one file; fewer where several files are read concurrently.
THREADS: ContextVar[int] = ContextVar("THREADS", default=4)

Columns = dict[str, Ints | Texts]


@record
class StoredColumn:
    """A column as the file describes it; ``facts`` are its place in the key and two flags."""

    name: str
    type: str
    root: int
    not_null: int
    facts: int

    @property
    def key(self) -> int:
        """The place in the primary key from 1 on, 0 for none."""
        return self.facts & 0xFFFF

    @property
    def has_default(self) -> bool:
        """Whether rows from before the column have a value."""
        return bool(self.facts & 0x10000)

    @property
    def is_hidden(self) -> bool:
        """Whether the column is computed."""
        return bool(self.facts & 0x20000)

    @property
    def is_real(self) -> bool:
        """Whether SQLite gives whole numbers as real ones."""
        kind = self.type.upper()
        return "INT" not in kind and any(part in kind for part in ("REAL", "FLOA", "DOUB"))


def stored_table(columns: Sequence[StoredColumn], text: str) -> StoredTable | None:
    """Return how rows of a table are stored, None where that is not certain.

    ``text`` is its CREATE TABLE statement if that contains DESC.
    """
    if any(column.is_hidden for column in columns):
        return None
    keys = [place for place, column in enumerate(columns) if column.key]
    is_number = len(keys) == 1 and columns[keys[0]].type.upper() == "INTEGER"
    if is_number and "desc" in text.lower():  # INTEGER PRIMARY KEY DESC is not the row number
        return None
    return StoredTable(
        root=columns[0].root,
        columns=tuple(column.name for column in columns),
        alias=keys[0] if is_number else -1,
        filled=frozenset(column.name for column in columns if column.has_default),
        reals=frozenset(column.name for column in columns if column.is_real),
    )


class Database:
    """A read-only SQLite file; use it as a context manager.

    ``immutable`` asserts that nobody writes to the file meanwhile: it is read without locks.
    """

    def __init__(self, path: Path, *, immutable: bool = True, threads: int | None = None) -> None:
        self.path, self.immutable = path, immutable
        self.threads = threads or min(THREADS.get(), os.cpu_count() or 1)
        self.pool = ThreadPoolExecutor(self.threads)
        self.sources = Sources({}, frozenset())  # filled by `tables`
        self.stored: dict[str, StoredTable] = {}  # the tables that may be read from pages
        self.leaves: dict[str, Leaves] = {}  # of tables that were read: each window reads a part

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def tables(self) -> dict[str, Mapping[str, bool]]:
        """Return the columns of every table, and for each whether it is declared NOT NULL.

        Views that only rename are tables, too; `computed_views` names the others.
        """
        # No virtual tables: these can run any code.
        sql = (
            "SELECT 'column', m.name, c.name, c.type, m.rootpage, c.\"notnull\","
            " c.pk + 65536 * (c.dflt_value IS NOT NULL) + 131072 * (c.hidden > 0)"
            " FROM sqlite_master m, pragma_table_xinfo(m.name) c"
            " WHERE m.type = 'table' AND m.rootpage > 0"
            " UNION ALL SELECT type, name, CAST(sql AS TEXT), '', 0, 0, 0 FROM sqlite_master WHERE"
            " sql IS NOT NULL AND (type = 'view' OR (type = 'table' AND"
            " (sql LIKE '%rowid%' OR sql LIKE '%desc%')))"
        )
        columns: dict[str, list[StoredColumn]] = {}
        texts: dict[str, dict[str, str]] = {"table": {}, "view": {}}
        with self._report_errors():
            for batch in self._batches(sql):
                names = (_text(batch.child(i)).decode() for i in range(4))
                numbers = (_integers(batch.child(i)).tolist() for i in range(4, 7))
                for kind, name, value, *facts in zip(*names, *numbers, strict=True):
                    if kind == "column":
                        columns.setdefault(name, []).append(StoredColumn(value, *facts))
                    else:
                        texts[kind][name] = value
        present = {
            name: {column.name: bool(column.not_null) for column in of if not column.is_hidden}
            for name, of in columns.items()
        }
        self.sources = Sources.of(present, texts["table"], texts["view"])
        self.stored = {
            name: table
            for name, of in columns.items()
            if self.sources.tables[name].has_rowid
            and (table := stored_table(of, texts["table"].get(name, "")))
        }
        return {name: source.columns for name, source in self.sources.tables.items()}

    def computed_views(self) -> frozenset[str]:
        """Return the names of views that are not read, because they do more than rename."""
        return self.sources.computed

    def has_rowid(self, table: str) -> bool:
        """Return whether rows of a table can be selected by their number."""
        return self._source(table).has_rowid

    def _source(self, table: str) -> Source:
        """Return what a table is read from; before `tables` was called, each is a plain one."""
        return self.sources.tables.get(table) or Source(quoted(table), {}, has_rowid=True)

    def read(self, queries: Mapping[str, Query]) -> dict[str, Columns]:
        """Run all queries, concurrently where it pays.

        Rows come in the order of their rowids, or of the table's primary key.
        """
        with self._report_errors(), self._without_writers():
            from_pages = self._read_pages(queries)
        rest = {name: query for name, query in queries.items() if name not in from_pages}
        if len(queries) > 1:  # not each of many reads of a few rows
            self._log_ways(from_pages, rest)
        result = from_pages | (self._run(rest) if rest else {})
        return {name: result[name] for name in queries}

    def _log_ways(self, from_pages: Collection[str], rest: Mapping[str, Query]) -> None:
        """Log which tables SQLite reads, which takes longer, and which of them are stored as pages do not tell."""
        tables = dict.fromkeys(query.table for query in rest.values())
        LOG.debug(
            "%s: %d tables from pages; through SQLite: %s; views, or of unusual storage: %s",
            self.path.name,
            len(from_pages),
            ", ".join(tables) or "none",
            ", ".join(table for table in tables if table not in self.stored) or "none",
        )

    def _read_pages(self, queries: Mapping[str, Query]) -> dict[str, Columns]:
        """Return the columns of those queries that can be answered from pages."""
        try:
            file = PageFile.open(self.path)
        except (Unreadable, OSError) as error:
            LOG.debug("%s: read through SQLite, not from pages: %s", self.path.name, error)
            return {}
        try:
            if file.has_log and not self.immutable:
                return {}
            tables = {n: t for n, query in queries.items() if (t := self._pages(file, query))}
            reader = TablesReader(file, tables)
            spans = reader.spans
            results = {
                name: _PageResult(queries[name], [of.row_numbers(s.start, s.stop) for s in spans])
                for name, of in tables.items()
            }

            def read(part: int) -> None:
                for name, columns in reader.read(spans[part]).items():
                    results[name].add(part, columns)

            for running in [self.pool.submit(read, part) for part in range(len(spans))]:
                running.result()
        finally:
            file.close()
        return {name: of.columns() for name, of in results.items() if not of.failed}

    def _pages(self, file: PageFile, query: Query) -> TablePages | None:
        """Return the pages of a query's table, None if SQLite must read it."""
        stored = self.stored.get(query.table)
        if stored is None or set(query.values) != set(query.columns):
            return None
        try:
            leaves = self.leaves.get(query.table) or bounded_leaves(file, stored.root)
            if self.immutable:  # else it may grow
                self.leaves[query.table] = leaves
            return pages_of(file, stored, [*query.values.values()], rows=query.rows, leaves=leaves)
        except Unreadable as error:
            LOG.debug("%s: through SQLite, as its pages have %s", query.table, error)
            return None

    def _run(self, queries: Mapping[str, Query]) -> dict[str, Columns]:
        """Run queries through SQLite."""
        bounds = self.bounds(query.table for query in queries.values() if not query.rows)
        running = {
            name: _RunningQuery(self, query, query.rows or bounds[query.table])
            for name, query in queries.items()
        }
        return {name: query_.columns() for name, query_ in running.items()}

    def reals(self, sql: str) -> NDArray[np.float64]:
        """Return the result of a statement: one column of real numbers without NULL."""
        with self._report_errors():
            parts = [_reals(batch.child(0)) for batch in self._batches(sql)]
        return np.concatenate([np.empty(0), *parts])

    def bounds(self, tables: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return the first and last rowid of each table, from its index.

        Rows without a rowid count from 0. In a damaged file the bounds may have any value.
        """
        sql = " UNION ALL ".join(self._bounds_sql(table) for table in tables)
        result: dict[str, tuple[int, int]] = {}
        with self._report_errors():
            for batch in self._batches(sql) if sql else ():
                first, last = (_integers(batch.child(i)).tolist() for i in (1, 2))
                result |= dict(
                    zip(_text(batch.child(0)).decode(), zip(first, last, strict=True), strict=True)
                )
        return result

    def _bounds_sql(self, table: str) -> str:
        source, name = self._source(table), table.replace("'", "''")
        if not source.has_rowid:
            limit = (
                self.path.stat().st_size // MIN_ROW_BYTES
            )  # in a damaged file a count may not end
            rows = f"SELECT count(*) - 1 FROM (SELECT 1 FROM {source.sql} LIMIT {limit})"
            return f"SELECT '{name}', 0, ({rows})"
        # In two statements: SQLite looks up one of them, but scans the table for both.
        return (
            f"SELECT '{name}', coalesce((SELECT min(rowid) FROM {source.sql}), 0),"
            f" coalesce((SELECT max(rowid) FROM {source.sql}), -1)"
        )

    def fetch(
        self, sql: str, names: list[str], into: Mapping[str, ColumnBuffer], part: int
    ) -> dict[str, list[Texts]]:
        """Run one statement: integer columns go into ``into``, texts are returned by batch."""
        texts: dict[str, list[Texts]] = {name: [] for name in names if name not in into}
        left = min((len(c.parts[part].values) for c in into.values()), default=sys.maxsize)
        room = max(MAX_TEXT_RATIO * self.path.stat().st_size, BATCH_ROWS)
        with self._report_errors():
            for batch in self._batches(sql):
                left -= batch.length
                if left < 0:  # a damaged file: two tables share a page
                    raise TypeError("a table has more rows than row numbers")
                for i, name in enumerate(names):
                    if name in into:
                        into[name].add(part, _integers(batch.child(i)))
                    else:
                        texts[name].append(_text(batch.child(i)))
                        room -= len(texts[name][-1].data)
                if room < 0:
                    raise TypeError("more text than there is room for in the file")
        return texts

    def _batches(self, sql: str) -> Iterator[Any]:
        """Yield Arrow batches; a batch is valid until the next one is requested."""
        with self._statement() as statement:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
            statement.set_sql_query(sql)
            yield from batches(statement.execute_query()[0])

    @contextmanager
    def _statement(self) -> Iterator[Any]:
        with (
            self._connection() as connection,
            adbc_driver_manager.AdbcStatement(connection) as statement,
        ):
            yield statement

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        with (
            adbc_driver_manager.AdbcDatabase(
                driver=DRIVER,
                uri=self.path.absolute().as_uri() + f"?mode=ro&immutable={self.immutable:d}",
            ) as database,
            adbc_driver_manager.AdbcConnection(database) as connection,
        ):
            yield connection

    @contextmanager
    def _without_writers(self) -> Iterator[None]:
        """Keep the file as it is within the block: a transaction that has read holds SQLite's lock."""
        if self.immutable:
            yield
            return
        with self._connection() as connection:
            connection.set_autocommit(False)
            with adbc_driver_manager.AdbcStatement(connection) as statement:
                statement.set_sql_query("SELECT count(*) FROM sqlite_master")
                for _ in batches(statement.execute_query()[0]):
                    pass
            yield

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        try:
            yield
        except (adbc_driver_manager.Error, RuntimeError, TypeError) as error:
            text = "".join(c if c.isprintable() else " " for c in str(error)[:MAX_REASON])
            reason = " ".join(text.split()).partition(" query: SELECT ")[0]
            message = f"{self.path.name}: damaged ({reason}); export or copy it again"
            raise NotAReport(message) from error


class _PageResult:
    """The columns of a query, which are read from spans of pages."""

    def __init__(self, query: Query, room: Sequence[int]) -> None:
        self.query, self.failed = query, False
        self.ints = {n: ColumnBuffer(room) for n, v in query.values.items() if not v.is_text}
        self.texts: dict[str, list[Texts]] = {
            name: [Texts.of([])] * len(room) for name in query.texts
        }

    def add(self, part: int, columns: Sequence[Ints | Texts] | Unreadable) -> None:
        """Add the columns of a span."""
        if isinstance(columns, Unreadable):
            LOG.debug("%s: through SQLite, as its pages have %s", self.query.table, columns)
            self.failed = True
            return
        for name, column in zip(self.query.values, columns, strict=True):
            if isinstance(column, Texts):
                self.texts[name][part] = column
            else:
                self.ints[name].add(part, column)

    def columns(self) -> Columns:
        ints = {name: buffer.column() for name, buffer in self.ints.items()}
        return {
            name: ints[name] if name in ints else Texts.concat([Texts.of([]), *self.texts[name]])
            for name in self.query.values
        }


class _RunningQuery:
    """A query that runs in as many parts as pay."""

    def __init__(self, database: Database, query: Query, rows: tuple[int, int]) -> None:
        self.query = query
        names = list(query.columns)
        first, last = rows[0], max(rows[0], rows[1] + 1)
        source = database._source(query.table)  # noqa: SLF001 - of the same module
        count = min(database.threads, 1 + (last - first) // PART_ROWS) if source.has_rowid else 1
        edges = [first + (last - first) * i // count for i in range(count + 1)]
        max_rows = database.path.stat().st_size // MIN_ROW_BYTES
        room = [min(b - a, max_rows) for a, b in pairwise(edges)]
        # The first and last part have no limit: rows outside of the bounds raise an error.
        ends = edges if query.rows else [None, *edges[1:-1], None]
        self.ints = {name: ColumnBuffer(room) for name in names if name not in query.texts}
        self.parts: list[Future[dict[str, list[Texts]]]] = [
            database.pool.submit(
                database.fetch, query.sql(source.sql, a, b), names, self.ints, part
            )
            for part, (a, b) in enumerate(pairwise(ends))
        ]

    def columns(self) -> Columns:
        values = [part.result() for part in self.parts]
        texts = {
            name: Texts.concat([Texts.of([]), *(t for part in values for t in part[name])])
            for name in self.query.texts
        }
        ints = {name: buffer.column() for name, buffer in self.ints.items()}
        return {name: texts[name] if name in texts else ints[name] for name in self.query.columns}


def texts_of_numbers(sql: str, names: Sequence[str], numbers: NDArray[np.float64]) -> Texts:
    """Return what an SQL expression of some columns makes of numbers in the first of them.

    No file is read: columns of other files become the texts that SQLite makes of its own.
    """
    if not len(numbers):
        return Texts.of([])
    columns = ", ".join(f"{'NULL' if n else '?'} AS {quoted(name)}" for n, name in enumerate(names))
    column = nanoarrow.c_array(numbers)
    struct = nanoarrow.struct({"number": nanoarrow.float64()})
    rows = nanoarrow.c_array_from_buffers(struct, len(numbers), [None], children=[column])
    schema, array = rows.__arrow_c_array__()
    with (
        adbc_driver_manager.AdbcDatabase(driver=DRIVER, uri=":memory:") as database,
        adbc_driver_manager.AdbcConnection(database) as connection,
        adbc_driver_manager.AdbcStatement(connection) as statement,
    ):
        statement.set_sql_query(f"SELECT {sql} FROM (SELECT {columns})")
        statement.bind(array, schema)
        return Texts.concat([_text(b.child(0)) for b in batches(statement.execute_query()[0])])


def ints_of(columns: Columns, name: str) -> Ints:
    column = columns[name]
    assert isinstance(column, np.ndarray)
    return column


def texts_of(columns: Columns, name: str) -> Texts:
    column = columns[name]
    assert isinstance(column, Texts)
    return column


def take_rows(columns: Columns, rows: Ints) -> Columns:
    """Return some rows; a column of one value stays a broadcast, which takes no memory."""
    return {name: _take(column, rows) for name, column in columns.items()}


def _take(column: Ints | Texts, rows: Ints) -> Ints | Texts:
    if isinstance(column, Texts):
        return column if len(rows) == len(column) else column.take(rows)
    if column.strides == (0,):
        return np.broadcast_to(np.int64(column[0] if len(column) else 0), (len(rows),))
    return column if len(rows) == len(column) else column[rows]


def _integers(child: Any) -> Ints:
    """Return the values of a column; they share memory with the batch."""
    if child.storage_type != "int64":
        raise TypeError(f"a {child.storage_type} where an integer belongs")
    if child.null_count:
        raise TypeError("nothing where an integer belongs")
    values: Ints = np.asarray(child.buffer(1))[child.offset : child.offset + child.length]
    return values


def _reals(child: Any) -> NDArray[np.float64]:
    """Return a copy of a column's numbers; a column without rows may have any type."""
    if child.length and (child.storage_type != "double" or child.null_count):
        raise TypeError(f"a {child.storage_type} where a number belongs")
    values = np.asarray(child.buffer(1))[child.offset : child.offset + child.length]
    return values.astype(np.float64)


def _text(child: Any) -> Texts:
    """Return a copy of a column's texts."""
    if child.storage_type != "string":
        raise TypeError(f"a {child.storage_type} where a text belongs")
    offsets = np.asarray(child.buffer(1))[child.offset : child.offset + child.length + 1]
    sizes = np.diff(offsets)
    if sizes.min(initial=0) < 0:
        raise TypeError("texts of over 2 GiB in a row")
    if sizes.max(initial=0) > MAX_TEXT_BYTES:
        raise TypeError(f"a text of {sizes.max()} bytes, the limit is {MAX_TEXT_BYTES}")
    data = np.frombuffer(child.buffer(2), np.uint8)[offsets[0] : offsets[-1]]
    return Texts(data.copy(), offsets.astype(np.int64) - offsets[0])
