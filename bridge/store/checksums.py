"""Checksums of the rows of a run: made when they are written, compared when they are read.

A damaged file often still is a database, whose figures are wrong. Each column of the large tables
has a sum, which any other value changes and which costs no more than to read the column once;
a CRC costs seven times as much. All small rows of a run have one CRC.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sqlite_utils

from bridge.importers.errors import NotAReport
from bridge.importers.query import Query
from bridge.importers.sqlite_columns import Columns, Database
from bridge.importers.texts import Texts
from bridge.join.arrays import NONE
from bridge.store.bulk import Column
from bridge.store.columns import NO_NUMBER
from bridge.store.tables import SUMMARIES, damaged, open_store, stored_columns

Sums = dict[str, int]
DAMAGE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError)


@contextmanager
def refusing_damage(path: Path, run: int) -> Iterator[None]:
    """Turn the errors of code that reads a run, and finds what no version has stored, into a StoreError."""
    try:
        yield
    except NotAReport as error:  # of the reader of large tables
        raise damaged(path, run, str(error)) from error
    except DAMAGE as error:
        raise damaged(path, run, f"{type(error).__name__}: {error}") from error


# -- Columns of the large tables


class ColumnSum:
    """The sum of a column that comes in blocks."""

    def __init__(self) -> None:
        self._sum = np.int64(0)  # modulo 2**64
        self._crc, self._end = 0, 0  # of texts: of the bytes so far, and their number

    def add(self, column: Column) -> None:
        """Add the next block."""
        if isinstance(column, Texts):
            first, last = column.offsets[0], column.offsets[-1]
            self._crc = zlib.crc32(column.data[first:last].data, self._crc)
            values = column.offsets[1:] - first + self._end
            self._end += int(last - first)
        elif column.dtype == np.int64:
            values = column
        else:
            values = np.where(np.isnan(column), NONE, column).view(np.int64)
        with np.errstate(over="ignore"):
            self._sum += values.sum()

    @property
    def value(self) -> int:
        return self._crc + int(self._sum)


class TableSums:
    """The sums of the columns of a table that comes in blocks; columns that are left out have missing values alone."""

    def __init__(self, stored: Mapping[str, type]) -> None:
        self.stored, self.rows = stored, 0
        self.columns: dict[str, ColumnSum] = {}

    def add(self, columns: Mapping[str, Column], rows: int) -> None:
        """Add the next block."""
        self.rows += rows
        for name in self.stored.keys() & columns.keys():
            self.columns.setdefault(name, ColumnSum()).add(columns[name])

    @property
    def values(self) -> Sums:
        """The sum of each column."""
        missing = {
            name: 0 if kind is str else self.rows * NONE for name, kind in self.stored.items()
        }
        return missing | {name: of.value for name, of in self.columns.items()}


def _sum(column: Column) -> int:
    result = ColumnSum()
    result.add(column)
    return result.value


def check_columns(
    path: Path, run: int, table: str, columns: Columns, expected: tuple[int, Sums]
) -> None:
    """Raise StoreError unless the columns that were read have the rows and the sums that were stored.

    ``expected`` is the number of rows, and the sums by column, none for runs of older versions.
    """
    rows, sums = expected
    for name, column in columns.items():
        if len(column) != rows:
            raise damaged(path, run, f"{len(column)} of {rows} rows of {table} are there")
        if name in sums and _sum(column) != sums[name]:
            raise damaged(
                path, run, f"the column {name} of {table} has other values than were stored"
            )


# -- The small rows of a run

# The columns of version 13: a version that adds some leaves them out, and one that renames values
# makes the checksums anew. The name and the label of a run may change.
RUN = (
    "id created identity source activities gpu_ns attributed_ns ops version rules ncu quality tables"
    " totals worth summary"
)
REPORT = (
    "report source product schema span_start span_end warnings epoch_ns metadata beside aggregates"
    " session_ns"
)
EXTENT = "table first last checksums"
BLOCK = 10_000  # rows that are read at a time


def small_rows(database: sqlite_utils.Database, run: int) -> int:
    """Return the CRC-32 of the rows of a run in `runs`, `reports`, `extents` and the summaries."""
    queries = [
        f"SELECT {_listed(RUN)} FROM runs WHERE id = ?",
        f"SELECT {_listed(REPORT)} FROM reports WHERE run = ? ORDER BY report",
        f"SELECT {_listed(EXTENT)} FROM extents WHERE run = ? ORDER BY 1",
        *(f"SELECT * FROM {table} WHERE run = ? ORDER BY rowid" for table in SUMMARIES.values()),
    ]
    crc = 0
    for sql in queries:
        rows, between = database.execute(sql, [run]), ""
        crc = zlib.crc32(b"[", crc)  # the text of a list of all rows, some at a time
        while some := rows.fetchmany(BLOCK):
            text = between + repr(some)[1:-1]
            crc, between = zlib.crc32(text.encode(errors="surrogatepass"), crc), ", "
        crc = zlib.crc32(b"]", crc)
    return crc


def _listed(names: str) -> str:
    return ", ".join(f'"{name}"' for name in names.split())


def seal(database: sqlite_utils.Database, run: int) -> None:
    """Store the checksum of the small rows of a run."""
    database.execute("UPDATE runs SET checksum = ? WHERE id = ?", [small_rows(database, run), run])


def check_small_rows(database: sqlite_utils.Database, path: Path, run: int) -> None:
    """Raise StoreError unless the small rows of a run are those that were stored."""
    [(checksum,)] = database.execute("SELECT checksum FROM runs WHERE id = ?", [run]).fetchall()
    if checksum is not None and checksum != small_rows(database, run):
        raise damaged(
            path, run, "its description or its summaries have other values than were stored"
        )


# -- All of a run


def check_run(path: Path, run: int) -> bool:
    """Compare all stored rows of a run with its checksums; return whether it has any.

    Raises StoreError for the first difference.
    """
    with open_store(path) as database, refusing_damage(path, run):
        check_small_rows(database, path, run)
        [(is_sealed,)] = database.execute(
            "SELECT checksum IS NOT NULL FROM runs WHERE id = ?", [run]
        ).fetchall()
        extents = list(database.table("extents").rows_where("run = ?", [run]))
    with Database(path, immutable=False) as large, refusing_damage(path, run):
        for extent in extents:
            _check_table(large, path, run, extent)
    return bool(is_sealed)


def _check_table(large: Database, path: Path, run: int, extent: Mapping[str, Any]) -> None:
    table, first, last = str(extent["table"]), int(extent["first"]), int(extent["last"])
    stored, sums = stored_columns(table), json.loads(extent["checksums"] or "{}")
    texts = frozenset(name for name, kind in stored.items() if kind is str)
    reals = [name for name, kind in stored.items() if kind is float]
    others = {name: "''" if name in texts else NONE for name in stored if name not in reals}
    columns = {name: f'coalesce("{name}", {missing})' for name, missing in others.items()}
    read = large.read({table: Query(table, columns, texts, rows=(first, last))})[table]
    for name in reals:
        numbers = large.reals(
            f'SELECT coalesce("{name}", {NO_NUMBER}) FROM "{table}"'
            f" WHERE rowid BETWEEN {first} AND {last} ORDER BY rowid"
        )
        read[name] = np.where(np.isinf(numbers), np.nan, numbers)
    check_columns(path, run, table=table, columns=read, expected=(last - first + 1, sums))
