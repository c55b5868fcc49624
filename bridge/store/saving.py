"""A joined report becomes a run of the store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
from bridge.report import Joined
from bridge.store.columns import Column, RunColumns
from bridge.store.runs import clean, find
from bridge.store.tables import MEASURED, PATIENCE_S, SUMMARIES, alone, opened
from importers import frames
from importers.report import Facts
from importers.texts import Texts

# -- Columns go into SQLite in bulk, through the ADBC driver: nothing passes through Python row by row


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


# -- A joined report becomes a run of the store


Made = dict[str, Column]

# What takes no work to make is written first, while the rest is made; names are complete at the end.
ORDER = ("launches", *(kind for kind in frames.FRAMES if kind != "launches"), *MEASURED, "names")


def save(joined: Joined, path: Path, identity: str, rules: str = "", worth: str = "") -> int:
    """Write a run and return its number; that of the run there is, if another process has stored the same meanwhile.

    ``worth`` is what is said of the capture's quality whenever the run is imported anew.
    Raises OutputError if the store cannot be written; then it is as it was.
    """
    return once(path, identity, rules, lambda: _saved(joined, path, identity, rules, worth))


def once(path: Path, identity: str, rules: str, write: Callable[[], int]) -> int:
    """Write a run unless the same is there, and return its number; a store that cannot be written is as it was."""
    was_there = path.exists()
    with alone(path, create=True):
        is_new = not was_there and not path.stat().st_size
        known = None if not path.stat().st_size else find(path, identity, rules)
        if known:
            return known.id
        try:
            return write()
        except BaseException:
            if is_new:
                path.unlink(missing_ok=True)
                journal = path.with_name(f"{path.name}-journal")  # stays when the disk is full
                journal.unlink(missing_ok=True)
            else:
                with opened(path) as database:
                    clean(database)
            raise


def _saved(joined: Joined, path: Path, identity: str, rules: str, worth: str) -> int:
    with opened(path) as database:
        clean(database)
        run = next_run(database)
        last = {table: _last(database, table) for table in ORDER}
    columns = RunColumns(joined, run, last)
    worker = ThreadPoolExecutor(1)  # makes tables, then the summaries, while SQLite writes
    try:
        tables = [(table, worker.submit(columns.table, table)) for table in ORDER]
        small = worker.submit(summaries, joined.by, run)
        rows = ingest(path, _made(tables))
        with opened(path) as database:
            for table, found in small.result().items():
                database.table(table).insert_all(found)
            database.table("reports").insert_all(_reports(joined, run))
            database.table("extents").insert_all(
                {"run": run, "table": t, "first": last[t] + 1, "last": last[t] + rows[t]}
                for t in ORDER
            )
            row = _run(joined, run, identity, rules)
            database.table("runs").insert({**row, "worth": worth})
    finally:
        worker.shutdown(cancel_futures=True)
    return run


def _made(tables: list[tuple[str, Future[Made]]]) -> Iterator[tuple[str, Made]]:
    """Yield each table as soon as it is made, and let go of it."""
    while tables:
        table, made = tables.pop(0)
        yield table, made.result()


def summaries(by: Callable[[str], pd.DataFrame], run: int) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of the tables for people who query the store; ``by`` gives each table."""
    found = {}
    for view, table in SUMMARIES.items():
        rows = by(view)
        rows.insert(0, "run", run)
        columns = [rows[c].tolist() for c in rows.columns]
        found[table] = [
            dict(zip(rows.columns, row, strict=True)) for row in zip(*columns, strict=True)
        ]
    return found


def _reports(joined: Joined, run: int) -> list[dict[str, Any]]:
    report = joined.report
    return [
        {
            "run": run, "report": n, "source": source, **facts_row(facts),
        }
        for n, (source, facts) in enumerate(zip(report.source, report.facts, strict=True))
    ]  # fmt: skip


def facts_row(facts: Facts) -> dict[str, Any]:
    """Return what is known of a report, as its row has it."""
    return {
        "product": facts.product, "schema": facts.schema,
        "span_start": facts.span[0], "span_end": facts.span[1],
        "warnings": json.dumps(facts.warnings, ensure_ascii=False),
        "epoch_ns": facts.epoch_ns,
        "metadata": json.dumps(facts.metadata, ensure_ascii=False, default=repr),
        "beside": json.dumps(facts.beside, ensure_ascii=False),
    }  # fmt: skip


def _run(joined: Joined, run: int, identity: str, rules: str) -> dict[str, Any]:
    return {
        **run_row(run, identity, rules, joined.report.source, joined.totals, joined.op_count),
        "ncu": json.dumps(joined.report.metrics.source, ensure_ascii=False),
        "quality": joined.quality.score,
    }  # fmt: skip


def next_run(database: Database) -> int:
    """Return the number that the next run gets."""
    return int(database.execute("SELECT coalesce(max(id), 0) + 1 FROM runs").fetchone()[0])


def run_row(
    run: int, identity: str, rules: str, source: Sequence[str], totals: Totals, ops: int
) -> dict[str, Any]:
    """Return what is said of any run, as its row has it."""
    return {
        "id": run, "created": datetime.now(UTC).isoformat(timespec="seconds"), "identity": identity,
        "source": json.dumps(source, ensure_ascii=False), "version": VERSION,
        "totals": json.dumps(totals), "activities": totals["activities"], "gpu_ns": totals["gpu_ns"],
        "attributed_ns": totals["attributed_ns"], "ops": ops, "rules": rules,
    }  # fmt: skip


def _last(database: Database, table: str) -> int:
    return int(database.execute(f"SELECT coalesce(max(rowid), 0) FROM [{table}]").fetchone()[0])
