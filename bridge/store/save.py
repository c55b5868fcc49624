"""A joined report becomes a run of the store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import adbc_driver_manager
import adbc_driver_sqlite
import nanoarrow
import numpy as np
import pandas as pd
from sqlite_utils import Database

from bridge import __version__
from bridge.join.order import NONE, Ints
from bridge.joined import Joined
from bridge.output import OutputError
from bridge.store.runs import clean
from bridge.store.tables import NAMED, SUMMARIES, opened, stored
from importers import frames
from importers.texts import Texts

Column = Ints | Texts


def save(joined: Joined, path: Path, identity: str, rules: str = "") -> int:
    """Write a run and return its number.

    Raises OutputError if the store cannot be written; then it is as it was.
    """
    is_new = not path.exists()
    try:
        return _saved(joined, path, identity, rules)
    except BaseException:
        if is_new:
            path.unlink(missing_ok=True)
        else:
            with opened(path) as database:
                clean(database)
        raise


def _saved(joined: Joined, path: Path, identity: str, rules: str) -> int:
    with opened(path, create=True) as database:
        clean(database)
        run = int(database.execute("SELECT coalesce(max(id), 0) + 1 FROM runs").fetchone()[0])
        last = {t: _last(database, t) for t in (*frames.FRAMES, "names")}
    tables = _Tables(joined, run, last["names"]).tables
    _ingest(path, tables)
    with opened(path) as database:
        _summaries(database, joined, run)
        database["reports"].insert_all(_reports(joined, run))
        database["extents"].insert_all(
            {"run": run, "table": t, "first": last[t] + 1, "last": last[t] + _length(c)}
            for t, c in tables.items()
        )
        database["runs"].insert(_run(joined, run, identity, rules))
    return run


class _Tables:
    """The frames of a run as columns of integers and texts; names become ids of one table."""

    def __init__(self, joined: Joined, run: int, last_name: int) -> None:
        self.run = run
        self.names: list[Texts] = []
        self.next_name = last_name + 1
        report = joined.report
        found = {"activities": _found(joined), "ranges": _ranges(joined)}
        self.tables = {
            kind: self._table(kind, {**getattr(report, kind), **found.get(kind, {})})
            for kind in frames.FRAMES
        }
        texts = Texts.concat([Texts.of([]), *self.names])
        ids = np.arange(last_name + 1, self.next_name)
        self.tables["names"] = {"run": _constant(run, len(ids)), "id": ids, "text": texts}

    def _table(self, kind: str, columns: Mapping[str, Any]) -> dict[str, Column]:
        rows = len(next(iter(columns.values())))
        table: dict[str, Column] = {"run": _constant(self.run, rows), "row": np.arange(rows)}
        for name in stored(kind):
            table[name] = self._column(name, columns[name])
        return {name: c for name, c in table.items() if not _all_missing(c)}

    def _column(self, name: str, column: pd.Series | Texts) -> Column:  # type: ignore[type-arg]
        if isinstance(column, Texts):
            return column
        if name not in NAMED:
            return column.to_numpy().astype(np.int64, copy=False)
        categories = Texts.of(column.cat.categories)
        codes = frames.codes(column)
        self.names.append(categories)
        self.next_name += len(categories)
        return np.where(codes == NONE, NONE, codes + self.next_name - len(categories))


def _found(joined: Joined) -> dict[str, pd.Series]:  # type: ignore[type-arg]
    found = joined.op_kernels
    return {c: found[c] for c in ("launch", "range", "op", "path", "reason")}


def _ranges(joined: Joined) -> dict[str, Any]:
    """The op of each range, and its whole text where that is more than its name."""
    report, texts = joined.report, joined.report.texts
    op = pd.Series(frames.names(joined.attributed.op, joined.attributed.ops))
    text = frames.ints(report.ranges, "text")
    name = report.ranges["name"]
    lengths = Texts.of(name.cat.categories).sizes[frames.codes(name)] if len(name) else text
    more = texts.sizes[text] != lengths
    ends = np.where(more, texts.offsets[text + 1], texts.offsets[text])
    return {"op": op, "text": texts.slices(texts.offsets[text], ends)}


def _ingest(path: Path, tables: Mapping[str, dict[str, Column]]) -> None:
    try:
        with (
            adbc_driver_manager.AdbcDatabase(
                driver=adbc_driver_sqlite._driver_path(),  # noqa: SLF001 - as its dbapi does
                uri=path.absolute().as_uri() + "?mode=rw",
            ) as database,
            adbc_driver_manager.AdbcConnection(database) as connection,
        ):
            connection.set_autocommit(False)
            for table, columns in tables.items():
                if _length(columns):
                    _append(connection, table, columns)
            connection.commit()
    except adbc_driver_manager.Error as error:
        raise OutputError(f"{path}: {' '.join(str(error).split())}; nothing was stored") from error


def _append(connection: adbc_driver_manager.AdbcConnection, table: str, columns: dict[str, Column]) -> None:
    options = {"adbc.ingest.target_table": table, "adbc.ingest.mode": "adbc.ingest.mode.append"}
    with adbc_driver_manager.AdbcStatement(connection) as statement:
        statement.set_options(**options)
        statement.bind_stream(nanoarrow.c_array_stream(_arrow(columns)))
        statement.execute_update()


def _arrow(columns: dict[str, Column]) -> Any:
    kinds = {n: nanoarrow.string() if isinstance(c, Texts) else nanoarrow.int64() for n, c in columns.items()}
    children = [_child(kinds[name], column) for name, column in columns.items()]
    schema = nanoarrow.struct(kinds)
    return nanoarrow.c_array_from_buffers(schema, _length(columns), [None], children=children)


def _child(kind: Any, column: Column) -> Any:
    if not isinstance(column, Texts):
        return nanoarrow.c_array_from_buffers(kind, len(column), [None, np.ascontiguousarray(column)])
    there = np.packbits(column.sizes > 0, bitorder="little")  # a text of no bytes is stored as NULL
    offsets = column.offsets.astype(np.int32)
    return nanoarrow.c_array_from_buffers(kind, len(column), [there, offsets, column.data])


def _summaries(database: Database, joined: Joined, run: int) -> None:
    for view, table in SUMMARIES.items():
        rows = joined.by(view)
        rows.insert(0, "run", run)
        columns = [rows[c].tolist() for c in rows.columns]
        database[table].insert_all(
            dict(zip(rows.columns, row, strict=True)) for row in zip(*columns, strict=True)
        )


def _reports(joined: Joined, run: int) -> list[dict[str, Any]]:
    report = joined.report
    return [
        {
            "run": run, "report": n, "source": source, "product": facts.product, "schema": facts.schema,
            "span_start": facts.span[0], "span_end": facts.span[1],
            "warnings": json.dumps(facts.warnings, ensure_ascii=False),
        }
        for n, (source, facts) in enumerate(zip(report.source, report.facts, strict=True))
    ]  # fmt: skip


def _run(joined: Joined, run: int, identity: str, rules: str) -> dict[str, Any]:
    totals = joined.totals
    return {
        "id": run, "created": datetime.now(UTC).isoformat(timespec="seconds"), "identity": identity,
        "source": json.dumps(joined.report.source, ensure_ascii=False), "version": __version__,
        "activities": totals["activities"], "gpu_ns": totals["gpu_ns"],
        "attributed_ns": totals["attributed_ns"], "ops": joined.op_count, "rules": rules,
    }  # fmt: skip


def _last(database: Database, table: str) -> int:
    return int(database.execute(f"SELECT coalesce(max(rowid), 0) FROM [{table}]").fetchone()[0])  # noqa: S608


def _length(columns: Mapping[str, Column]) -> int:
    return len(columns["run"])


def _constant(value: int, rows: int) -> Ints:
    return np.broadcast_to(np.int64(value), (rows,))


def _all_missing(column: Column) -> bool:
    """Whether a column says nothing, so that NULL can stand for all of it."""
    if isinstance(column, Texts):
        return not len(column.data)
    return bool(len(column)) and column.strides == (0,) and int(column[0]) == NONE


