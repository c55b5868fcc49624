"""Columns out of an SQLite file as NumPy arrays and Texts, without a Python object per row.

The file is opened read-only and immutable, so nothing is ever written beside it; large tables are
read in rowid ranges by several threads (SQLite runs outside the GIL).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import adbc_driver_manager
import adbc_driver_sqlite
import nanoarrow
import numpy as np

from importers.errors import NotAReport
from importers.texts import Ints, Texts

PART_ROWS = 150_000  # fewer rows than this are not worth another connection
BATCH_ROWS = 65_536

Column = Ints | Texts
Columns = dict[str, Column]
Batches = dict[str, list[Column]]  # as they come: put together once, at the end


@dataclass(frozen=True)
class Query:
    """What to read of one table: our column names and the SQL expressions that give them."""

    table: str
    columns: Mapping[str, str]
    texts: frozenset[str] = frozenset()
    where: str = ""

    def sql(self, rows: tuple[int, int] | None = None) -> str:
        """Return the statement, for the rowids first <= rowid < last if given."""
        wanted = ", ".join(f'{sql} AS "{ours}"' for ours, sql in self.columns.items())
        limits = [f"({self.where})"] if self.where else []
        limits += [f"rowid >= {rows[0]} AND rowid < {rows[1]}"] if rows else []
        return f'SELECT {wanted} FROM "{self.table}"' + (
            f" WHERE {' AND '.join(limits)}" if limits else ""
        )

    def empty(self) -> Columns:
        """Return what reading no row gives."""
        return {c: Texts.of([]) if c in self.texts else _no_ints() for c in self.columns}


class Database:
    """A read-only SQLite file; use as a context manager."""

    def __init__(self, path: Path, *, threads: int | None = None) -> None:
        self.path = path
        self.threads = threads or min(4, os.cpu_count() or 1)
        self.pool = ThreadPoolExecutor(self.threads)

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *exc: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def tables(self) -> dict[str, set[str]]:
        """Return the columns of every table."""
        sql = (
            "SELECT m.name AS t, c.name AS c FROM sqlite_master m, pragma_table_info(m.name) c"
            " WHERE m.type = 'table'"
        )
        found = self._all(sql, frozenset(("t", "c")))
        names, columns = _texts(found, "t").decode(), _texts(found, "c").decode()
        tables: dict[str, set[str]] = {}
        for table, column in zip(names, columns, strict=True):
            tables.setdefault(table, set()).add(column)
        return tables

    def read(self, queries: Mapping[str, Query]) -> dict[str, Columns]:
        """Run all queries, side by side where it pays; rows come in rowid order."""
        parts = {
            ours: [self.pool.submit(self._read, sql, query.texts) for sql in self._parts(query)]
            for ours, query in queries.items()
        }
        return {ours: _together(queries[ours], futures) for ours, futures in parts.items()}

    def _parts(self, query: Query) -> Iterator[str]:
        bounds = f'SELECT coalesce(min(rowid), 0) AS a, coalesce(max(rowid), 0) AS b FROM "{query.table}"'
        found = self._all(bounds)
        first, last = int(_ints(found, "a")[0]), int(_ints(found, "b")[0]) + 1
        count = min(self.threads, 1 + (last - first) // PART_ROWS)
        edges = [first + (last - first) * i // count for i in range(count + 1)]
        for rows in zip(edges, edges[1:], strict=False):
            yield query.sql(rows if count > 1 else None)

    def _all(self, sql: str, texts: frozenset[str] = frozenset()) -> Columns:
        return {c: _concat(b, text=c in texts) for c, b in self._read(sql, texts).items()}

    def _read(self, sql: str, texts: frozenset[str]) -> Batches:
        try:
            with (
                adbc_driver_manager.AdbcDatabase(
                    driver=adbc_driver_sqlite._driver_path(),  # noqa: SLF001 - as its dbapi does
                    uri=self.path.resolve().as_uri() + "?mode=ro&immutable=1",
                ) as database,
                adbc_driver_manager.AdbcConnection(database) as connection,
                adbc_driver_manager.AdbcStatement(connection) as statement,
            ):
                statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
                statement.set_sql_query(sql)
                return _fetch(statement.execute_query()[0], texts)
        except (adbc_driver_manager.Error, RuntimeError, TypeError) as error:  # nanoarrow: Runtime
            raise NotAReport(f"{self.path.name}: damaged database: {_one_line(error)}") from error


def _fetch(stream: object, texts: frozenset[str]) -> Batches:
    with nanoarrow.c_array_stream(stream) as batches:
        schema = batches.get_schema()
        names = [schema.child(i).name for i in range(schema.n_children)]
        found: dict[str, list[Column]] = {name: [] for name in names}
        for batch in batches:
            view = batch.view()
            for i, name in enumerate(names):
                child = view.child(i)
                found[name].append(_text(child) if name in texts else _integers(child))
    return found


def _integers(child: nanoarrow.c_array_view) -> Ints:
    if child.storage_type != "int64":
        raise TypeError(f"a {child.storage_type} where an integer belongs")
    found = np.asarray(child.buffer(1))[child.offset : child.offset + child.length]
    return _constant(found[0], len(found)) if _one_value(found) else np.array(found)


def _text(child: nanoarrow.c_array_view) -> Texts:
    if child.storage_type != "string":
        raise TypeError(f"a {child.storage_type} where a text belongs")
    offsets = np.asarray(child.buffer(1))[child.offset : child.offset + child.length + 1]
    offsets = offsets.astype(np.int64) if len(offsets) else np.zeros(1, np.int64)
    data = np.frombuffer(child.buffer(2), np.uint8)[offsets[0] : offsets[-1]]
    return Texts(np.array(data), offsets - offsets[0])


def _together(query: Query, parts: list[Future[Batches]]) -> Columns:
    found = [part.result() for part in parts]
    together: Columns = {}
    for column in query.columns:
        batches = [b for part in found for b in part.pop(column)]
        together[column] = _concat(batches, text=column in query.texts)
    return together


def _concat(parts: list[Column], *, text: bool) -> Column:
    if text:
        return Texts.concat([p for p in parts if isinstance(p, Texts)]) if parts else Texts.of([])
    ints = [p for p in parts if isinstance(p, np.ndarray) and len(p)]
    if ints and all(p.strides == (0,) and p[0] == ints[0][0] for p in ints):
        return _constant(ints[0][0], sum(map(len, ints)))
    return np.concatenate([_no_ints(), *ints])


def _one_value(found: Ints) -> bool:
    return bool(len(found) and found[0] == found[-1] and (found == found[0]).all())


def _constant(value: np.int64, rows: int) -> Ints:
    """A column that holds one value throughout, as many do, takes no memory."""
    return np.broadcast_to(np.int64(value), (rows,))


def _ints(columns: Columns, name: str) -> Ints:
    column = columns[name]
    assert isinstance(column, np.ndarray)
    return column


def _texts(columns: Columns, name: str) -> Texts:
    column = columns[name]
    assert isinstance(column, Texts)
    return column


def _no_ints() -> Ints:
    return np.empty(0, np.int64)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
