"""Reads a run of the store back as a capture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import sqlite_utils

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.capture import Capture, Facts
from bridge.importers.ncu.metrics import Metrics
from bridge.importers.nsys.annotations import Strings, pool_texts
from bridge.importers.query import Query, Value
from bridge.importers.sqlite_columns import Columns, Database, ints_of, texts_of
from bridge.importers.texts import Texts
from bridge.store.checksums import Sums, check_columns, check_small_rows, refusing_damage
from bridge.store.columns import read_metrics
from bridge.store.runs import Run, get_row
from bridge.store.tables import (
    NAMED,
    RENAMED_KINDS,
    SYMBOL,
    UNSAID,
    StoreError,
    damaged,
    open_store,
)

Extents = dict[str, tuple[int, int]]


def load(path: Path, run: int | str | None = None, *, metrics: bool = True) -> Capture:
    """Read a run by number or name, by default the newest. Raises StoreError if there is none.

    Without ``metrics`` the metrics of Nsight Compute are not read.
    """
    with open_store(path) as database:
        stored_run = get_row(database, path, run)
        if stored_run.tables:
            raise StoreError(
                f"{path}: run {stored_run.id} holds aggregates of {len(stored_run.source)} reports, which bridge report"
                " and runs show; for anything else give the reports themselves"
            )
        with refusing_damage(path, stored_run.id):
            check_small_rows(database, path, stored_run.id)
            extents, sums = read_extents(database, stored_run.id)
            facts = [
                facts_of(r)
                for r in database.table("reports").rows_where(
                    "run = ?", [stored_run.id], order_by="report"
                )
            ]
            if len(facts) != len(stored_run.source):
                raise damaged(path, stored_run.id, "reports of it are missing")
    with refusing_damage(path, stored_run.id):
        return _capture(
            path, stored_run, facts=tuple(facts), extents=extents, sums=sums, metrics=metrics
        )


def read_extents(database: sqlite_utils.Database, run: int) -> tuple[Extents, dict[str, Sums]]:
    """Return the first and last id of a run in each table, and the sums of its columns."""
    rows = list(database.table("extents").rows_where("run = ?", [run]))
    extents = {str(r["table"]): (int(r["first"]), int(r["last"])) for r in rows}
    return extents, {str(r["table"]): json.loads(r["checksums"] or "{}") for r in rows}


def _capture(
    path: Path,
    stored_run: Run,
    facts: tuple[Facts, ...],
    extents: Extents,
    sums: Mapping[str, Sums],
    *,
    metrics: bool,
) -> Capture:
    nothing = (0, -1)  # the table is newer than the run
    queries = {kind: _query(kind, extents.get(kind, nothing)) for kind in (*frames.FRAMES, "names")}
    with Database(path, immutable=False) as columns:
        columns.tables()
        read = columns.read(queries)
        for kind, table in read.items():
            first, last = extents.get(kind, nothing)
            check_columns(
                path,
                stored_run.id,
                table=kind,
                columns=table,
                expected=(last - first + 1, sums.get(kind, {})),
            )
        names = _names(read["names"], extents["names"][0])
        found_metrics = (
            read_metrics(
                columns,
                extents,
                names=names["name"],
                activities=len(read["activities"]["start"]),
                source=stored_run.ncu,
            )
            if metrics
            else Metrics()
        )
    for kind, table in read.items():
        _check_reports(path, stored_run, kind, table)
    tables: dict[str, Any] = {kind: _frame(kind, read[kind], names) for kind in frames.FRAMES}
    pool, text = pool_texts(
        texts_of(read["ranges"], "text"), ints_of(read["ranges"], "name"), names["name"]
    )
    tables["ranges"] = tables["ranges"].replace(text=text)
    return Capture(stored_run.source, facts, texts=pool, metrics=found_metrics, **tables)


def _check_reports(path: Path, run: Run, kind: str, table: Columns) -> None:
    """Raise StoreError for rows of a report that the run does not have."""
    if "report" in table:
        numbers = ints_of(table, "report")
        if numbers.max(initial=0) >= len(run.source) or numbers.min(initial=0) < 0:
            raise damaged(path, run.id, f"{kind} has rows of a report that the run does not have")


def _query(kind: str, rows: tuple[int, int]) -> Query:
    columns = ("text", *SYMBOL) if kind == "names" else _columns(kind)
    texts = frozenset({"text", *SYMBOL} & set(columns))
    values = {c: Value((c,), "" if c in texts else -1, is_text=c in texts) for c in columns}
    return Query(
        table=kind,
        columns={c: value.sql for c, value in values.items()},
        texts=texts,
        rows=rows,
        values=values,
    )


def _columns(kind: str) -> list[str]:
    return [c for c in frames.FRAMES[kind].types if c not in SYMBOL]


def _names(columns: Columns, first: int) -> dict[str, Strings]:
    """Return the text of each id, per kind of name; a kind that is not stored is the plain name."""
    name = texts_of(columns, "text")
    ids = np.arange(first, first + len(name))
    own = np.arange(len(name))
    result = {"name": Strings(ids, name)}
    for other in SYMBOL:
        both = Texts.concat([texts_of(columns, other), name])
        present = texts_of(columns, other).sizes > 0
        result[other] = Strings(ids, both.take(np.where(present, own, own + len(name))))
    return result


def _frame(kind: str, columns: Columns, names: Mapping[str, Strings]) -> frames.Records:
    ints = {c: ints_of(columns, c) for c in _columns(kind) if (kind, c) != ("ranges", "text")}
    frame = frames.FRAMES[kind]
    result: dict[str, frames.Column] = dict(ints)
    for column, of in frame.types.items():
        if column in SYMBOL:
            result[column] = names[column].column(ints["name"])
        elif column in NAMED:
            result[column] = _named(ints[column], names["name"], UNSAID.get(column))
        elif of == "Flags":
            result[column] = ints[column].astype(bool)
    if kind == "activities":
        kinds = names["name"].column(ints["kind"])
        texts = [RENAMED_KINDS.get(text, text) for text in kinds.texts]
        result["kind"] = frames.Names(kinds.codes, texts)
    return frame(result)


def _named(ids: Ints, strings: Strings, unsaid: str | None = None) -> frames.Names:
    """Return names by id; rows without an id stay without a name."""
    none = ids == MISSING
    if not none.any():
        return strings.column(ids)
    column = strings.column(ids[~none])
    codes = np.full(len(ids), MISSING, np.int64)
    codes[~none] = column.codes
    if unsaid is None:
        return frames.Names(codes, column.texts)
    return frames.Names(np.where(none, len(column.texts), codes), [*column.texts, unsaid])


def facts_of(row: dict[str, object]) -> Facts:
    """Return the facts of a report from its row."""
    span = (int(str(row["span_start"])), int(str(row["span_end"])))
    known = row["epoch_ns"] is not None  # NULL: stored by a version that did not read it
    return Facts(
        product=str(row["product"]),
        schema=str(row["schema"]),
        span=span,
        warnings=tuple(json.loads(str(row["warnings"]))),
        epoch_ns=_int_or_missing(row["epoch_ns"]),
        metadata=dict(json.loads(str(row["metadata"])).items()) if known else {},
        beside=dict(json.loads(str(row["beside"] or "{}")).items()),
        session_ns=_int_or_missing(row["session_ns"]),
        system_spans={
            process: (first, last)
            for process, (first, last) in json.loads(str(row["system_spans"] or "[]"))
        },
    )


def _int_or_missing(value: object) -> int:
    return MISSING if value is None else int(str(value))
