"""Survey an export larger than memory: find the window of host time of each row.

A window holds the API calls that start in it, the activities that these launched (activities
without a call: those that start in it), and the ranges that are open at some time in it. Each
range begins in one window only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import MISSING, Ints, factorize
from bridge.importers.capture import total_ns
from bridge.importers.errors import NotAReport
from bridge.importers.nsys import schema
from bridge.importers.nsys.devices import fill_process
from bridge.importers.nsys.schema import DEVICE_TABLES
from bridge.importers.nsys.tables import FLAG, Table
from bridge.importers.nsys.times import EVENT_TABLES, event_times, impossible_marks, is_possible
from bridge.importers.query import Query
from bridge.importers.records import record
from bridge.importers.sqlite_columns import MIN_ROW_BYTES, Columns, Database, ints_of
from bridge.importers.texts import Texts

# -- Kinds of annotations


FOREVER = np.iinfo(np.int64).max

Flags = NDArray[np.bool_]
Instants = tuple[Ints, Ints]  # (thread, time), sorted by both


def sort_instants(thread: Ints, time: Ints) -> Instants:
    """Return instants sorted by thread, then time."""
    order = np.lexsort((time, thread))
    return thread[order], time[order]


@record
class AnnotationKinds:
    """Masks of annotations: ranges, phases among them, marks, and those that every window has."""

    ranges: Flags
    phases: Flags
    marks: Flags
    always: Flags


def kinds_of_annotations(instants: Instants, columns: Mapping[str, Ints]) -> AnnotationKinds:
    """Return the kinds of annotations; ``end`` is FOREVER for ranges that never ended."""
    types = columns["type"] & (FLAG - 1)
    is_phase, is_mark = np.isin(types, schema.START_END), np.isin(types, schema.MARK)
    is_push_pop = np.isin(types, schema.PUSH_POP)
    is_declaration = np.isin(types, (schema.DOMAIN_NAME, schema.CATEGORY_NAME))
    is_instant_open = is_push_pop & _contains_instant(instants, columns)
    return AnnotationKinds(
        is_push_pop | is_phase, is_phase, is_mark, is_phase | is_declaration | is_instant_open
    )


def _contains_instant(instants: Instants, columns: Mapping[str, Ints]) -> Flags:
    """Return a mask of the ranges that were open at any of the instants, which are sorted."""
    mask = np.zeros(len(columns["start"]), bool)
    if not len(instants[0]):
        return mask
    for thread in np.unique(columns["thread"]).tolist():  # a loop over threads
        begin, end = np.searchsorted(instants[0], (thread, thread + 1))
        rows, times = np.flatnonzero(columns["thread"] == thread), instants[1][begin:end]
        first = np.searchsorted(times, columns["start"][rows], side="left")
        mask[rows] = np.append(times, FOREVER)[first] < columns["end"][rows]
    return mask


# -- Tables by chunks of rows


@record
class Chunk:
    """Rows of a table from the first to the last rowid, both included."""

    first: int
    last: int


def chunks(database: Database, query: Query, rows: int, *, sparse: bool = False) -> list[Chunk]:
    """Split a table into chunks of about ``rows`` rows.

    With ``sparse`` a table whose rowids are far apart is one chunk; else it raises NotAReport.
    """
    first, last = database.bounds([query.table])[query.table]
    if last - first >= database.path.stat().st_size // MIN_ROW_BYTES:
        if sparse:
            return [Chunk(first, last)]
        name = database.path.name
        raise NotAReport(
            f"{name}: row numbers of {query.table} are far apart; read it without --memory-limit"
        )
    edges = [*range(first, last + 1, rows), last + 1]
    return [Chunk(a, b - 1) for a, b in pairwise(edges)]


def integers(
    database: Database, query: Query, table: Table, parts: Sequence[Chunk], *columns: str
) -> Iterator[dict[str, Ints]]:
    """Yield integer columns by chunk; columns that the export lacks are missing in every row."""
    present = {name: query.columns[name] for name in columns if name in query.columns}
    # Without any of the columns, another column gives the number of rows.
    selected = present or dict([next(iter(query.columns.items()))])
    for values in read(database, Query(query.table, selected), parts):
        rows = len(next(iter(values.values())))
        absent = {
            name: np.broadcast_to(np.int64(table.columns[name].missing), (rows,))
            for name in columns
            if name not in present
        }
        yield {name: absent[name] if name in absent else ints_of(values, name) for name in columns}


def read(database: Database, query: Query, parts: Sequence[Chunk]) -> Iterator[Columns]:
    """Yield all columns by chunk; as many chunks are read at once as there are threads."""
    for first in range(0, len(parts), database.threads):
        group = parts[first : first + database.threads]
        queries = {
            str(i): replace(query, rows=(part.first, part.last)) for i, part in enumerate(group)
        }
        values = database.read(queries)
        yield from (values.pop(name) for name in queries)


def distinct(values: Ints) -> list[int]:
    """Return the sorted distinct values of a column."""
    if len(values) and (values.strides == (0,) or (values == values[0]).all()):
        return [int(values[0])]
    result: list[int] = factorize(values)[1].tolist()
    return sorted(result)


def concat_columns(parts: Sequence[Columns]) -> Columns:
    """Return columns one after another."""
    return {name: _concat([part[name] for part in parts]) for name in parts[0]}


def _concat(parts: Sequence[Ints | Texts]) -> Ints | Texts:
    texts = [part for part in parts if isinstance(part, Texts)]
    if texts:
        return Texts.concat(texts)
    filled = [part for part in parts if isinstance(part, np.ndarray) and len(part)]
    if filled and all(p.strides == (0,) and p[0] == filled[0][0] for p in filled):
        return np.broadcast_to(filled[0][0], (sum(map(len, filled)),))
    return np.concatenate([np.empty(0, np.int64), *filled])


# -- The windows of calls


DENSE = 8  # an index by id may have at most this many entries per id
NEVER = np.iinfo(np.int16).max

Windows = NDArray[np.int16]


class CallWindows:
    """The window in which each (process, correlation id) was called.

    Calls are added as they are read. The earliest call of a key counts; ids below 1 stand for
    none.
    """

    def __init__(self) -> None:
        self.added: dict[int, list[tuple[Ints, Windows]]] = {}
        self.tables: dict[int, _WindowTable] = {}

    def add(self, process: Ints, correlation: Ints, window: Windows) -> None:
        for key in np.unique(process).tolist():  # a loop over processes
            rows = np.flatnonzero((process == key) & (correlation > 0))
            self.added.setdefault(key, []).append((correlation[rows], window[rows]))

    def finished(self) -> bool:
        """Build the tables for look-ups; return whether no key was called in two windows."""
        is_unique = True
        for process in list(self.added):
            ids, windows = (np.concatenate(c) for c in zip(*self.added.pop(process), strict=True))
            table = _WindowTable.of(ids, windows)
            is_unique &= bool((table.at(ids) == windows).all())
            self.tables[process] = table
        return is_unique

    def of(self, process: Ints, correlation: Ints) -> Ints:
        """Return the window of each call, MISSING where there is none."""
        window = np.full(len(process), MISSING)
        for key in np.unique(process).tolist():
            if key in self.tables:
                rows = np.flatnonzero(process == key)
                window[rows] = self.tables[key].at(correlation[rows])
        return window


class _WindowTable:
    """The windows of a process's calls: indexed by id if ids are dense, else sorted."""

    def __init__(self, ids: Ints, windows: Windows, low: int | None) -> None:
        self.ids, self.windows, self.low = ids, windows, low

    @classmethod
    def of(cls, ids: Ints, windows: Windows) -> _WindowTable:
        if not len(ids):
            return cls(ids, windows, None)
        low, high = int(ids.min()), int(ids.max())
        if high - low < DENSE * len(ids) + 1_000_000:
            table = np.full(high - low + 1, NEVER, np.int16)
            np.minimum.at(table, ids - low, windows)
            return cls(np.empty(0, np.int64), table, low)
        order = np.lexsort((windows, ids))
        return cls(ids[order], windows[order], None)

    def at(self, ids: Ints) -> Ints:
        if self.low is not None:
            is_inside = (ids >= self.low) & (ids < self.low + len(self.windows)) & (ids > 0)
            result = self.windows[np.where(is_inside, ids - self.low, 0)].astype(np.int64)
            return np.where(is_inside & (result != NEVER), result, MISSING)
        if not len(self.ids):
            return np.full(len(ids), MISSING)
        place = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        is_known = (self.ids[place] == ids) & (ids > 0)
        return np.where(is_known, self.windows[place].astype(np.int64), MISSING)


# -- The survey


ANNOTATION_COLUMNS = ("start", "end", "type", "thread")
SAMPLES, SAMPLE_ROWS = 256, 64
MAX_PHASES = 100_000  # start/end ranges: every window has all of them


@record
class Part:
    """A chunk: the windows that need any of its rows, and the number of rows before it."""

    chunk: Chunk
    windows: Flags
    before: int


ChunkTimes = tuple[Part, int, int]  # a chunk, its first start and its last end


@dataclass
class Survey:
    """The results of a survey. Window k holds the times cuts[k - 1] <= time < cuts[k].

    ``of`` is the window of each activity, by table; ``earliest`` the first start of an activity by
    window. ``keys`` are the processes by frame, ``used`` all (process, device). ``instants`` are
    the (thread, time) at which all open ranges matter to any window. ``last`` is when ranges end
    that never ended. ``totals`` are the sums of durations, in ns, by
    frame. ``left_out`` counts marks at impossible times. ``origin`` is that of `ExportFacts`.
    """

    cuts: Ints
    queries: Mapping[str, Query]
    origin: int
    parts: dict[str, list[Part]] = field(default_factory=dict)
    of: dict[str, NDArray[np.int16]] = field(default_factory=dict)
    earliest: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    instants: Instants = (np.empty(0, np.int64), np.empty(0, np.int64))
    counts: dict[str, int] = field(default_factory=dict)
    keys: dict[str, set[int]] = field(default_factory=dict)
    used: dict[tuple[int, int], None] = field(default_factory=dict)
    low: int = FOREVER
    high: int = -FOREVER
    last_device_time: int | None = None
    last: int = 0
    totals: dict[str, float] = field(default_factory=dict)
    open_ranges: tuple[int, float] = (0, 0.0)  # their number, and the sum of their starts
    left_out: int = 0
    has_open_ranges: bool = False
    phases: int = 0
    has_repeated_calls: bool = False

    @property
    def windows(self) -> int:
        return len(self.cuts) + 1

    @property
    def callers(self) -> Ints:
        """The processes with activities or API calls."""
        result = self.keys.get("launches", set()) | self.keys.get("activities", set())
        return np.array(sorted(result), np.int64)

    def window(self, time: Ints) -> Ints:
        return np.searchsorted(self.cuts, time, side="right")

    def edges(self, window: int) -> tuple[int, int]:
        """Return begin and end of a window; the outer windows have no limit."""
        ends = [-FOREVER, *self.cuts.tolist(), FOREVER]
        return ends[window], ends[window + 1]

    def add_total(self, frame: str, total: float) -> None:
        """Add to the durations of the rows of a frame, in ns."""
        self.totals[frame] = self.totals.get(frame, 0.0) + total

    def extend_span(self, *times: Ints) -> None:
        """Extend the span of the report to some times."""
        for time in times:
            if len(time):
                self.low, self.high = (
                    min(self.low, int(time.min())),
                    max(self.high, int(time.max())),
                )


def window_cuts(
    database: Database, queries: Mapping[str, Query], windows: int, origin: int
) -> Ints:
    """Return times that divide the rows of all event tables about equally, from samples."""
    samples = [
        _sample_starts(database, queries[t], schema.READ[t]) for t in EVENT_TABLES if t in queries
    ]
    if windows <= 1 or not samples:
        return np.empty(0, np.int64)
    times, weights = (np.concatenate(c) for c in zip(*samples, strict=True))
    mask = is_possible(times, origin)
    times, weights = times[mask], weights[mask]
    order = np.argsort(times, kind="stable")
    cumulated = np.cumsum(weights[order])
    places = np.searchsorted(cumulated, cumulated[-1:] * (np.arange(1, windows) / windows))
    result: Ints = np.unique(times[order][places]) if len(times) else times
    return result


def _sample_starts(
    database: Database, query: Query, table: Table
) -> tuple[Ints, NDArray[np.float64]]:
    """Return the starts of some rows of a table, and how many rows each of them represents."""
    first, last = database.bounds([query.table])[query.table]
    firsts = np.linspace(first, max(first, last - SAMPLE_ROWS), SAMPLES).astype(np.int64)
    samples = [Chunk(a, a + SAMPLE_ROWS - 1) for a in np.unique(firsts).tolist()]
    if last - first < SAMPLES * SAMPLE_ROWS:  # samples would overlap
        samples = [Chunk(first, last)]
    chunks_ = integers(database, query, table, samples, "start")
    starts = np.concatenate([np.empty(0, np.int64), *(c["start"] for c in chunks_)])
    return starts, np.full(len(starts), max(0, last - first + 1) / max(1, len(starts)))


def survey_export(
    survey: Survey,
    database: Database,
    rows: int,
    node_creations: Sequence[Ints],
    session: int,
) -> Survey:
    """Fill a survey from all event tables, ``rows`` rows at a time, and return it.

    ``node_creations`` are thread and time of the creations of graph nodes; ``session`` is the
    duration of the session in ns, -1 if unknown.
    """
    calls = _launches(survey, database, rows)
    survey.has_repeated_calls = not calls.finished()
    _activities(survey, database, rows, calls)
    survey.last = max(survey.last_device_time or 0, session)
    _annotations(survey, database, rows, node_creations)
    if survey.has_open_ranges:
        survey.high = max(survey.high, survey.last)
    opened, starts = survey.open_ranges
    survey.add_total("annotations", opened * float(survey.last) - starts)
    return survey


def _launches(survey: Survey, database: Database, rows: int) -> CallWindows:
    calls, before = CallWindows(), 0
    parts: list[Part] = []
    names = ("start", "end", "thread", "correlation")
    for chunk, raw in _chunks(survey, database, "launches", rows, *names):
        columns = raw | event_times("launches", raw, survey.origin)
        process, window = columns["thread"] & ~schema.THREAD_BITS, survey.window(columns["start"])
        calls.add(process, columns["correlation"], window.astype(np.int16))
        survey.keys.setdefault("launches", set()).update(distinct(process))
        parts.append(Part(chunk, _window_mask(window, survey.windows), before))
        before += len(window)
        _note_times(survey, "launches", columns)
    survey.parts["launches"], survey.counts["launches"] = parts, before
    return calls


def _activities(survey: Survey, database: Database, rows: int, calls: CallWindows) -> None:
    """Find the window of each activity; one without a process is of the only process, if any."""
    callers = np.array(sorted(survey.keys.get("launches", set())), np.int64)
    has_unknown = _read_activities(survey, database, rows=rows, calls=calls, callers=None)
    if has_unknown:
        _read_activities(
            survey, database, rows=rows, calls=calls, callers=np.union1d(callers, survey.callers)
        )
    survey.counts["activities"] = sum(survey.counts[t] for t in DEVICE_TABLES)


def _read_activities(
    survey: Survey, database: Database, rows: int, calls: CallWindows, callers: Ints | None
) -> bool:
    """Read all activities; return whether the process of any is missing."""
    survey.earliest, survey.used = np.full(survey.windows, FOREVER), {}
    has_unknown, names = False, ("start", "end", "process", "correlation", "device")
    for table in DEVICE_TABLES:
        parts, before, windows = [], 0, [np.empty(0, np.int16)]
        for chunk, raw in _chunks(survey, database, table, rows, *names):
            columns = raw | event_times(table, raw, survey.origin)
            process, start = columns["process"], columns["start"]
            has_unknown |= bool((process == MISSING).any())
            known = [p for p in distinct(process) if p != MISSING]
            survey.keys.setdefault("activities", set()).update(known)
            process = process if callers is None else fill_process(process, callers)
            window = calls.of(process, columns["correlation"])
            window = np.where(window == MISSING, survey.window(start), window)
            np.minimum.at(survey.earliest, window, start)
            for key in distinct(process):
                survey.used |= {
                    (key, device): None for device in distinct(columns["device"][process == key])
                }
            parts.append(Part(chunk, _window_mask(window, survey.windows), before))
            windows.append(window.astype(np.int16))
            before += len(window)
            _note_times(survey, table, columns)
        survey.parts[table], survey.counts[table] = parts, before
        survey.of[table] = np.concatenate(windows)
    return has_unknown


def _annotations(
    survey: Survey, database: Database, rows: int, node_creations: Sequence[Ints]
) -> None:
    """Find the windows that need each chunk: windows with open ranges, or all windows."""
    instants = [(node_creations[0], node_creations[1])]
    survey.instants = sort_instants(*instants[0])
    parts: list[ChunkTimes] = []
    before, marks = 0, 0
    for chunk, raw in _chunks(survey, database, "annotations", rows, *ANNOTATION_COLUMNS):
        columns = open_to_forever(raw, survey.origin)
        survey.left_out += int(impossible_marks(raw, survey.origin).sum())
        kinds = kinds_of_annotations(survey.instants, columns)
        needed = np.zeros(survey.windows, bool)
        start, end = columns["start"], columns["end"]
        first, last = survey.window(start), np.where(end > start, survey.window(end - 1), 0)
        last = np.maximum(first, last)
        open_in = np.zeros(survey.windows + 1, np.int64)
        np.add.at(open_in, first[kinds.ranges], 1)
        np.add.at(open_in, last[kinds.ranges] + 1, -1)
        needed |= np.cumsum(open_in)[:-1] > 0
        needed |= bool(kinds.always.any())
        spanning = kinds.ranges & ((last > first) | kinds.always) & ~kinds.phases
        instants.append((columns["thread"][spanning], start[spanning]))
        parts.append((Part(chunk, needed, before), int(start.min()), int(end.max())))
        before += int(kinds.ranges.sum())
        marks += int(kinds.marks.sum())
        _count_annotations(survey, columns, kinds)
    survey.instants = sort_instants(*(np.concatenate(c) for c in zip(*instants, strict=True)))
    survey.counts["ranges"], survey.counts["marks"] = before, marks
    _mark_open_ranges(survey, database, parts)
    survey.parts["annotations"] = [part for part, *_ in parts]


def _mark_open_ranges(survey: Survey, database: Database, parts: Sequence[ChunkTimes]) -> None:
    """Let all windows need the chunks with a range that was open at one of the instants."""
    times = np.sort(survey.instants[1])
    first = np.searchsorted(times, [start for _, start, _ in parts])
    last = np.searchsorted(times, [end for _, _, end in parts])
    candidates = [
        entry[0] for entry, is_near in zip(parts, (first < last).tolist(), strict=True) if is_near
    ]
    if not candidates:
        return
    query = survey.queries["annotations"]
    chunks_ = [part.chunk for part in candidates]
    tables = integers(database, query, schema.ANNOTATIONS, chunks_, *ANNOTATION_COLUMNS)
    for part, columns in zip(candidates, tables, strict=True):
        part.windows[:] |= bool(
            kinds_of_annotations(
                survey.instants, open_to_forever(columns, survey.origin)
            ).always.any()
        )


def open_to_forever(columns: dict[str, Ints], origin: int) -> dict[str, Ints]:
    """Return the columns of NVTX events with possible times, and FOREVER as the end of what never ended."""
    valid = columns | event_times("annotations", columns, origin)
    end = valid["end"]
    return valid | {"end": np.where(end == schema.NO_TIME, FOREVER, end)}


def _count_annotations(survey: Survey, columns: Mapping[str, Ints], kinds: AnnotationKinds) -> None:
    start, end = columns["start"][kinds.ranges], columns["end"][kinds.ranges]
    ends = end[end != FOREVER]
    survey.extend_span(start, ends, columns["start"][kinds.marks])
    is_open = end == FOREVER
    survey.add_total("annotations", total_ns(start[~is_open], ends))
    opened, starts = survey.open_ranges
    survey.open_ranges = opened + int(is_open.sum()), starts + float(start[is_open].sum())
    survey.has_open_ranges |= len(ends) < len(end)
    survey.last = max(
        survey.last, int(start.max(initial=-FOREVER)), int(ends.max(initial=-FOREVER))
    )
    survey.phases += int(kinds.phases.sum())
    process = columns["thread"][kinds.ranges] & ~schema.THREAD_BITS
    survey.keys.setdefault("ranges", set()).update(distinct(process))


def _note_times(survey: Survey, table: str, columns: Mapping[str, Ints]) -> None:
    survey.extend_span(columns["start"], columns["end"])
    frame = "activities" if table in DEVICE_TABLES else table
    survey.add_total(frame, total_ns(columns["start"], columns["end"]))
    if len(columns["start"]):
        latest = max(int(columns[c].max()) for c in ("start", "end"))
        previous = survey.last_device_time
        survey.last_device_time = latest if previous is None else max(latest, previous)


def _window_mask(window: Ints, windows: int) -> Flags:
    used: Flags = np.bincount(window, minlength=windows) > 0
    return used


def _chunks(
    survey: Survey, database: Database, table: str, rows: int, *columns: str
) -> Iterator[tuple[Chunk, dict[str, Ints]]]:
    """Yield the chunks of a table that have rows, with some of their columns."""
    query = survey.queries.get(table)
    parts = chunks(database, query, rows) if query else []
    read = integers(database, query, schema.READ[table], parts, *columns) if query else iter(())
    return ((c, r) for c, r in zip(parts, read, strict=True) if len(r["start"]))
