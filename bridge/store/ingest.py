"""Columns go into SQLite in bulk, through the ADBC driver: nothing passes through Python row by row."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import adbc_driver_manager
import adbc_driver_sqlite
import nanoarrow
import numpy as np

from bridge.join.order import NONE
from bridge.output import OutputError
from bridge.store.columns import Column
from bridge.store.tables import PATIENCE_S
from importers.texts import Texts


def ingest(path: Path, tables: Iterable[tuple[str, dict[str, Column]]]) -> dict[str, int]:
    """Append columns to tables in one transaction; return how many rows each got.

    Raises OutputError if the file cannot be written.
    """
    rows: dict[str, int] = {}
    try:
        with (
            adbc_driver_manager.AdbcDatabase(
                driver=adbc_driver_sqlite._driver_path(),  # noqa: SLF001 - as its dbapi does
                uri=path.absolute().as_uri() + "?mode=rw",
            ) as database,
            adbc_driver_manager.AdbcConnection(database) as connection,
        ):
            _wait_for_readers(connection)
            connection.set_autocommit(False)
            for table, columns in tables:
                rows[table] = len(columns["run"])
                if rows[table]:
                    _append(connection, table, columns)
            connection.commit()
    except adbc_driver_manager.Error as error:
        reason = " ".join(str(error).split()).partition(" query was: ")[0].rpartition(": ")[2]
        raise OutputError(f"{path}: {reason}; nothing was stored") from error
    return rows


def _wait_for_readers(connection: adbc_driver_manager.AdbcConnection) -> None:
    with adbc_driver_manager.AdbcStatement(connection) as statement:
        statement.set_sql_query(f"PRAGMA busy_timeout = {PATIENCE_S * 1000}")
        statement.execute_update()


def _append(
    connection: adbc_driver_manager.AdbcConnection, table: str, columns: dict[str, Column]
) -> None:
    options = {"adbc.ingest.target_table": table, "adbc.ingest.mode": "adbc.ingest.mode.append"}
    with adbc_driver_manager.AdbcStatement(connection) as statement:
        statement.set_options(**options)
        statement.bind_stream(nanoarrow.c_array_stream(_arrow(columns)))
        statement.execute_update()


def _arrow(columns: dict[str, Column]) -> Any:
    kinds = {name: _kind(column) for name, column in columns.items()}
    children = [_child(kinds[name], column) for name, column in columns.items()]
    schema = nanoarrow.struct(kinds)
    return nanoarrow.c_array_from_buffers(schema, len(columns["run"]), [None], children=children)


def _kind(column: Column) -> Any:
    if isinstance(column, Texts):
        return nanoarrow.string()
    return nanoarrow.int64() if column.dtype == np.int64 else nanoarrow.float64()


def _child(kind: Any, column: Column) -> Any:
    """What is missing, -1, a text of no bytes or no number, is stored as NULL."""
    if not isinstance(column, Texts):
        missing = column == NONE if column.dtype == np.int64 else np.isnan(column)
        there = np.packbits(~missing, bitorder="little")
        values = np.ascontiguousarray(column)
        return nanoarrow.c_array_from_buffers(kind, len(column), [there, values])
    there = np.packbits(column.sizes > 0, bitorder="little")
    offsets = column.offsets.astype(np.int32)
    return nanoarrow.c_array_from_buffers(kind, len(column), [there, offsets, column.data])
