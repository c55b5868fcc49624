"""Frames of a run as columns of integers and texts, as the store holds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from bridge.analyze.cost.metrics.values import MATCH_LEVELS
from bridge.importers.arrays import lookup
from bridge.importers.frames import Names, distinct_keys
from bridge.importers.ncu.metrics import KernelMetrics, Metrics, RuleMessages
from bridge.importers.nsys.annotations import Strings
from bridge.importers.query import Query
from bridge.importers.records import record
from bridge.importers.sqlite_columns import Columns, Database, ints_of
from bridge.importers.texts import Texts
from bridge.join.arrays import NONE, Integers, Ints, blocks, is_single_value
from bridge.join.attribution import ATTRIBUTED, REASONS
from bridge.join.nesting import Nesting
from bridge.report import Report
from bridge.store.bulk import Column, Floats
from bridge.store.tables import MEASURED, SYMBOL, TEXTS, UNSAID, frame_columns

# -- Metrics of Nsight Compute: long tables with a row per metric of a kernel


Naming = Callable[[Ints, Iterable[str]], Ints]
NO_NUMBER = "9e999"  # stands for NULL: no metric is infinite


def metric_column(
    metrics: Metrics, table: str, name: str, named: Naming, first: int
) -> Ints | Floats:
    """Return a column of a table of `MEASURED`; ``named`` stores names, ``first`` is the id of the first activity."""
    rows = np.flatnonzero(metrics.of != NONE)
    if (table, name) == ("measured", "activity"):
        return rows + first
    if (table, name) == ("measured", "kernel"):
        return metrics.of[rows]
    if (table, name) == ("measured", "match"):
        sure = metrics.sure[rows] if len(metrics.sure) else np.full(len(rows), NONE)
        return named(sure, MATCH_LEVELS)
    values = (metrics.table if table == "metrics" else metrics.rules)[name]
    if isinstance(values, Names):
        return named(values.codes, values.texts)
    column: Ints | Floats = values
    return np.where(column == NONE, np.nan, column) if name == "speedup" else column


def read_metrics(
    path: Database,
    extents: Mapping[str, tuple[int, int]],
    names: Strings,
    activities: int,
    source: tuple[str, ...],
) -> Metrics:
    """Return the metrics of a run; ``extents`` has the first id of its activities."""
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
        table=KernelMetrics(_columns("metrics", tables, names), value=value),
        rules=RuleMessages(
            _columns("metric_rules", tables, names),
            speedup=np.where(np.isnan(speedup), -1.0, speedup),
        ),
        of=of,
        sure=sure if (match != NONE).any() else np.empty(0, np.int64),
        source=source,
    )


def _codes(column: Names) -> Ints:
    """Return the certainty of each match as a code, as in `Metrics.sure`."""
    of_ours = [MATCH_LEVELS.index(n) if n in MATCH_LEVELS else NONE for n in column.texts]
    return lookup(np.array(of_ours, np.int64), column.codes)


def _within(rows: tuple[int, int]) -> str:
    return f" WHERE rowid >= {rows[0]} AND rowid <= {rows[1]} ORDER BY rowid"


def _query(table: str, rows: tuple[int, int]) -> Query:
    ids = [name for name, kind in MEASURED[table].items() if kind is int]
    return Query(table, {c: f'coalesce("{c}", -1)' for c in ids}, rows=rows)


def _columns(table: str, tables: Mapping[str, Columns], names: Strings) -> dict[str, Ints | Names]:
    """Return the kernel and the names of each row of a table of `Metrics`."""
    values = tables[table]
    texts = [name for name, kind in MEASURED[table].items() if kind is int and name != "kernel"]
    kernel: dict[str, Ints | Names] = {"kernel": ints_of(values, "kernel")}
    return kernel | {name: names.column(ints_of(values, name)) for name in texts}


# -- Frames of a run


Made = Callable[[slice], Column]
MadeInts = Callable[[slice], Ints]


@record
class TableColumns:
    """The columns of a table of the store, each made for some rows at a time; those without any value are left out."""

    rows: int
    made: Mapping[str, Made]

    def blocks(self) -> Iterator[dict[str, Column]]:
        """Yield the columns of some rows at a time."""
        for rows in blocks(self.rows):
            yield {name: make(rows) for name, make in self.made.items()}


class RunColumns:
    """The frames of a run as columns of integers and texts; names become ids of the table of names."""

    def __init__(self, report: Report, run: int, last: Mapping[str, int]) -> None:
        self.report, self.run = report, run
        self.names: list[dict[str, Texts]] = []
        self.next_name = last["names"] + 1
        self.first = {table: number + 1 for table, number in last.items()}
        self.derived = {"activities": self._activities, "ranges": self._ranges}

    def table(self, kind: str) -> TableColumns:
        """Return the columns of the table for a frame; `names` has all names so far."""
        if kind == "names":
            return self._names()
        if kind in MEASURED:
            return self._measured(kind)
        frame = getattr(self.report.capture, kind)
        made = self.derived[kind]() if kind in self.derived else {}
        for name in frame_columns(kind):
            if name not in made:
                made[name] = self._column(name, frame[name])
        return self._table(len(frame), {name: made[name] for name in frame_columns(kind)})

    def _table(self, rows: int, made: Mapping[str, Made | None]) -> TableColumns:
        run = _whole(_constant(self.run, rows))
        return TableColumns(rows, {"run": run, **{name: m for name, m in made.items() if m}})

    def _names(self) -> TableColumns:
        texts = {
            column: Texts.concat([Texts.of([]), *(names[column] for names in self.names)])
            for column in TEXTS
        }
        return self._table(len(texts["text"]), {name: t.part for name, t in texts.items()})

    def _measured(self, table: str) -> TableColumns:
        """Return a table of the metrics of Nsight Compute."""
        metrics, first = self.report.capture.metrics, self.first["activities"]
        columns = {
            name: metric_column(metrics, table, name=name, named=self._ids_of_names, first=first)
            for name in MEASURED[table]
        }
        rows = len(next(iter(columns.values())))
        return self._table(rows, {name: _whole(column) for name, column in columns.items()})

    def _column(self, name: str, column: Names | Ints) -> Made | None:
        """Return a column of a frame, None if it has no value in any row."""
        if not isinstance(column, Names):
            return None if _all_missing(column) else _whole(column)
        if name in UNSAID:
            codes = np.where(column.among(UNSAID[name]), NONE, column.compact)
            column = Names(codes, column.texts)
        return self._named(column.compact, column.texts)

    def _named(self, codes: Integers, names: Iterable[str]) -> MadeInts | None:
        """Store names in the table of names; return the id of the name of each row."""
        texts = Texts.of(names)
        nothing = Texts.of([""] * len(texts))
        return self._entered(codes, {"text": texts, **dict.fromkeys(TEXTS[1:], nothing)})

    def _ids_of_names(self, codes: Ints, names: Iterable[str]) -> Ints:
        made = self._named(codes, names)
        return made(slice(None)) if made else _constant(NONE, len(codes))

    def _entered(self, codes: Integers, names: dict[str, Texts]) -> MadeInts | None:
        if not len(names["text"]):
            return None
        self.names.append(names)
        first, self.next_name = self.next_name, self.next_name + len(names["text"])
        return _numbered(codes, first)

    def _activities(self) -> dict[str, Made | None]:
        """Return the columns of the attribution, and one id for the names of a kernel."""
        attributed, attribution = self.report.attributed, self.report.attributed.attribution
        reason = np.where(attribution.reason == ATTRIBUTED, np.int8(NONE), attribution.reason)
        return {
            "name": self._symbols(),
            "launch": _numbered(attribution.launch, self.first["launches"]),
            "range": _numbered(attribution.range, self.first["ranges"]),
            "op": self._named(attributed.activity_op, attributed.ops),
            "reason": self._named(reason, REASONS),
        }

    def _symbols(self) -> Made | None:
        attributed = self.report.attributed
        activities = attributed.capture.activities
        columns = [activities.name, *(activities[c] for c in SYMBOL), attributed.activity_name]
        codes, rows = distinct_keys(*(column.codes for column in columns))
        name, *others = (column[rows].tolist() for column in columns)
        differing = [["" if o == n else o for o, n in zip(t, name, strict=True)] for t in others]
        texts = dict(zip(TEXTS, map(Texts.of, (name, *differing)), strict=True))
        return self._entered(codes, texts)

    def _ranges(self) -> dict[str, Made | None]:
        """Return the op of each range, the range around it, and its text where that is more than its name."""
        capture, attributed = self.report.capture, self.report.attributed
        texts, text, name = capture.texts, capture.ranges.text, capture.ranges.name
        lengths = Texts.of(name.texts).sizes

        def longer_texts(rows: slice) -> Texts:
            starts, ends = texts.offsets[text[rows]], texts.offsets[text[rows] + 1]
            is_longer = ends - starts != lengths[name.compact[rows]]
            return texts.slices(starts, np.where(is_longer, ends, starts))

        parents = _parents(attributed.attribution.nesting, len(text))
        return {
            "parent": _numbered(parents, self.first["ranges"]),
            "op": self._named(attributed.op, attributed.ops),
            "text": longer_texts,
        }


def _parents(nesting: Nesting, ranges: int) -> Ints:
    """Return the row of the range around each range (around its first slice), or NONE."""
    parent = np.full(ranges, NONE)
    around = np.where(nesting.parent == NONE, NONE, nesting.range[nesting.parent])
    parent[nesting.range[::-1]] = around[::-1]
    return parent


def _numbered(rows: Integers, first: int) -> MadeInts:
    """Return the id of each row number, or code, which is ``first`` for 0."""

    def ids(block: slice) -> Ints:
        numbers = rows[block].astype(np.int64)
        return np.where(numbers == NONE, NONE, numbers + first)

    return ids


def _whole(column: Ints | Floats) -> Made:
    """Return a column that is there; flags become integers."""
    if column.dtype.kind == "f":
        return lambda rows: column[rows]
    return lambda rows: column[rows].astype(np.int64, copy=False)


def _constant(value: int, rows: int) -> Ints:
    return np.broadcast_to(np.int64(value), (rows,))


def _all_missing(column: Ints) -> bool:
    """Tell whether all values of a column are missing, so that NULL can be stored instead."""
    return bool(len(column)) and is_single_value(column) and int(column[0]) == NONE
