"""What Nsight Compute measured as columns of the store, and back: long tables, a row per metric of a kernel."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import pandas as pd

from bridge.analyze.metrics.measured import SURE
from bridge.join.order import NONE, Ints
from bridge.store.tables import MEASURED
from importers import frames
from importers.columns import Columns, Database, Query, ints_of
from importers.ncu.metrics import Metrics
from importers.nsys.annotations import Strings

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
Naming = Callable[[Ints, Iterable[str]], Ints]
NO_NUMBER = "9e999"  # stands for NULL on the way out: no metric is infinite


def column(metrics: Metrics, table: str, name: str, named: Naming, first: int) -> Ints | Floats:
    """Return a column of a table of `MEASURED`; ``named`` enters names, ``first`` is the id of the first activity."""
    rows = np.flatnonzero(metrics.of != NONE)
    if (table, name) == ("measured", "activity"):
        return rows + first
    if (table, name) == ("measured", "kernel"):
        return metrics.of[rows]
    if (table, name) == ("measured", "match"):
        sure = metrics.sure[rows] if len(metrics.sure) else np.full(len(rows), NONE)
        return named(sure, SURE)
    values = (metrics.table if table == "metrics" else metrics.rules)[name]
    if isinstance(values.dtype, pd.CategoricalDtype):
        return named(frames.codes(values), values.cat.categories)
    found = values.to_numpy()
    return np.where(found == NONE, np.nan, found) if name == "speedup" else found


def read(
    path: Database,
    extents: Mapping[str, tuple[int, int]],
    names: Strings,
    activities: int,
    source: tuple[str, ...],
) -> Metrics:
    """Return the metrics of a run, whose activities have the ids from the first of its ``extents`` on."""
    none = (0, -1)
    tables = path.read({t: _query(t, extents.get(t, none)) for t in MEASURED})
    if not len(ints_of(tables["measured"], "kernel")):
        return Metrics()
    of, sure = (np.full(activities, NONE) for _ in range(2))
    rows = ints_of(tables["measured"], "activity") - extents["activities"][0]
    of[rows] = ints_of(tables["measured"], "kernel")
    match = ints_of(tables["measured"], "match")
    sure[rows] = np.where(match == NONE, NONE, _codes(names.column(match)))
    reals = {
        t: path.reals(
            f'SELECT coalesce("{c}", {NO_NUMBER}) FROM "{t}"{_within(extents.get(t, none))}'
        )
        for t, c in (("metrics", "value"), ("metric_rules", "speedup"))
    }
    value, speedup = (np.where(np.isinf(r), np.nan, r) for r in reals.values())
    return Metrics(
        _frame("metrics", tables, names, {"value": value}),
        _frame(
            "metric_rules", tables, names, {"speedup": np.where(np.isnan(speedup), -1.0, speedup)}
        ),
        of,
        sure if (match != NONE).any() else np.empty(0, np.int64),
        source,
    )


def _codes(column: pd.Categorical) -> Ints:
    """Return how sure each match is, as `Metrics.sure` has it."""
    of_ours = np.array([*(SURE.index(n) if n in SURE else NONE for n in column.categories), NONE])
    found: Ints = of_ours[column.codes.astype(np.int64)]
    return found


def _within(rows: tuple[int, int]) -> str:
    return f" WHERE rowid >= {rows[0]} AND rowid <= {rows[1]} ORDER BY rowid"


def _query(table: str, rows: tuple[int, int]) -> Query:
    ids = [name for name, kind in MEASURED[table].items() if kind is int]
    return Query(table, {c: f'coalesce("{c}", -1)' for c in ids}, rows=rows)


def _frame(
    table: str, tables: Mapping[str, Columns], names: Strings, reals: Mapping[str, Floats]
) -> pd.DataFrame:
    """Return a table of `Metrics`, its columns in their order."""
    found = tables[table]
    columns = {
        name: reals[name]
        if name in reals
        else ints_of(found, name)
        if name == "kernel"
        else names.column(ints_of(found, name))
        for name in MEASURED[table]
    }
    return pd.DataFrame(columns)
