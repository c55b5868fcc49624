"""Writes a report into the store as a run."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from bridge.analyze.core.table import Table
from bridge.analyze.core.totals import Totals
from bridge.analyze.tables.request import TableRequest
from bridge.importers import frames
from bridge.importers.capture import Facts
from bridge.knowledge.package import VERSION
from bridge.report import Report
from bridge.store import bulk
from bridge.store.bulk import Column
from bridge.store.checksums import TableSums, seal
from bridge.store.columns import RunColumns, TableColumns
from bridge.store.runs import delete_unfinished, find_run
from bridge.store.tables import (
    MEASURED,
    SUMMARIES,
    exclusive_writer,
    open_store,
    stored_columns,
)

LOG = logging.getLogger("bridge.store")

# Tables that need no computation are written while the others are made; names are complete last.
ORDER = ("launches", *(kind for kind in frames.FRAMES if kind != "launches"), *MEASURED, "names")


def save(report: Report, path: Path, identity: str, rules: str = "", worth: str = "") -> int:
    """Write a run and return its number, or the number of an equal run that another process stored meanwhile.

    ``worth`` is the line on the quality of the capture, which is stored beside the report's
    summary. Raises OutputError if the store cannot be written; the store does not change then.
    """
    return save_once(
        path,
        identity,
        rules,
        lambda: _saved(report, path, identity=identity, rules=rules, worth=worth),
    )


def save_once(path: Path, identity: str, rules: str, write: Callable[[], int]) -> int:
    """Write a run unless there is an equal one, and return its number; the store does not change if that fails."""
    was_there = path.exists()
    with exclusive_writer(path, create=True):
        is_new = not was_there and not path.stat().st_size
        run = None if not path.stat().st_size else find_run(path, identity, rules)
        if run:
            LOG.debug("%s: run %d is of the same reports: nothing is written", path, run.id)
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
                    delete_unfinished(database)
            raise


def _saved(report: Report, path: Path, identity: str, rules: str, worth: str) -> int:
    with open_store(path) as database:
        delete_unfinished(database)
        run = next_run(database)
        last = {table: _last(database, table) for table in ORDER}
    columns = RunColumns(report, run, last)
    sums = {table: TableSums(stored_columns(table)) for table in ORDER}
    # One thread makes everything while SQLite writes: two that import one package at once may fail.
    worker = ThreadPoolExecutor(1)
    try:
        tables = {table: worker.submit(columns.table, table) for table in ORDER}
        small = worker.submit(summaries, report.table, run)
        summary = worker.submit(_summary, report)
        row = worker.submit(_run, report, run, identity, rules)
        rows = bulk.append(path, _blocks(tables, sums))
        with open_store(path) as database:
            insert_tables(database, small.result())
            database.table("reports").insert_all(_reports(report, run))
            database.table("extents").insert_all(
                {
                    "run": run,
                    "table": t,
                    "first": last[t] + 1,
                    "last": last[t] + rows[t],
                    "checksums": json.dumps(sums[t].values),
                }
                for t in ORDER
            )
            texts = {"worth": worth, "summary": json.dumps(summary.result())}
            database.table("runs").insert(row.result() | texts)
            seal(database, run)
    finally:
        worker.shutdown(cancel_futures=True)
    return run


def _blocks(
    tables: dict[str, Future[TableColumns]], sums: Mapping[str, TableSums]
) -> Iterator[tuple[str, Mapping[str, Column]]]:
    """Yield some rows of a table after others, and add them to its sums; a table is freed when it is written."""
    for table in ORDER:
        for block in tables.pop(table).result().blocks():
            sums[table].add(block, len(block["run"]))
            yield table, block


def insert_tables(database: Database, tables: dict[str, Table]) -> None:
    """Insert tables of numbers and texts; sqlite-utils takes a transaction for each hundred rows."""
    for table, rows in tables.items():
        names, marks = (
            ", ".join(texts) for texts in (map("[{}]".format, rows), "?" * len(rows.columns))
        )
        columns = (rows[name].tolist() for name in rows)
        with database.conn as connection:
            sql = f"INSERT INTO [{table}] ({names}) VALUES ({marks})"
            connection.executemany(sql, zip(*columns, strict=True))


def summaries(make: Callable[[TableRequest], Table], run: int) -> dict[str, Table]:
    """Return the summary tables; ``make`` makes each table."""
    result = {}
    for view, table in SUMMARIES.items():
        rows = make(TableRequest(view))
        result[table] = rows.inserted("run", run, before=rows.columns[0])
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
            "run": run,
            "report": n,
            "source": source,
            **facts_row(facts),
        }
        for n, (source, facts) in enumerate(zip(capture.source, capture.facts, strict=True))
    ]


def facts_row(facts: Facts) -> dict[str, Any]:
    """Return the facts of a report as columns of its row."""
    return {
        "product": facts.product,
        "schema": facts.schema,
        "span_start": facts.span[0],
        "span_end": facts.span[1],
        "warnings": json.dumps(facts.warnings, ensure_ascii=False),
        "epoch_ns": facts.epoch_ns,
        "metadata": json.dumps(facts.metadata, ensure_ascii=False, default=repr),
        "beside": json.dumps(facts.beside, ensure_ascii=False),
        "session_ns": facts.session_ns,
        "system_spans": json.dumps(list(facts.system_spans.items())),
    }


def _run(report: Report, run: int, identity: str, rules: str) -> dict[str, Any]:
    return {
        **run_row(
            run,
            identity,
            rules=rules,
            source=report.capture.source,
            totals=report.totals,
            ops=report.op_count,
        ),
        "ncu": json.dumps(report.capture.metrics.source, ensure_ascii=False),
        "quality": report.quality.score,
    }


def next_run(database: Database) -> int:
    """Return the number of the next run."""
    return int(database.execute("SELECT coalesce(max(id), 0) + 1 FROM runs").fetchone()[0])


def run_row(
    run: int, identity: str, rules: str, source: Sequence[str], totals: Totals, ops: int
) -> dict[str, Any]:
    """Return the columns of the row of a run."""
    return {
        "id": run,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "identity": identity,
        "source": json.dumps(source, ensure_ascii=False),
        "version": VERSION,
        "totals": json.dumps(totals),
        "activities": totals["activities"],
        "gpu_ns": totals["gpu_ns"],
        "attributed_ns": totals["attributed_ns"],
        "ops": ops,
        "rules": rules,
    }


def _last(database: Database, table: str) -> int:
    return int(database.execute(f"SELECT coalesce(max(rowid), 0) FROM [{table}]").fetchone()[0])
