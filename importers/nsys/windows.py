"""Read an export in windows of host time; each is a `Capture` that fits into memory.

A row of a window has the same meaning as in the whole report, and each row counts in one window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import MISSING, Ints
from bridge.importers.capture import Capture, check_totals
from bridge.importers.errors import NotAReport
from bridge.importers.nsys import schema
from bridge.importers.nsys.devices import fill_process
from bridge.importers.nsys.read import (
    ExportFacts,
    check_file,
    devices,
    export_facts,
    export_queries,
    readable_tables,
    session_ns,
    spans_by_process,
    take_flags,
    to_capture,
    with_all_columns,
)
from bridge.importers.nsys.schema import DEVICE_TABLES
from bridge.importers.nsys.survey import (
    ANNOTATION_COLUMNS,
    FOREVER,
    MAX_PHASES,
    AnnotationKinds,
    Chunk,
    Flags,
    Part,
    Survey,
    chunks,
    concat_columns,
    distinct,
    integers,
    kinds_of_annotations,
    open_to_forever,
    read,
    survey_export,
    window_cuts,
)
from bridge.importers.nsys.tables import Details, Present
from bridge.importers.nsys.times import (
    EVENT_TABLES,
    event_times,
    origin_of,
    sample_places,
    with_possible_times,
)
from bridge.importers.query import Query
from bridge.importers.records import record
from bridge.importers.sqlite_columns import Columns, Database, ints_of, take_rows
from bridge.importers.texts import Texts

MAX_CACHED_STRINGS = 1 << 16  # strings that are kept for all windows
MIN_ROWS, MAX_ROWS = 1 << 13, 1 << 18  # rows that are read at a time
CHUNKS_PER_WINDOW = 8  # at least
FRAME_OF_TABLE = {
    "launches": "launches",
    "annotations": "ranges",
}  # of event tables; the others are activities
STRING_ID_COLUMNS = {  # columns of string ids
    "launches": ("name",),
    "kernels": ("name", "full_name", "mangled"),
    "annotations": ("text_id", "json_id"),
    "threads": ("name",),
    "call_chains": ("symbol", "module"),
}


@record
class RowCounts:
    """The numbers of rows of the event tables of an export."""

    launches: int
    activities: int
    annotations: int


@record
class Window:
    """A window: the capture of its rows.

    ``begun`` masks the ranges that begin in it, ``spanning`` those that other windows have as well.
    ``number`` is the row of each row in the frames of the whole report, by frame. ``edges`` are
    begin and end of the window in ns. ``next_activity`` is the first start of an activity in any
    later window.
    """

    capture: Capture
    begun: Flags
    spanning: Flags
    number: Mapping[str, Ints]
    edges: tuple[int, int]
    next_activity: int


def row_counts(path: Path) -> RowCounts:
    """Return the numbers of rows; raises NotAReport if the file is no complete export."""
    check_file(path)
    with Database(path) as database:
        queries = export_queries(path, readable_tables(path, database), details=False)
        bounds = database.bounds([q.table for t, q in queries.items() if t in EVENT_TABLES])
    counts = {
        t: max(0, b - a + 1)
        for t in EVENT_TABLES
        if t in queries
        for a, b in [bounds[queries[t].table]]
    }
    activities = sum(counts.get(table, 0) for table in DEVICE_TABLES)
    return RowCounts(counts.get("launches", 0), activities, counts.get("annotations", 0))


SAMPLES, SAMPLE_ROWS = 64, 64


@record
class NameSample:
    """The names of some rows, from all over the tables of an export.

    ``ranges`` are texts, ``kernels`` ids of names. An export whose rows have no numbers gives none.
    """

    ranges: list[str]
    kernels: list[int]


def sample_names(path: Path) -> NameSample:
    """Return the names of up to 4000 ranges and kernels; raises NotAReport as `row_counts` does."""
    with Database(path) as database:
        queries = export_queries(path, readable_tables(path, database), details=False)
        ranges = kernels = None
        if "annotations" in queries:
            strings, query = queries["strings"], queries["annotations"]
            text = f"nullif({query.columns['text']}, '')" if "text" in query.columns else "NULL"
            if "text_id" in query.columns:  # some writers register no texts
                text += (
                    f', (SELECT {strings.columns["value"]} FROM "{strings.table}"'
                    f" WHERE {strings.columns['id']} = {query.columns['text_id']})"
                )
            text = f"coalesce({text}, '')"
            ranges = replace(query, columns={"name": text}, texts=frozenset({"name"}))
        if "kernels" in queries:
            query = queries["kernels"]
            kernels = replace(query, columns={"name": query.columns["name"]}, texts=frozenset())
        texts = [part.decode() for part in _sampled(database, ranges) if isinstance(part, Texts)]
        ids = [part.tolist() for part in _sampled(database, kernels) if not isinstance(part, Texts)]
    return NameSample([*chain(*texts)], [*chain(*ids)])


def _sampled(database: Database, query: Query | None) -> Iterator[Ints | Texts]:
    """Yield the names in some stretches of a table's rows."""
    if query is None or not database.has_rowid(query.table):
        return
    first, last = database.bounds([query.table])[query.table]
    starts = {first + (last - first) * n // SAMPLES for n in range(SAMPLES)}
    parts = {
        str(start): replace(query, rows=(start, min(last, start + SAMPLE_ROWS - 1)))
        for start in sorted(starts)
        if first <= last
    }
    for columns in database.read(parts).values():
        yield columns["name"]


class Windows:
    """The windows of an export that was surveyed."""

    def __init__(
        self, path: Path, database: Database, details: Details, count: int, at: Sequence[int] | None
    ) -> None:
        self.path, self.database, self.details = path, database, details
        self.tables = readable_tables(path, database)
        self.queries = export_queries(path, self.tables, details=details)
        self._check_row_numbers()
        large = (*EVENT_TABLES, "strings", "system_spans")
        tables = database.read({t: q for t, q in self.queries.items() if t not in large})
        self.short = {
            t: with_all_columns(schema.READ[t], tables.get(t, {}))
            for t in schema.READ
            if t not in EVENT_TABLES
        }
        self.origin = self._origin()
        self.short["system_spans"] = self._system_spans()
        self.short, self.left_out = with_possible_times(self.short, self.origin)
        cuts = (
            window_cuts(database, self.queries, count, self.origin)
            if at is None
            else np.unique(np.array(at, np.int64))
        )
        largest = max(
            (
                database.bounds([q.table])[q.table][1]
                for t, q in self.queries.items()
                if t in EVENT_TABLES
            ),
            default=0,
        )
        self.rows = min(
            MAX_ROWS, max(MIN_ROWS, largest // max(1, CHUNKS_PER_WINDOW * (len(cuts) + 1)))
        )
        survey = Survey(cuts, self.queries, self.origin)
        creations = self._node_creations()
        session = session_ns(self.short)
        self.survey = survey_export(
            survey, database, rows=self.rows, node_creations=creations, session=session
        )
        self.facts = self._export_facts()
        self.strings: Columns | None = None

    def _system_spans(self) -> Columns:
        """Return the times of each process by its calls of the operating system, read in chunks."""
        query = self.queries.get("system_spans")
        parts = chunks(self.database, query, MAX_ROWS, sparse=True) if query else []
        tables = read(self.database, query, parts) if query else iter(())
        parts_read = (with_all_columns(schema.SYSTEM_SPANS, columns) for columns in tables)
        return spans_by_process(parts_read, self.origin)

    def _origin(self) -> int:
        """Return the origin of the times, from the rows that `origin_of_tables` takes it from."""
        starts = []
        for table in EVENT_TABLES:
            if query := self.queries.get(table):
                first, last = self.database.bounds([query.table])[query.table]
                rows = [first + place for place in sample_places(last - first + 1)]
                samples = [Chunk(row, row) for row in rows]
                columns = integers(self.database, query, schema.READ[table], samples, "start")
                starts += [column["start"] for column in columns]
        return origin_of(starts)

    def _check_row_numbers(self) -> None:
        """Raise NotAReport if rows of a large table cannot be selected by their number."""
        for table in (*EVENT_TABLES, "strings"):
            query = self.queries.get(table)
            if query and not self.database.has_rowid(query.table):
                raise NotAReport(
                    f"{self.path.name}: rows of {query.table} have no numbers (WITHOUT ROWID),"
                    " so it cannot be read in windows; read it without --memory-limit"
                )

    def __len__(self) -> int:
        return self.survey.windows

    def __iter__(self) -> Iterator[Window]:
        """Read the windows one after another."""
        return map(self.window, range(len(self)))

    def window(self, number: int) -> Window:
        numbers: dict[str, list[Ints]] = {}
        columns = dict(self.short)
        for table in EVENT_TABLES:
            values = self._table(table, number, numbers)
            columns[table] = with_all_columns(schema.READ[table], values)
        for table in DEVICE_TABLES:
            process = ints_of(columns[table], "process")
            if (process == MISSING).any():
                columns[table]["process"] = fill_process(process, self.survey.callers)
        columns["strings"] = self._strings(columns)
        capture = to_capture(self.path, columns, {}, self.facts)
        joined = {t: np.concatenate([np.empty(0, np.int64), *n]) for t, n in numbers.items()}
        start = capture.ranges.start
        begun = self.survey.window(start) == number
        first, last = self.survey.edges(number)
        always = joined.pop("always").astype(bool)
        spanning = always | (start < first) | (capture.ranges.end > last)
        later = int(self.survey.earliest[number + 1 :].min(initial=FOREVER))
        return Window(
            capture=capture,
            begun=begun,
            spanning=spanning,
            number=joined,
            edges=(first, last),
            next_activity=later,
        )

    def _table(self, table: str, window: int, numbers: dict[str, list[Ints]]) -> Columns:
        """Read the rows of a table that are in a window, and note their row numbers."""
        result, query = [], self.queries.get(table)
        parts = [part for part in self.survey.parts.get(table, []) if part.windows[window]]
        row_numbers = numbers.setdefault(FRAME_OF_TABLE.get(table, "activities"), [])
        numbers.setdefault("always", [])
        ahead = self._rows_before(table)
        for part, columns in self._read(table, query, parts) if query else ():
            taken, row = self._rows_of_window(
                table, window, columns=columns, part=part, numbers=numbers
            )
            row_numbers.append(row + part.before + ahead)
            result.append(take_rows(columns, taken))
        return concat_columns(result) if result else {}

    def _rows_before(self, table: str) -> int:
        """Return how many activities the tables before this one have."""
        if table not in DEVICE_TABLES:
            return 0
        return sum(self.survey.counts[t] for t in DEVICE_TABLES[: DEVICE_TABLES.index(table)])

    def _read(
        self, table: str, query: Query, parts: Sequence[Part]
    ) -> Iterator[tuple[Part, Columns]]:
        tables = read(self.database, query, [part.chunk for part in parts])
        for part, values in zip(parts, tables, strict=True):
            rest = None
            if table == "annotations":
                rest = schema.ANNOTATIONS.rest(self.tables, details=self.details)
            # Rare columns are read only if a flag is set.
            is_flagged = take_flags(values) if table == "annotations" else False
            rare = next(read(self.database, rest, [part.chunk])) if rest and is_flagged else {}
            columns = with_all_columns(schema.READ[table], values | rare)
            yield part, {**columns, **event_times(table, columns, self.origin)}

    def _rows_of_window(
        self,
        table: str,
        window: int,
        columns: Columns,
        part: Part,
        numbers: dict[str, list[Ints]],
    ) -> tuple[Ints, Ints]:
        """Return the rows of a chunk that are in a window, and their places among our rows."""
        if table in DEVICE_TABLES:
            size = len(next(iter(columns.values())))
            windows = self.survey.of[table][part.before : part.before + size]
            selected = np.flatnonzero(windows == window)
            return selected, selected
        start = ints_of(columns, "start")
        is_of_window = self.survey.window(start) == window
        if table == "launches":
            selected = np.flatnonzero(is_of_window)
            return selected, selected
        kinds, selected = self._annotations_of_window(columns, is_of_window, window)
        row_counts = selected[kinds.ranges[selected]]
        numbers["always"].append(kinds.always[row_counts].astype(np.int64))
        return selected, (np.cumsum(kinds.ranges) - 1)[row_counts]

    def _annotations_of_window(
        self, columns: Columns, begins: Flags, window: int
    ) -> tuple[AnnotationKinds, Ints]:
        times = open_to_forever(
            {name: ints_of(columns, name) for name in ANNOTATION_COLUMNS}, self.origin
        )
        kinds = kinds_of_annotations(self.survey.instants, times)
        first, start, end = self.survey.edges(window)[0], times["start"], times["end"]
        mask = kinds.always | (kinds.ranges & (begins | ((start < first) & (end > first))))
        return kinds, np.flatnonzero(mask)

    def _strings(self, columns: Mapping[str, Columns]) -> Columns:
        """Return the strings that the columns of a window refer to."""
        query = self.queries["strings"]
        if self.strings is not None:
            return self.strings
        named = [ints_of(columns[t], c) for t, names in STRING_ID_COLUMNS.items() for c in names]
        used = np.array(sorted({id_ for column in named for id_ in distinct(column)}), np.int64)
        all_parts, used_parts, count = (
            [with_all_columns(schema.STRINGS, {})],
            [with_all_columns(schema.STRINGS, {})],
            0,
        )
        for strings in read(
            self.database, query, chunks(self.database, query, MAX_ROWS, sparse=True)
        ):
            ids = ints_of(strings, "id")
            count += len(ids)
            all_parts = [*all_parts, strings] if count <= MAX_CACHED_STRINGS else []
            used_parts.append(take_rows(strings, np.flatnonzero(np.isin(ids, used))))
        if all_parts:
            self.strings = concat_columns([with_all_columns(schema.STRINGS, c) for c in all_parts])
        return self.strings or concat_columns(
            [with_all_columns(schema.STRINGS, c) for c in used_parts]
        )

    def skeleton(self) -> Capture:
        """Return a capture of all processes and used devices, without any event."""
        keys = self.survey.keys
        process = {
            t: np.array(sorted(keys.get(t, set())), np.int64) for t in ("ranges", "launches")
        }
        used = np.array(sorted(self.survey.used), np.int64).reshape(-1, 2)
        on_device = frames.Activities(process=used[:, 0], device=used[:, 1])
        empty = {t: with_all_columns(schema.READ[t], {}) for t in schema.READ}
        empty |= {"processes": self.short["processes"]}
        return replace(
            to_capture(self.path, empty, {}, self.facts),
            ranges=frames.Ranges(process=process["ranges"]),
            launches=frames.Launches(process=process["launches"]),
            activities=on_device,
            devices=devices(self.short, on_device),
        )

    def _node_creations(self) -> tuple[Ints, Ints]:
        """Return thread and time of the creations of graph nodes."""
        both = [self.short[name] for name in ("graph_nodes", "graph_nodes_old")]
        thread, time = (np.concatenate([ints_of(c, n) for c in both]) for n in ("thread", "time"))
        return thread, time

    def _export_facts(self) -> ExportFacts:
        survey = self.survey
        counts = [survey.counts[t] for t in ("ranges", "launches", "activities")]
        span = (survey.low, survey.high) if sum(counts) + survey.counts["marks"] else (0, 0)
        read = {**self.short, "strings": {}}
        check_totals(self.path.name, survey.totals.values())
        facts = export_facts(
            self.path,
            read,
            rows=counts,
            opaque=survey.counts["graphs"],
            span=span,
            left_out=self.left_out + survey.left_out,
        )
        return ExportFacts(facts, survey.last, survey.callers, self.origin)


@contextmanager
def open_windows(
    path: Path, details: Details, count: int, at: Sequence[int] | None = None
) -> Iterator[Windows]:
    """Survey an export and yield its windows: about ``count`` equal ones, or cut ``at`` times.

    Raises NotAReport if the file is no complete export, or is written to meanwhile.
    """
    before = check_file(path)
    with Database(path) as database:
        yield Windows(path=path, database=database, details=details, count=count, at=at)
    after = path.stat()
    if (after.st_size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
        raise NotAReport(f"{path.name}: changed while it was read; wait until nsys has finished")


__all__ = ["MAX_PHASES", "Present", "RowCounts", "Window", "Windows", "open_windows", "row_counts"]
