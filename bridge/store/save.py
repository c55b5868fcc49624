"""A joined report becomes a run of the store."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
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
from bridge.join.attribution import ATTRIBUTED, REASONS
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Ints, number
from bridge.joined import Joined
from bridge.output import OutputError
from bridge.store.runs import clean
from bridge.store.tables import NAMED, SUMMARIES, SYMBOL, alone, opened, stored
from importers import frames
from importers.texts import Texts

Column = Ints | Texts


def save(joined: Joined, path: Path, identity: str, rules: str = "") -> int:
    """Write a run and return its number.

    Raises OutputError if the store cannot be written; then it is as it was.
    """
    was_there = path.exists()
    with alone(path, create=True):
        is_new = not was_there and not path.stat().st_size
        try:
            return _saved(joined, path, identity, rules)
        except BaseException:
            if is_new:
                path.unlink(missing_ok=True)
                journal = path.with_name(f"{path.name}-journal")  # stays when the disk is full
                journal.unlink(missing_ok=True)
            else:
                with opened(path) as database:
                    clean(database)
            raise


def _saved(joined: Joined, path: Path, identity: str, rules: str) -> int:
    with opened(path, create=True) as database:
        clean(database)
        run = int(database.execute("SELECT coalesce(max(id), 0) + 1 FROM runs").fetchone()[0])
        last = {t: _last(database, t) for t in (*frames.FRAMES, "names")}
    with ThreadPoolExecutor(1) as pool:
        summaries = pool.submit(_summaries, joined, run)  # while SQLite writes
        tables = _Tables(joined, run, last).tables
        _ingest(path, tables)
    with opened(path) as database:
        for table, rows in summaries.result().items():
            database.table(table).insert_all(rows)
        database.table("reports").insert_all(_reports(joined, run))
        database.table("extents").insert_all(
            {"run": run, "table": t, "first": last[t] + 1, "last": last[t] + _length(c)}
            for t, c in tables.items()
        )
        database.table("runs").insert(_run(joined, run, identity, rules))
    return run


class _Tables:
    """The frames of a run as columns of integers and texts; names become ids of one table."""

    def __init__(self, joined: Joined, run: int, last: Mapping[str, int]) -> None:
        self.joined, self.run = joined, run
        self.names: list[dict[str, Texts]] = []
        self.next_name = last["names"] + 1
        self.first = {table: number + 1 for table, number in last.items()}
        found = {"activities": self._activities(), "ranges": self._ranges()}
        report = joined.report
        self.tables = {
            kind: self._table(kind, {**getattr(report, kind), **found.get(kind, {})})
            for kind in frames.FRAMES
        }
        texts = {
            column: Texts.concat([Texts.of([]), *(names[column] for names in self.names)])
            for column in ("text", *SYMBOL)
        }
        self.tables["names"] = {"run": _constant(run, len(texts["text"])), **texts}

    def _table(self, kind: str, columns: Mapping[str, Any]) -> dict[str, Column]:
        rows = len(next(iter(columns.values())))
        table: dict[str, Column] = {"run": _constant(self.run, rows)}
        for name in stored(kind):
            table[name] = self._column(name, columns[name])
        return {name: c for name, c in table.items() if not _all_missing(c)}

    def _column(self, name: str, column: pd.Series | Column) -> Column:
        if isinstance(column, pd.Series):
            if name in NAMED:
                return self._named(frames.codes(column), column.cat.categories)
            return column.to_numpy().astype(np.int64, copy=False)
        return column

    def _named(self, codes: Ints, names: Iterable[str]) -> Ints:
        """Enter names into the table of names; return the id of each row's."""
        texts = Texts.of(names)
        nothing = Texts.of([""] * len(texts))
        return self._entered(codes, {"text": texts, **dict.fromkeys(SYMBOL, nothing)})

    def _entered(self, codes: Ints, names: dict[str, Texts]) -> Ints:
        self.names.append(names)
        first, self.next_name = self.next_name, self.next_name + len(names["text"])
        return np.where(codes == NONE, NONE, codes + first)

    def _activities(self) -> dict[str, Column]:
        """What the join found, and one id for the three names of a kernel."""
        joined, found = self.joined.attributed, self.joined.attributed.attribution
        reason = np.where(found.reason == ATTRIBUTED, NONE, found.reason)
        return {
            "name": self._symbols(self.joined.report.activities),
            "launch": self._ids("launches", found.launch),
            "range": self._ids("ranges", found.range),
            "op": self._named(joined.activity_op, joined.ops),
            "reason": self._named(reason, REASONS),
        }

    def _symbols(self, activities: pd.DataFrame) -> Ints:
        columns = ("name", *SYMBOL)
        codes, rows = number(*(frames.codes(activities[c]) for c in columns))
        name, *others = ([str(n) for n in activities[c].iloc[rows]] for c in columns)
        differing = [["" if o == n else o for o, n in zip(t, name, strict=True)] for t in others]
        texts = dict(zip(("text", *SYMBOL), map(Texts.of, (name, *differing)), strict=True))
        return self._entered(codes, texts)

    def _ranges(self) -> dict[str, Column]:
        """The op of each range, the range around it, and its text where that is more than its name."""
        report, texts = self.joined.report, self.joined.report.texts
        text, name = frames.ints(report.ranges, "text"), report.ranges["name"]
        lengths = Texts.of(name.cat.categories).sizes[frames.codes(name)] if len(name) else text
        more = texts.sizes[text] != lengths
        ends = np.where(more, texts.offsets[text + 1], texts.offsets[text])
        joined = self.joined.attributed
        return {
            "parent": self._ids("ranges", _parents(joined.attribution.nesting, len(text))),
            "op": self._named(joined.op, joined.ops),
            "text": texts.slices(texts.offsets[text], ends),
        }

    def _ids(self, table: str, rows: Ints) -> Ints:
        return np.where(rows == NONE, NONE, rows + self.first[table])


def _parents(nesting: Nesting, ranges: int) -> Ints:
    """Return the row of the range around each one (around its first piece), or NONE."""
    parent = np.full(ranges, NONE)
    around = np.where(nesting.parent == NONE, NONE, nesting.range[nesting.parent])
    parent[nesting.range[::-1]] = around[::-1]
    return parent


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
        reason = " ".join(str(error).split()).partition(" query was: ")[0].rpartition(": ")[2]
        raise OutputError(f"{path}: {reason}; nothing was stored") from error


def _append(
    connection: adbc_driver_manager.AdbcConnection, table: str, columns: dict[str, Column]
) -> None:
    options = {"adbc.ingest.target_table": table, "adbc.ingest.mode": "adbc.ingest.mode.append"}
    with adbc_driver_manager.AdbcStatement(connection) as statement:
        statement.set_options(**options)
        statement.bind_stream(nanoarrow.c_array_stream(_arrow(columns)))
        statement.execute_update()


def _arrow(columns: dict[str, Column]) -> Any:
    kinds = {
        n: nanoarrow.string() if isinstance(c, Texts) else nanoarrow.int64()
        for n, c in columns.items()
    }
    children = [_child(kinds[name], column) for name, column in columns.items()]
    schema = nanoarrow.struct(kinds)
    return nanoarrow.c_array_from_buffers(schema, _length(columns), [None], children=children)


def _child(kind: Any, column: Column) -> Any:
    """What is missing, -1 or a text of no bytes, is stored as NULL."""
    if not isinstance(column, Texts):
        there = np.packbits(column != NONE, bitorder="little")
        values = np.ascontiguousarray(column)
        return nanoarrow.c_array_from_buffers(kind, len(column), [there, values])
    there = np.packbits(column.sizes > 0, bitorder="little")
    offsets = column.offsets.astype(np.int32)
    return nanoarrow.c_array_from_buffers(kind, len(column), [there, offsets, column.data])


def _summaries(joined: Joined, run: int) -> dict[str, list[dict[str, Any]]]:
    found = {}
    for view, table in SUMMARIES.items():
        rows = joined.by(view)
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
    return int(database.execute(f"SELECT coalesce(max(rowid), 0) FROM [{table}]").fetchone()[0])


def _length(columns: Mapping[str, Column]) -> int:
    return len(columns["run"])


def _constant(value: int, rows: int) -> Ints:
    return np.broadcast_to(np.int64(value), (rows,))


def _all_missing(column: Column) -> bool:
    """Whether a column says nothing, so that NULL can stand for all of it."""
    if isinstance(column, Texts):
        return not len(column.data)
    return bool(len(column)) and column.strides == (0,) and int(column[0]) == NONE
