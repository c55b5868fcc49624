"""Columns out of an SQLite file as NumPy arrays and Texts, without a Python object per row.

The file is opened read-only and immutable, so nothing is ever written beside it; large tables are
read in rowid ranges by several threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import adbc_driver_manager
import adbc_driver_sqlite
import nanoarrow
import numpy as np
from nanoarrow.c_array import allocate_c_array
from numpy.typing import NDArray

from importers.errors import NotAReport
from importers.texts import Ints, Texts

# -- Batches of an Arrow stream, each made outside the GIL, so that several threads read at once


_Asked = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Said = ctypes.CFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)


class _Stream(ctypes.Structure):
    _fields_ = (
        ("get_schema", _Asked),
        ("get_next", _Asked),
        ("get_last_error", _Said),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


def batches(stream: Any) -> Iterator[Any]:
    """Yield the batches of what has ``__arrow_c_stream__``, as views of nanoarrow; RuntimeError where it fails."""
    with nanoarrow.c_array_stream(stream) as taken:
        schema, address = taken.get_schema(), taken._addr()  # noqa: SLF001 - nanoarrow documents it for this
        callbacks = _Stream.from_address(address)
        while True:
            batch = allocate_c_array(schema)
            if callbacks.get_next(address, batch._addr()):  # noqa: SLF001 (Arrow's C interface takes an address)
                raise RuntimeError(
                    (callbacks.get_last_error(address) or b"").decode(errors="replace")
                )
            if not batch.is_valid():
                return
            yield batch.view()


# -- Integer columns put together from batches that several threads bring, each value copied once


class Gathered:
    """One integer column; part i takes at most ``room[i]`` rows."""

    def __init__(self, room: Sequence[int]) -> None:
        self.first = np.concatenate(([0], np.cumsum(room)))
        self.values = np.empty(int(self.first[-1]), np.int64)  # untouched, so not yet real memory
        self.parts = [_Part(self.values[a:b]) for a, b in pairwise(self.first)]

    def add(self, part: int, batch: Ints) -> None:
        """Append a batch to a part; only one thread may fill a part."""
        self.parts[part].add(batch)

    def column(self) -> Ints:
        """Return the whole column, its parts in order."""
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
        if self.constant and not _all_are(batch, self.value):
            self.write_out()
        if not self.constant:
            self.values[self.rows : self.rows + len(batch)] = batch
        self.rows += len(batch)

    def write_out(self) -> None:
        """Write the rows that were only counted so far."""
        if self.constant:
            self.values[: self.rows] = self.value
            self.constant = False


def _all_are(batch: Ints, value: int) -> bool:
    return bool(batch[0] == value and batch[-1] == value and (batch == value).all())


# -- Columns out of an SQLite file as NumPy arrays and Texts, without a Python object per row


PART_ROWS = 150_000  # fewer rows than this are not worth another connection
BATCH_ROWS = 16_384  # buffers of a size that is used again, not mapped anew
LEAST_ROW_BYTES = 4  # no row of a table takes less of the file
LONGEST_TEXT = (
    1 << 26
)  # bytes: no profiler writes longer ones, and each would be held several times
LONGEST_REASON = 300  # characters: SQLite quotes the text of a schema that it cannot read
MOST_TEXTS = 8  # times the size of the file: UTF-16 and numbers grow when they are read

# How many read one file at most: less where several files are read side by side.
THREADS: ContextVar[int] = ContextVar("THREADS", default=4)

Columns = dict[str, Ints | Texts]


@dataclass(frozen=True)
class Query:
    """What to read of one table: our column names and the SQL expressions that give them."""

    table: str
    columns: Mapping[str, str]
    texts: frozenset[str] = frozenset()
    rows: tuple[int, int] | None = None  # first and last rowid; all without

    def sql(self, first: int | None, last: int | None) -> str:
        """Return the statement for the rowids first <= rowid < last; without one of them, all that side."""
        wanted = ", ".join(f'{sql} AS "{ours}"' for ours, sql in self.columns.items())
        ends = ((">=", first), ("<", last))
        within = " AND ".join(f"rowid {than} {end}" for than, end in ends if end is not None)
        return f'SELECT {wanted} FROM "{self.table}"' + (f" WHERE {within}" if within else "")


class Database:
    """A read-only SQLite file; use as a context manager.

    ``immutable`` promises that nobody writes to it meanwhile: then not even a lock is taken.
    """

    def __init__(self, path: Path, *, immutable: bool = True, threads: int | None = None) -> None:
        self.path, self.immutable = path, immutable
        self.threads = threads or min(THREADS.get(), os.cpu_count() or 1)
        self.pool = ThreadPoolExecutor(self.threads)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def tables(self) -> dict[str, dict[str, bool]]:
        """Return the columns of every table, and of each whether it is declared never to be NULL."""
        sql = (
            'SELECT m.name, c.name, c."notnull" FROM sqlite_master m, pragma_table_info(m.name) c'
            " WHERE m.type = 'table' AND m.rootpage > 0"  # no view, no virtual table: those run what they like
        )
        tables: dict[str, dict[str, bool]] = {}
        with self._as_reports():
            for batch in self._batches(sql):
                names, columns = (_text(batch.child(i)).decode() for i in range(2))
                filled = _integers(batch.child(2)).tolist()
                for table, column, always in zip(names, columns, filled, strict=True):
                    tables.setdefault(table, {})[column] = bool(always)
        return tables

    def read(self, queries: Mapping[str, Query]) -> dict[str, Columns]:
        """Run all queries, side by side where it pays; rows come in rowid order."""
        bounds = self.bounds(query.table for query in queries.values() if not query.rows)
        reading = {
            ours: _Reading(self, query, query.rows or bounds[query.table])
            for ours, query in queries.items()
        }
        return {ours: of.columns() for ours, of in reading.items()}

    def reals(self, sql: str) -> NDArray[np.float64]:
        """Return what a statement gives: one column of real numbers, none of them NULL."""
        with self._as_reports():
            parts = [_reals(batch.child(0)) for batch in self._batches(sql)]
        return np.concatenate([np.empty(0), *parts])

    def bounds(self, tables: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Return each table's first and last rowid, as its index has them: in a damaged file they may be any."""
        sql = " UNION ALL ".join(
            # Each alone: SQLite looks one of them up, and scans the table for both together.
            f"SELECT '{table}', coalesce((SELECT min(rowid) FROM \"{table}\"), 0),"
            f' coalesce((SELECT max(rowid) FROM "{table}"), -1)'
            for table in tables
        )
        found: dict[str, tuple[int, int]] = {}
        with self._as_reports():
            for batch in self._batches(sql) if sql else ():
                first, last = (_integers(batch.child(i)).tolist() for i in (1, 2))
                found |= dict(
                    zip(_text(batch.child(0)).decode(), zip(first, last, strict=True), strict=True)
                )
        return found

    def fetch(
        self, sql: str, names: list[str], into: Mapping[str, Gathered], part: int
    ) -> dict[str, list[Texts]]:
        """Run one statement: integer columns go to ``into``, texts are returned by batch."""
        texts: dict[str, list[Texts]] = {name: [] for name in names if name not in into}
        left = min((len(c.parts[part].values) for c in into.values()), default=sys.maxsize)
        room = max(MOST_TEXTS * self.path.stat().st_size, BATCH_ROWS)
        with self._as_reports():
            for batch in self._batches(sql):
                left -= batch.length
                if left < 0:  # a page that two tables claim
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
        """Yield Arrow batches; one is valid only until the next is asked for."""
        with self._statement() as statement:
            statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
            statement.set_sql_query(sql)
            yield from batches(statement.execute_query()[0])

    @contextmanager
    def _statement(self) -> Iterator[Any]:
        with (
            adbc_driver_manager.AdbcDatabase(
                driver=adbc_driver_sqlite._driver_path(),  # noqa: SLF001 - as its dbapi does
                uri=self.path.absolute().as_uri() + f"?mode=ro&immutable={self.immutable:d}",
            ) as database,
            adbc_driver_manager.AdbcConnection(database) as connection,
            adbc_driver_manager.AdbcStatement(connection) as statement,
        ):
            yield statement

    @contextmanager
    def _as_reports(self) -> Iterator[None]:
        try:
            yield
        except (adbc_driver_manager.Error, RuntimeError, TypeError) as error:  # Arrow's: Runtime
            said = "".join(c if c.isprintable() else " " for c in str(error)[:LONGEST_REASON])
            reason = " ".join(said.split()).partition(" query: SELECT ")[0]
            message = f"{self.path.name}: damaged ({reason}); export or copy it again"
            raise NotAReport(message) from error


class _Reading:
    """One query under way, in as many parts as pay."""

    def __init__(self, database: Database, query: Query, rows: tuple[int, int]) -> None:
        self.query = query
        names = list(query.columns)
        first, last = rows[0], max(rows[0], rows[1] + 1)
        count = min(database.threads, 1 + (last - first) // PART_ROWS)
        edges = [first + (last - first) * i // count for i in range(count + 1)]
        most = database.path.stat().st_size // LEAST_ROW_BYTES
        room = [min(b - a, most) for a, b in pairwise(edges)]
        # All rows but of a part of a table: nothing that lies outside is passed over in silence.
        ends = edges if query.rows else [None, *edges[1:-1], None]
        self.ints = {name: Gathered(room) for name in names if name not in query.texts}
        self.parts: list[Future[dict[str, list[Texts]]]] = [
            database.pool.submit(database.fetch, query.sql(a, b), names, self.ints, part)
            for part, (a, b) in enumerate(pairwise(ends))
        ]

    def columns(self) -> Columns:
        found = [part.result() for part in self.parts]
        texts = {
            name: Texts.concat([Texts.of([]), *(t for part in found for t in part[name])])
            for name in self.query.texts
        }
        ints = {name: gathered.column() for name, gathered in self.ints.items()}
        return {name: texts[name] if name in texts else ints[name] for name in self.query.columns}


def ints_of(columns: Columns, name: str) -> Ints:
    """Return a column that holds integers."""
    column = columns[name]
    assert isinstance(column, np.ndarray)
    return column


def texts_of(columns: Columns, name: str) -> Texts:
    """Return a column that holds texts."""
    column = columns[name]
    assert isinstance(column, Texts)
    return column


def _integers(child: Any) -> Ints:
    """Return a column's values, sharing memory with the batch."""
    if child.storage_type != "int64":
        raise TypeError(f"a {child.storage_type} where an integer belongs")
    if child.null_count:
        raise TypeError("nothing where an integer belongs")
    values: Ints = np.asarray(child.buffer(1))[child.offset : child.offset + child.length]
    return values


def _reals(child: Any) -> NDArray[np.float64]:
    """Copy a column's numbers out of the batch; one without a row may be of any type."""
    if child.length and (child.storage_type != "double" or child.null_count):
        raise TypeError(f"a {child.storage_type} where a number belongs")
    values = np.asarray(child.buffer(1))[child.offset : child.offset + child.length]
    return values.astype(np.float64)


def _text(child: Any) -> Texts:
    """Copy a column's texts out of the batch."""
    if child.storage_type != "string":
        raise TypeError(f"a {child.storage_type} where a text belongs")
    offsets = np.asarray(child.buffer(1))[child.offset : child.offset + child.length + 1]
    sizes = np.diff(offsets)
    if sizes.min(initial=0) < 0:
        raise TypeError("texts of over 2 GiB in a row")
    if sizes.max(initial=0) > LONGEST_TEXT:
        raise TypeError(f"a text of {sizes.max()} bytes, the limit is {LONGEST_TEXT}")
    data = np.frombuffer(child.buffer(2), np.uint8)[offsets[0] : offsets[-1]]
    return Texts(data.copy(), offsets.astype(np.int64) - offsets[0])
