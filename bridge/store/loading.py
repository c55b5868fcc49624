"""A run of the store becomes the `Report` it was saved from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from bridge.store.columns import read_metrics
from bridge.store.runs import chosen
from bridge.store.tables import NAMED, RENAMED_KINDS, SYMBOL, UNSAID, StoreError, opened
from importers import frames
from importers.columns import Columns, Database, Query, ints_of, texts_of
from importers.ncu.metrics import Metrics
from importers.nsys.annotations import Strings, pooled
from importers.report import Facts, Report
from importers.texts import Ints, Texts


def load(path: Path, run: int | str | None = None, *, metrics: bool = True) -> Report:
    """Read a run by number or name, the newest by default; raises StoreError if it is not there.

    Without ``metrics`` what Nsight Compute measured is left out.
    """
    with opened(path) as database:
        found = chosen(database, path, run)
        if found.tables:
            raise StoreError(
                f"{path}: run {found.id} holds aggregates of {len(found.source)} reports, which bridge report"
                " and runs show; for anything else give the reports themselves"
            )
        rows = database.table("extents").rows_where("run = ?", [found.id])
        extents = {r["table"]: (int(r["first"]), int(r["last"])) for r in rows}
        facts = [
            facts_of(r)
            for r in database.table("reports").rows_where("run = ?", [found.id], order_by="report")
        ]
    nothing = (0, -1)  # a table that came after the run was made
    queries = {kind: _query(kind, extents.get(kind, nothing)) for kind in (*frames.FRAMES, "names")}
    with Database(path, immutable=False) as columns:
        read = columns.read(queries)
        names = _names(read["names"], extents["names"][0])
        found_metrics = (
            read_metrics(
                columns, extents, names["name"], len(read["activities"]["start"]), found.ncu
            )
            if metrics
            else Metrics()
        )
    tables = {kind: _frame(kind, read[kind], names) for kind in frames.FRAMES}
    pool, text = pooled(
        texts_of(read["ranges"], "text"), ints_of(read["ranges"], "name"), names["name"]
    )
    ranges = tables.pop("ranges").assign(text=text)
    return Report(
        found.source, tuple(facts), ranges=ranges, texts=pool, metrics=found_metrics, **tables
    )


def _query(kind: str, rows: tuple[int, int]) -> Query:
    columns = ("text", *SYMBOL) if kind == "names" else _columns(kind)
    texts = frozenset({"text", *SYMBOL} & set(columns))
    missing = {c: "''" if c in texts else "-1" for c in columns}
    return Query(kind, {c: f'coalesce("{c}", {missing[c]})' for c in columns}, texts, rows=rows)


def _columns(kind: str) -> list[str]:
    return [c for c in frames.FRAMES[kind] if c not in SYMBOL]


def _names(columns: Columns, first: int) -> dict[str, Strings]:
    """Return what an id stands for under each kind of name; one not stored is the plain name."""
    name = texts_of(columns, "text")
    ids = np.arange(first, first + len(name))
    own = np.arange(len(name))
    found = {"name": Strings(ids, name)}
    for other in SYMBOL:
        both = Texts.concat([texts_of(columns, other), name])
        there = texts_of(columns, other).sizes > 0
        found[other] = Strings(ids, both.take(np.where(there, own, own + len(name))))
    return found


def _frame(kind: str, columns: Columns, names: Mapping[str, Strings]) -> pd.DataFrame:
    ints = {c: ints_of(columns, c) for c in _columns(kind) if (kind, c) != ("ranges", "text")}
    named = {
        c: _named(values, names["name"], UNSAID.get(c)) for c, values in ints.items() if c in NAMED
    }
    if kind == "activities":
        named["kind"] = named["kind"].rename_categories(RENAMED_KINDS)
    flags = {c: values.astype(bool) for c, values in ints.items() if c in frames.FLAGS}
    symbols = [c for c in frames.FRAMES[kind] if c in SYMBOL]
    other = {c: names[c].column(ints["name"]) for c in symbols}
    return frames.frame(kind, ints | named | flags | other)


def _named(ids: Ints, strings: Strings, unsaid: str | None = None) -> pd.Categorical:
    """Names by id; a row without one stays without, or has what stands for none."""
    none = ids == frames.MISSING
    if not none.any():
        return strings.column(ids)
    column = strings.column(ids[~none])
    codes = np.full(len(ids), frames.MISSING, np.int64)
    codes[~none] = column.codes
    if unsaid is None:
        return frames.names(codes, list(column.categories))
    return frames.names(np.where(none, len(column.categories), codes), [*column.categories, unsaid])


def facts_of(row: dict[str, object]) -> Facts:
    """Return what is known of a report, of its row."""
    span = (int(str(row["span_start"])), int(str(row["span_end"])))
    known = row["epoch_ns"] is not None  # else stored before that was read
    return Facts(
        str(row["product"]),
        str(row["schema"]),
        span,
        tuple(json.loads(str(row["warnings"]))),
        int(str(row["epoch_ns"])) if known else frames.MISSING,
        json.loads(str(row["metadata"])) if known else {},
        beside=json.loads(str(row["beside"] or "{}")),
    )
