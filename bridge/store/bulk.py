"""Append the rows of tables to the store, as columns that SQLite's ADBC driver inserts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import adbc_driver_manager
import nanoarrow
import numpy as np
from adbc_driver_manager import StatementOptions
from numpy.typing import NDArray

from bridge.importers.sqlite_columns import DRIVER, batches
from bridge.importers.texts import Texts
from bridge.join.arrays import NONE, Ints
from bridge.output import OutputError
from bridge.store.tables import PATIENCE_S

Floats = NDArray[np.float64]
Column = Ints | Floats | Texts


def append(path: Path, tables: Iterable[tuple[str, Mapping[str, Column]]]) -> dict[str, int]:
    """Append columns to tables of a store in one transaction; return the number of rows per table.

    A table may come in several blocks. Missing values (-1, NaN, empty texts) become NULL. Raises
    OutputError if the store cannot be written; nothing is appended then. The caller is the only
    writer of the store.
    """
    counts: Counter[str] = Counter()
    try:
        with (
            adbc_driver_manager.AdbcDatabase(
                driver=DRIVER, uri=f"{path.absolute().as_uri()}?mode=rw"
            ) as database,
            adbc_driver_manager.AdbcConnection(database) as connection,
        ):
            _execute(connection, f"PRAGMA busy_timeout = {1000 * PATIENCE_S}")
            with _transaction(connection):
                for table, columns in tables:
                    rows = len(columns["run"])
                    counts[table] += rows
                    if rows:
                        _append(connection, table, columns)
    except adbc_driver_manager.Error as error:
        raise OutputError(f"{path}: {_reason(error)}; nothing was stored") from error
    return counts


@contextmanager
def _transaction(connection: Any) -> Iterator[None]:
    """Commit what the block writes; if it fails, roll back and leave no journal."""
    connection.set_autocommit(False)
    try:
        yield
        connection.commit()
    except BaseException:
        with suppress(adbc_driver_manager.Error):  # SQLite rolls back by itself after some errors
            connection.rollback()
        raise


def _execute(connection: Any, sql: str) -> None:
    with adbc_driver_manager.AdbcStatement(connection) as statement:
        statement.set_sql_query(sql)
        for _ in batches(statement.execute_query()[0]):
            pass


def _append(connection: Any, table: str, columns: Mapping[str, Column]) -> None:
    arrays = {name: _array(column) for name, column in columns.items()}
    schema = nanoarrow.struct({name: _kind(column) for name, column in columns.items()})
    rows = nanoarrow.c_array_from_buffers(
        schema, len(columns["run"]), [None], children=list(arrays.values())
    )
    with adbc_driver_manager.AdbcStatement(connection) as statement:
        statement.set_options(
            **{
                StatementOptions.INGEST_TARGET_TABLE.value: table,
                StatementOptions.INGEST_MODE.value: "adbc.ingest.mode.append",
            }
        )
        statement.bind_stream(nanoarrow.c_array_stream(rows))
        statement.execute_update()


def _kind(column: Column) -> Any:
    if isinstance(column, Texts):  # SQLite takes texts that are no UTF-8, too
        return nanoarrow.large_string()
    return nanoarrow.int64() if column.dtype == np.int64 else nanoarrow.float64()


def _array(column: Column) -> Any:
    """Return a column as an Arrow array, in which missing values are null."""
    values: tuple[NDArray[Any], ...]
    if isinstance(column, Texts):
        is_there, values = column.sizes > 0, (column.offsets, column.data)
    else:
        is_there = column != NONE if column.dtype == np.int64 else ~np.isnan(column)
        values = (np.ascontiguousarray(column),)
    bits = None if is_there.all() else np.packbits(is_there, bitorder="little")
    return nanoarrow.c_array_from_buffers(_kind(column), len(column), [bits, *values])


def _reason(error: Exception) -> str:
    """Return what SQLite said, without what its driver says around it."""
    return str(error).partition("\n")[0].rpartition(": ")[2]
