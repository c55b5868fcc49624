"""Writes a report into the store as a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import adbc_driver_manager
import adbc_driver_sqlite
import nanoarrow
import numpy as np
import pandas as pd
from sqlite_utils import Database

from bridge.analyze.totals import Totals
from bridge.join.arrays import NONE
from bridge.output import OutputError
from bridge.package import VERSION
from bridge.report import Report
from bridge.store.checksums import Sums, column_sums, seal
from bridge.store.columns import Column, RunColumns
from bridge.store.runs import delete_orphans, find_run
from bridge.store.tables import (
    MEASURED,
    PATIENCE_S,
    SUMMARIES,
    exclusive_writer,
    open_store,
    stored_columns,
)
from importers import frames
from importers.capture import Facts
from importers.texts import Texts

# -- Bulk ingest through the ADBC driver: no Python object per row


def ingest(path: Path, tables: Iterable[tuple[str, dict[str, Column]]]) -> dict[str, int]:
    """Append columns to tables in one transaction; return the number of rows per table.

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
    """Return a column for ADBC; missing values (-1, empty bytes, NaN) become NULL."""
    if not isinstance(column, Texts):
        missing = column == NONE if column.dtype == np.int64 else np.isnan(column)
        rows = np.packbits(~missing, bitorder="little")
        values = np.ascontiguousarray(column)
        return nanoarrow.c_array_from_buffers(kind, len(column), [rows, values])
    rows = np.packbits(column.sizes > 0, bitorder="little")
    offsets = column.offsets.astype(np.int32)
    return nanoarrow.c_array_from_buffers(kind, len(column), [rows, offsets, column.data])


# -- Writing a run


Made = dict[str, Column]

# Tables that need no computation are written while the others are made; names are complete last.
ORDER = ("launches", *(kind for kind in frames.FRAMES if kind != "launches"), *MEASURED, "names")


def save(report: Report, path: Path, identity: str, rules: str = "", worth: str = "") -> int:
    """Write a run and return its number, or the number of an equal run that another process stored meanwhile.

    ``worth`` is the line on the quality of the capture, which is stored beside the report's
    summary. Raises OutputError if the store cannot be written; the store does not change then.
    """
    return save_once(path, identity, rules, lambda: _saved(report, path, identity, rules, worth))


def save_once(path: Path, identity: str, rules: str, write: Callable[[], int]) -> int:
    """Write a run unless there is an equal one, and return its number; the store does not change if that fails."""
    was_there = path.exists()
    with exclusive_writer(path, create=True):
        is_new = not was_there and not path.stat().st_size
        run = None if not path.stat().st_size else find_run(path, identity, rules)
        if run:
            return run.id
        try:
            return write()
        except BaseException:
            if is_new:
                path.unlink(missing_ok=True)
                journal = path.with_name(f"{path.name}-journal")  # stays when the disk is full
                journal.unlink(missing_ok=True)
            else:
                with open_store(path) as database:
                    delete_orphans(database)
            raise


def _saved(report: Report, path: Path, identity: str, rules: str, worth: str) -> int:
    with open_store(path) as database:
        delete_orphans(database)
        run = next_run(database)
        last = {table: _last(database, table) for table in ORDER}
    columns, sums = RunColumns(report, run, last), dict[str, Sums]()

    def made(table: str) -> Made:
        result = columns.table(table)
        sums[table] = column_sums(result, stored_columns(table), len(result["run"]))
        return result

    worker = ThreadPoolExecutor(1)  # makes tables, then the summaries, while SQLite writes
    try:
        tables = [(table, worker.submit(made, table)) for table in ORDER]
        small = worker.submit(summaries, report.by, run)
        rows = ingest(path, _made(tables))
        with open_store(path) as database:
            for table, values in small.result().items():
                database.table(table).insert_all(values)
            database.table("reports").insert_all(_reports(report, run))
            database.table("extents").insert_all(
                {
                    "run": run, "table": t, "first": last[t] + 1, "last": last[t] + rows[t],
                    "checksums": json.dumps(sums[t]),
                }
                for t in ORDER
            )  # fmt: skip
            row = _run(report, run, identity, rules)
            texts = {"worth": worth, "summary": json.dumps(_summary(report))}
            database.table("runs").insert(row | texts)
            seal(database, run)
    finally:
        worker.shutdown(cancel_futures=True)
    return run


def _made(tables: list[tuple[str, Future[Made]]]) -> Iterator[tuple[str, Made]]:
    """Yield each table when it is made, and free it."""
    while tables:
        table, made = tables.pop(0)
        yield table, made.result()


def summaries(by: Callable[[str], pd.DataFrame], run: int) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the summary tables; ``by`` makes each table."""
    result = {}
    for view, table in SUMMARIES.items():
        rows = by(view)
        rows.insert(0, "run", run)
        columns = [rows[c].tolist() for c in rows.columns]
        result[table] = [
            dict(zip(rows.columns, row, strict=True)) for row in zip(*columns, strict=True)
        ]
    return result


def _summary(report: Report) -> dict[str, Any]:
    """Return the summary of a report, and what commands print with its tables."""
    cycles = asdict(report.cycles) if report.cycles else None
    notes = {"warnings": report.warnings, "cycles": cycles}
    return {**report.summary.as_dict(), "notes": notes}


def _reports(report: Report, run: int) -> list[dict[str, Any]]:
    capture = report.capture
    return [
        {
            "run": run, "report": n, "source": source, **facts_row(facts),
        }
        for n, (source, facts) in enumerate(zip(capture.source, capture.facts, strict=True))
    ]  # fmt: skip


def facts_row(facts: Facts) -> dict[str, Any]:
    """Return the facts of a report as columns of its row."""
    return {
        "product": facts.product, "schema": facts.schema,
        "span_start": facts.span[0], "span_end": facts.span[1],
        "warnings": json.dumps(facts.warnings, ensure_ascii=False),
        "epoch_ns": facts.epoch_ns,
        "metadata": json.dumps(facts.metadata, ensure_ascii=False, default=repr),
        "beside": json.dumps(facts.beside, ensure_ascii=False), "session_ns": facts.session_ns,
    }  # fmt: skip


def _run(report: Report, run: int, identity: str, rules: str) -> dict[str, Any]:
    return {
        **run_row(run, identity, rules, report.capture.source, report.totals, report.op_count),
        "ncu": json.dumps(report.capture.metrics.source, ensure_ascii=False),
        "quality": report.quality.score,
    }  # fmt: skip


def next_run(database: Database) -> int:
    """Return the number of the next run."""
    return int(database.execute("SELECT coalesce(max(id), 0) + 1 FROM runs").fetchone()[0])


def run_row(
    run: int, identity: str, rules: str, source: Sequence[str], totals: Totals, ops: int
) -> dict[str, Any]:
    """Return the columns of the row of a run."""
    return {
        "id": run, "created": datetime.now(UTC).isoformat(timespec="seconds"), "identity": identity,
        "source": json.dumps(source, ensure_ascii=False), "version": VERSION,
        "totals": json.dumps(totals), "activities": totals["activities"], "gpu_ns": totals["gpu_ns"],
        "attributed_ns": totals["attributed_ns"], "ops": ops, "rules": rules,
    }  # fmt: skip


def _last(database: Database, table: str) -> int:
    return int(database.execute(f"SELECT coalesce(max(rowid), 0) FROM [{table}]").fetchone()[0])
