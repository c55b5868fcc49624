"""An export read in windows of host time: each a report of its own, small enough for the memory there is.

The invariant: what a window's rows say is what they say in the whole report, and every row is counted in one window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from importers import frames
from importers.columns import Columns, Database, Query, ints_of
from importers.errors import NotAReport
from importers.frames import MISSING
from importers.nsys import schema
from importers.nsys.devices import only_process
from importers.nsys.read import (
    Whole,
    complete,
    devices,
    facts_of,
    flags,
    queries_of,
    report_of,
    sound,
)
from importers.nsys.survey import (
    FOREVER,
    LONG,
    MOST_PHASES,
    ON_DEVICE,
    Flags,
    Part,
    Wanted,
    chunks,
    concatenated,
    cuts,
    distinct,
    picked,
    read,
    surveyed,
    wanted,
)
from importers.nsys.table import Details, Present
from importers.report import Report
from importers.texts import Ints

FEW_STRINGS = 1 << 16  # kept from window to window
LEAST_ROWS, MOST_ROWS = 1 << 13, 1 << 18  # read at a time
PER_WINDOW = 8  # chunks, at least
FRAMES = {
    "launches": "launches",
    "annotations": "ranges",
}  # of the long tables; all others' are activities
NAMING = {  # columns that hold ids of strings
    "launches": ("name",),
    "kernels": ("name", "full_name", "mangled"),
    "annotations": ("text_id", "json_id"),
    "threads": ("name",),
}


@dataclass(frozen=True)
class Rows:
    """How many rows the long tables of an export have."""

    launches: int
    activities: int
    annotations: int


@dataclass(frozen=True)
class Window:
    """One window: a report of its rows, which ranges begin in it, and which are in other windows too.

    ``number`` is the row that each has in the frames of the whole report; ``edges`` are from when to when it is;
    ``later`` is the first start of an activity of any window behind it.
    """

    report: Report
    begun: Flags
    carried: Flags
    number: Mapping[str, Ints]
    edges: tuple[int, int]
    later: int


def rows(path: Path) -> Rows:
    """Look up how many rows there are; NotAReport for what is no sound export."""
    sound(path)
    with Database(path) as database:
        queries = queries_of(path, database.tables(), details=False)
        bounds = database.bounds([q.table for t, q in queries.items() if t in LONG])
    many = {
        t: max(0, b - a + 1) for t in LONG if t in queries for a, b in [bounds[queries[t].table]]
    }
    on_device = sum(many.get(table, 0) for table in ON_DEVICE)
    return Rows(many.get("launches", 0), on_device, many.get("annotations", 0))


class Windows:
    """An export, looked over, whose windows may be read."""

    def __init__(
        self, path: Path, database: Database, details: Details, count: int, at: Sequence[int] | None
    ) -> None:
        self.path, self.database, self.details = path, database, details
        self.tables = database.tables()
        self.queries = queries_of(path, self.tables, details=details)
        short = {t: q for t, q in self.queries.items() if t not in (*LONG, "strings")}
        found = database.read(short)
        self.short = {
            t: complete(schema.READ[t], found.get(t, {})) for t in schema.READ if t not in LONG
        }
        cut = (
            cuts(database, self.queries, count) if at is None else np.unique(np.array(at, np.int64))
        )
        largest = max(
            (database.bounds([q.table])[q.table][1] for t, q in self.queries.items() if t in LONG),
            default=0,
        )
        self.rows = min(MOST_ROWS, max(LEAST_ROWS, largest // max(1, PER_WINDOW * (len(cut) + 1))))
        session = int(ints_of(self.short["session"], "duration").max(initial=MISSING))
        made = self._made()
        self.survey = surveyed(database, self.queries, cut, self.rows, made, session)
        self.whole = self._whole()
        self.strings: Columns | None = None

    def __len__(self) -> int:
        """How many windows there are."""
        return self.survey.windows

    def __iter__(self) -> Iterator[Window]:
        """Read one after the other."""
        return map(self.window, range(len(self)))

    def window(self, number: int) -> Window:
        """Read one window."""
        numbers: dict[str, list[Ints]] = {}
        columns = dict(self.short)
        for table in LONG:
            found = self._table(table, number, numbers)
            columns[table] = complete(schema.READ[table], found)
        for table in ON_DEVICE:
            process = ints_of(columns[table], "process")
            if (process == MISSING).any():
                columns[table]["process"] = only_process(process, self.survey.callers)
        columns["strings"] = self._strings(columns)
        report = report_of(self.path, columns, {}, self.whole)
        joined = {t: np.concatenate([np.empty(0, np.int64), *n]) for t, n in numbers.items()}
        start = frames.ints(report.ranges, "start")
        begun = self.survey.window(start) == number
        first, last = self.survey.edges(number)
        always = joined.pop("always").astype(bool)
        carried = always | (start < first) | (frames.ints(report.ranges, "end") > last)
        later = int(self.survey.earliest[number + 1 :].min(initial=FOREVER))
        return Window(report, begun, carried, joined, (first, last), later)

    def _table(self, table: str, window: int, numbers: dict[str, list[Ints]]) -> Columns:
        """Read the rows of a table that a window has, and note which they are."""
        found, query = [], self.queries.get(table)
        parts = [part for part in self.survey.parts.get(table, []) if part.windows[window]]
        noted = numbers.setdefault(FRAMES.get(table, "activities"), [])
        numbers.setdefault("always", [])
        ahead = self._ahead(table)
        for part, columns in self._read(table, query, parts) if query else ():
            taken, row = self._taken(table, window, columns, part, numbers)
            noted.append(row + part.before + ahead)
            found.append(picked(complete(schema.READ[table], columns), taken))
        return concatenated(found) if found else {}

    def _ahead(self, table: str) -> int:
        """How many activities are of tables before this one."""
        if table not in ON_DEVICE:
            return 0
        return sum(self.survey.counts[t] for t in ON_DEVICE[: ON_DEVICE.index(table)])

    def _read(
        self, table: str, query: Query, parts: Sequence[Part]
    ) -> Iterator[tuple[Part, Columns]]:
        every = read(self.database, query, [part.chunk for part in parts])
        for part, found in zip(parts, every, strict=True):
            rest = schema.ANNOTATIONS.rest(self.tables) if table == "annotations" else None
            # What is empty in most exports is read where a flag says that it is not.
            more = flags(found) if table == "annotations" else False
            also = next(read(self.database, rest, [part.chunk])) if rest and more else {}
            yield part, found | also

    def _taken(
        self,
        table: str,
        window: int,
        columns: Columns,
        part: Part,
        numbers: dict[str, list[Ints]],
    ) -> tuple[Ints, Ints]:
        """Return the rows of a chunk that a window has, and the place of each that our frames have."""
        if table in ON_DEVICE:
            size = len(next(iter(columns.values())))
            of = self.survey.of[table][part.before : part.before + size]
            taken = np.flatnonzero(of == window)
            return taken, taken
        start = ints_of(columns, "start")
        own = self.survey.window(start) == window
        if table == "launches":
            taken = np.flatnonzero(own)
            return taken, taken
        are, taken = self._annotated(columns, own, window)
        rows = taken[are.ranges[taken]]
        numbers["always"].append(are.always[rows].astype(np.int64))
        return taken, (np.cumsum(are.ranges) - 1)[rows]

    def _annotated(self, columns: Columns, own: Flags, window: int) -> tuple[Wanted, Ints]:
        start, end = (
            ints_of(columns, "start"),
            ints_of(complete(schema.ANNOTATIONS, columns), "end"),
        )
        end = np.where(end == schema.NO_END, FOREVER, end)
        thread = ints_of(complete(schema.ANNOTATIONS, columns), "thread")
        asked = {"start": start, "end": end, "type": ints_of(columns, "type"), "thread": thread}
        are = wanted(self.survey.instants, asked)
        first = self.survey.edges(window)[0]
        there = are.always | (are.ranges & (own | ((start < first) & (end > first))))
        return are, np.flatnonzero(there)

    def _strings(self, columns: Mapping[str, Columns]) -> Columns:
        """Return the strings that a window names."""
        query = self.queries["strings"]
        if self.strings is not None:
            return self.strings
        named = [ints_of(columns[t], c) for t, names in NAMING.items() for c in names]
        used = np.array(sorted({one for column in named for one in distinct(column)}), np.int64)
        every, some, many = [complete(schema.STRINGS, {})], [complete(schema.STRINGS, {})], 0
        for strings in read(
            self.database, query, chunks(self.database, query, MOST_ROWS, sparse=True)
        ):
            ids = ints_of(strings, "id")
            many += len(ids)
            every = [*every, strings] if many <= FEW_STRINGS else []
            some.append(picked(strings, np.flatnonzero(np.isin(ids, used))))
        if every:
            self.strings = concatenated([complete(schema.STRINGS, c) for c in every])
        return self.strings or concatenated([complete(schema.STRINGS, c) for c in some])

    def skeleton(self) -> Report:
        """Return a report of all processes and of all devices that they used, and of nothing that happened."""
        keys = self.survey.keys
        process = {
            t: np.array(sorted(keys.get(t, set())), np.int64) for t in ("ranges", "launches")
        }
        used = np.array(sorted(self.survey.used), np.int64).reshape(-1, 2)
        on_device = frames.frame("activities", {"process": used[:, 0], "device": used[:, 1]})
        nothing = {t: complete(schema.READ[t], {}) for t in schema.READ}
        nothing |= {"processes": self.short["processes"]}
        made = {t: frames.frame(t, {"process": p}) for t, p in process.items()}
        return replace(
            report_of(self.path, nothing, {}, self.whole),
            ranges=made["ranges"],
            launches=made["launches"],
            activities=on_device,
            devices=devices(self.short, on_device),
        )

    def _made(self) -> tuple[Ints, Ints]:
        """Return thread and time of the creations of graph nodes."""
        both = [self.short[name] for name in ("graph_nodes", "graph_nodes_old")]
        thread, time = (np.concatenate([ints_of(c, n) for c in both]) for n in ("thread", "time"))
        return thread, time

    def _whole(self) -> Whole:
        survey = self.survey
        counts = [survey.counts[t] for t in ("ranges", "launches", "activities")]
        span = (survey.low, survey.high) if sum(counts) + survey.counts["marks"] else (0, 0)
        read = {**self.short, "strings": {}}
        facts = facts_of(self.path, read, counts, survey.counts["graphs"], (span, span))
        return Whole(facts, survey.last, survey.callers)


@contextmanager
def opened(
    path: Path, details: Details, count: int, at: Sequence[int] | None = None
) -> Iterator[Windows]:
    """Look over an export and let its windows be read: so many of about equal size, or cut ``at`` some times.

    Raises NotAReport for what is no sound export, and if it is written to meanwhile.
    """
    before = sound(path)
    with Database(path) as database:
        yield Windows(path, database, details, count, at)
    after = path.stat()
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise NotAReport(f"{path.name}: changed while it was read; wait until nsys has finished")


__all__ = ["MOST_PHASES", "Present", "Rows", "Window", "Windows", "opened", "rows"]
