"""A first look over an export larger than memory: in which window of host time each row belongs, and what is of the whole.

A window holds the API calls that start in it, the activities that these issued (without a call: those that start in it),
and the ranges that are open at some time in it, each beginning in one window only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from importers.columns import LEAST_ROW_BYTES, Columns, Database, Query, ints_of
from importers.errors import NotAReport
from importers.frames import MISSING
from importers.nsys import schema
from importers.nsys.devices import ended, only_process
from importers.nsys.table import FLAG, Table
from importers.texts import Ints, Texts

# -- What annotations of an export are, and which of them matter to every window of it


FOREVER = np.iinfo(np.int64).max

Flags = NDArray[np.bool_]
Instants = tuple[Ints, Ints]  # (thread, time), sorted by both


def in_order(thread: Ints, time: Ints) -> Instants:
    """Sort instants."""
    order = np.lexsort((time, thread))
    return thread[order], time[order]


@dataclass(frozen=True)
class Wanted:
    """Of annotations: which are ranges, which of them phases, which are marks, and which every window has."""

    ranges: Flags
    phases: Flags
    marks: Flags
    always: Flags


def wanted(instants: Instants, columns: Mapping[str, Ints]) -> Wanted:
    """Tell what annotations are; ``end`` is FOREVER for none."""
    types = columns["type"] & (FLAG - 1)
    phases, marks = np.isin(types, schema.START_END), np.isin(types, schema.MARK)
    stacked = np.isin(types, schema.PUSH_POP)
    declared = np.isin(types, (schema.DOMAIN_NAME, schema.CATEGORY_NAME))
    holding = stacked & _holds(instants, columns)
    return Wanted(stacked | phases, phases, marks, phases | declared | holding)


def _holds(instants: Instants, columns: Mapping[str, Ints]) -> Flags:
    """Tell which ranges were open at any of some (thread, time), sorted by both."""
    holds = np.zeros(len(columns["start"]), bool)
    if not len(instants[0]):
        return holds
    for thread in np.unique(columns["thread"]).tolist():  # a turn per thread
        a, b = np.searchsorted(instants[0], (thread, thread + 1))
        rows, times = np.flatnonzero(columns["thread"] == thread), instants[1][a:b]
        first = np.searchsorted(times, columns["start"][rows], side="left")
        holds[rows] = np.append(times, FOREVER)[first] < columns["end"][rows]
    return holds


# -- Tables of an export read some rows at a time, and what of them was wanted put together


@dataclass(frozen=True)
class Chunk:
    """Rows of a table by their rowids, both included."""

    first: int
    last: int


def chunks(database: Database, query: Query, rows: int, *, sparse: bool = False) -> list[Chunk]:
    """Part a table into chunks of about so many rows, one whose row numbers lie far apart (``sparse``) not at all.

    Raises NotAReport where they may not.
    """
    first, last = database.bounds([query.table])[query.table]
    if last - first >= database.path.stat().st_size // LEAST_ROW_BYTES:
        if sparse:
            return [Chunk(first, last)]
        name = database.path.name
        raise NotAReport(f"{name}: row numbers of {query.table} lie far apart: not with --memory")
    edges = [*range(first, last + 1, rows), last + 1]
    return [Chunk(a, b - 1) for a, b in pairwise(edges)]


def integers(
    database: Database, query: Query, table: Table, parts: Sequence[Chunk], *columns: str
) -> Iterator[dict[str, Ints]]:
    """Read some integer columns chunk by chunk, those missing in every row that the export lacks."""
    there = {c: query.columns[c] for c in columns if c in query.columns}
    # Whatever is lacking: that there is one row per row is known only from a column that is not.
    wanted = there or dict([next(iter(query.columns.items()))])
    for found in read(database, Query(query.table, wanted), parts):
        rows = len(next(iter(found.values())))
        lacking = {
            c: np.broadcast_to(np.int64(table.columns[c].missing), (rows,))
            for c in columns
            if c not in there
        }
        yield {c: lacking[c] if c in lacking else ints_of(found, c) for c in columns}


def read(database: Database, query: Query, parts: Sequence[Chunk]) -> Iterator[Columns]:
    """Read all columns chunk by chunk, as many at once as there are threads."""
    for first in range(0, len(parts), database.threads):
        some = parts[first : first + database.threads]
        asked = {str(n): replace(query, rows=(p.first, p.last)) for n, p in enumerate(some)}
        found = database.read(asked)
        yield from (found.pop(name) for name in asked)


def distinct(values: Ints) -> list[int]:
    """Return the distinct values of a column, sorted."""
    if len(values) and (values.strides == (0,) or (values == values[0]).all()):
        return [int(values[0])]
    return sorted(pd.unique(values).tolist())


def picked(columns: Columns, rows: Ints) -> Columns:
    """Return some rows; a column of one value throughout takes no memory, as before."""
    return {name: _picked(column, rows) for name, column in columns.items()}


def _picked(column: Ints | Texts, rows: Ints) -> Ints | Texts:
    if isinstance(column, Texts):
        return column if len(rows) == len(column) else column.take(rows)
    if column.strides == (0,):
        return np.broadcast_to(np.int64(column[0] if len(column) else 0), (len(rows),))
    return column if len(rows) == len(column) else column[rows]


def concatenated(parts: Sequence[Columns]) -> Columns:
    """Put columns one after another."""
    return {name: _concatenated([part[name] for part in parts]) for name in parts[0]}


def _concatenated(parts: Sequence[Ints | Texts]) -> Ints | Texts:
    texts = [part for part in parts if isinstance(part, Texts)]
    if texts:
        return Texts.concat(texts)
    filled = [part for part in parts if isinstance(part, np.ndarray) and len(part)]
    if filled and all(p.strides == (0,) and p[0] == filled[0][0] for p in filled):
        return np.broadcast_to(filled[0][0], (sum(map(len, filled)),))
    return np.concatenate([np.empty(0, np.int64), *filled])


# -- The window of host time in which each (process, correlation id) was called: what sends activities to their call


DENSE = 8  # a table indexed by id may be this many times longer than there are ids
NEVER = np.iinfo(np.int16).max

Windows = NDArray[np.int16]


class Calling:
    """Calls are added as they are read; of several with one key the earliest counts, ids of 0 and below for none."""

    def __init__(self) -> None:
        self.added: dict[int, list[tuple[Ints, Windows]]] = {}
        self.found: dict[int, _Table] = {}

    def add(self, process: Ints, correlation: Ints, window: Windows) -> None:
        """Add some calls."""
        for one in np.unique(process).tolist():  # a turn per process
            rows = np.flatnonzero((process == one) & (correlation > 0))
            self.added.setdefault(one, []).append((correlation[rows], window[rows]))

    def finished(self) -> bool:
        """Make what `of` looks into; tell whether no key was called in two windows."""
        alone = True
        for process in list(self.added):
            ids, windows = (np.concatenate(c) for c in zip(*self.added.pop(process), strict=True))
            table = _Table.of(ids, windows)
            alone &= bool((table.at(ids) == windows).all())
            self.found[process] = table
        return alone

    def of(self, process: Ints, correlation: Ints) -> Ints:
        """Return the window of each call, MISSING where there is none."""
        window = np.full(len(process), MISSING)
        for one in np.unique(process).tolist():
            if one in self.found:
                rows = np.flatnonzero(process == one)
                window[rows] = self.found[one].at(correlation[rows])
        return window


class _Table:
    """The windows of one process's calls: by id where ids are nearly consecutive, else sorted."""

    def __init__(self, ids: Ints, windows: Windows, low: int | None) -> None:
        self.ids, self.windows, self.low = ids, windows, low

    @classmethod
    def of(cls, ids: Ints, windows: Windows) -> _Table:
        if not len(ids):
            return cls(ids, windows, None)
        low, high = int(ids.min()), int(ids.max())
        if high - low < DENSE * len(ids) + 1_000_000:
            table = np.full(high - low + 1, NEVER, np.int16)
            np.minimum.at(table, ids - low, windows)
            return cls(np.empty(0, np.int64), table, low)
        order = np.lexsort((windows, ids))
        return cls(ids[order], windows[order], None)

    def at(self, asked: Ints) -> Ints:
        if self.low is not None:
            inside = (asked >= self.low) & (asked < self.low + len(self.windows)) & (asked > 0)
            found = self.windows[np.where(inside, asked - self.low, 0)].astype(np.int64)
            return np.where(inside & (found != NEVER), found, MISSING)
        if not len(self.ids):
            return np.full(len(asked), MISSING)
        place = np.minimum(np.searchsorted(self.ids, asked), len(self.ids) - 1)
        hit = (self.ids[place] == asked) & (asked > 0)
        return np.where(hit, self.windows[place].astype(np.int64), MISSING)


# -- A first look over an export larger than memory: in which window of host time each row belongs, and what is of the whole


OF_ANNOTATIONS = ("start", "end", "type", "thread")
ON_DEVICE = ("kernels", "copies", "decompressions", "fills", "graphs")
LONG = ("launches", *ON_DEVICE, "annotations")  # tables with a row per event
PROBES, PROBE_ROWS = 256, 64
MOST_PHASES = 100_000  # start/end ranges: every window has all of them


@dataclass(frozen=True)
class Part:
    """A chunk of a table; which windows need any of it, and how many rows of ours were before."""

    chunk: Chunk
    windows: Flags
    before: int


Seen = tuple[Part, int, int]  # with the first start and the last end in it


@dataclass
class Survey:
    """What was found. ``cuts`` part the windows: window k is of cuts[k - 1] <= time < cuts[k].

    ``of`` is the window of every activity, per table; ``earliest`` the first start of an activity of each window.
    ``processes`` are all, ``used`` all (process, device); ``instants`` are (thread, time) at which what is open
    matters in any window; ``last`` is when what never ended does.
    """

    cuts: Ints
    queries: Mapping[str, Query]
    parts: dict[str, list[Part]] = field(default_factory=dict)
    of: dict[str, NDArray[np.int16]] = field(default_factory=dict)
    earliest: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    instants: Instants = (np.empty(0, np.int64), np.empty(0, np.int64))
    counts: dict[str, int] = field(default_factory=dict)
    keys: dict[str, set[int]] = field(default_factory=dict)
    used: dict[tuple[int, int], None] = field(default_factory=dict)
    low: int = FOREVER
    high: int = -FOREVER
    worked_until: int | None = None
    last: int = 0
    undone: bool = False  # whether a range never ended
    phases: int = 0
    repeated: bool = False  # whether a correlation id was called in two windows

    @property
    def windows(self) -> int:
        """How many there are."""
        return len(self.cuts) + 1

    @property
    def callers(self) -> Ints:
        """The processes that anything on a device or any API call is of."""
        found = self.keys.get("launches", set()) | self.keys.get("activities", set())
        return np.array(sorted(found), np.int64)

    def window(self, time: Ints) -> Ints:
        """Return the window of each time."""
        return np.searchsorted(self.cuts, time, side="right")

    def edges(self, window: int) -> tuple[int, int]:
        """Return from when to when a window is, the outer ones without an end."""
        ends = [-FOREVER, *self.cuts.tolist(), FOREVER]
        return ends[window], ends[window + 1]

    def seen(self, *times: Ints) -> None:
        """Let the span of the report hold some times."""
        for time in times:
            if len(time):
                self.low, self.high = (
                    min(self.low, int(time.min())),
                    max(self.high, int(time.max())),
                )


def cuts(database: Database, queries: Mapping[str, Query], windows: int) -> Ints:
    """Return times that part the rows of all long tables into about equal windows, by samples of their starts."""
    found = [_probed(database, queries[t], schema.READ[t]) for t in LONG if t in queries]
    if windows <= 1 or not found:
        return np.empty(0, np.int64)
    times, weights = (np.concatenate(c) for c in zip(*found, strict=True))
    order = np.argsort(times, kind="stable")
    below = np.cumsum(weights[order])
    at = np.searchsorted(below, below[-1:] * (np.arange(1, windows) / windows))
    found_cuts: Ints = np.unique(times[order][at]) if len(times) else times
    return found_cuts


def _probed(database: Database, query: Query, table: Table) -> tuple[Ints, NDArray[np.float64]]:
    """Return the starts of some rows of a table, and how many rows each stands for."""
    first, last = database.bounds([query.table])[query.table]
    at = np.linspace(first, max(first, last - PROBE_ROWS), PROBES).astype(np.int64)
    probes = [Chunk(a, a + PROBE_ROWS - 1) for a in np.unique(at).tolist()]
    if last - first < PROBES * PROBE_ROWS:  # probes would overlap
        probes = [Chunk(first, last)]
    every = integers(database, query, table, probes, "start")
    starts = np.concatenate([np.empty(0, np.int64), *(c["start"] for c in every)])
    return starts, np.full(len(starts), max(0, last - first + 1) / max(1, len(starts)))


def surveyed(
    database: Database,
    queries: Mapping[str, Query],
    cut: Ints,
    rows: int,
    made: Sequence[Ints],
    session: int,
) -> Survey:
    """Look over all long tables, so many rows at a time; ``made`` are thread and time of nodes of CUDA graphs."""
    found = Survey(cut, queries)
    calling = _launches(found, database, rows)
    found.repeated = not calling.finished()
    _activities(found, database, rows, calling)
    found.last = max(found.worked_until or 0, session)
    _annotations(found, database, rows, made)
    if found.undone:
        found.high = max(found.high, found.last)
    return found


def _launches(found: Survey, database: Database, rows: int) -> Calling:
    calling, before = Calling(), 0
    parts: list[Part] = []
    wanted_ = ("start", "end", "thread", "correlation")
    for chunk, read in _chunks(found, database, "launches", rows, *wanted_):
        columns = ended(read)
        process, window = columns["thread"] & ~schema.THREAD_BITS, found.window(columns["start"])
        calling.add(process, columns["correlation"], window.astype(np.int16))
        found.keys.setdefault("launches", set()).update(distinct(process))
        parts.append(Part(chunk, _used(window, found.windows), before))
        before += len(window)
        _worked(found, columns)
    found.parts["launches"], found.counts["launches"] = parts, before
    return calling


def _activities(found: Survey, database: Database, rows: int, calling: Calling) -> None:
    """Find the window of every activity; what says no process may be of the only one there is."""
    callers = np.array(sorted(found.keys.get("launches", set())), np.int64)
    unknown = _of_devices(found, database, rows, calling, None)
    if unknown:
        _of_devices(found, database, rows, calling, np.union1d(callers, found.callers))
    found.counts["activities"] = sum(found.counts[t] for t in ON_DEVICE)


def _of_devices(
    found: Survey, database: Database, rows: int, calling: Calling, callers: Ints | None
) -> bool:
    """Go over everything that ran on a device; return whether something of it says no process."""
    found.earliest, found.used = np.full(found.windows, FOREVER), {}
    unknown, wanted = False, ("start", "end", "process", "correlation", "device")
    for table in ON_DEVICE:
        parts, before, windows = [], 0, [np.empty(0, np.int16)]
        for chunk, read in _chunks(found, database, table, rows, *wanted):
            columns = ended(read)
            process, start = columns["process"], columns["start"]
            unknown |= bool((process == MISSING).any())
            own = [p for p in distinct(process) if p != MISSING]
            found.keys.setdefault("activities", set()).update(own)
            process = process if callers is None else only_process(process, callers)
            window = calling.of(process, columns["correlation"])
            window = np.where(window == MISSING, found.window(start), window)
            np.minimum.at(found.earliest, window, start)
            for one in distinct(process):
                found.used |= {(one, d): None for d in distinct(columns["device"][process == one])}
            parts.append(Part(chunk, _used(window, found.windows), before))
            windows.append(window.astype(np.int16))
            before += len(window)
            _worked(found, columns)
        found.parts[table], found.counts[table] = parts, before
        found.of[table] = np.concatenate(windows)
    return unknown


def _annotations(found: Survey, database: Database, rows: int, made: Sequence[Ints]) -> None:
    """Find the windows that need each chunk: for ranges open in them, and for what matters everywhere."""
    everywhere = [(made[0], made[1])]
    found.instants = in_order(*everywhere[0])
    seen: list[Seen] = []
    before, marks = 0, 0
    for chunk, read in _chunks(found, database, "annotations", rows, *OF_ANNOTATIONS):
        columns = _endless(read)
        is_range, needed = wanted(found.instants, columns), np.zeros(found.windows, bool)
        start, end = columns["start"], columns["end"]
        first, stop = found.window(start), np.where(end > start, found.window(end - 1), 0)
        stop = np.maximum(first, stop)
        open_in = np.zeros(found.windows + 1, np.int64)
        np.add.at(open_in, first[is_range.ranges], 1)
        np.add.at(open_in, stop[is_range.ranges] + 1, -1)
        needed |= np.cumsum(open_in)[:-1] > 0
        needed |= bool(is_range.always.any())
        carried = is_range.ranges & ((stop > first) | is_range.always) & ~is_range.phases
        everywhere.append((columns["thread"][carried], start[carried]))
        seen.append((Part(chunk, needed, before), int(start.min()), int(end.max())))
        before += int(is_range.ranges.sum())
        marks += int(is_range.marks.sum())
        _noted(found, columns, is_range)
    found.instants = in_order(*(np.concatenate(c) for c in zip(*everywhere, strict=True)))
    found.counts["ranges"], found.counts["marks"] = before, marks
    _held(found, database, seen)
    found.parts["annotations"] = [part for part, *_ in seen]


def _held(found: Survey, database: Database, seen: Sequence[Seen]) -> None:
    """Let all windows need a chunk with a range that was open at an instant that matters."""
    times = np.sort(found.instants[1])
    first = np.searchsorted(times, [start for _, start, _ in seen])
    last = np.searchsorted(times, [end for _, _, end in seen])
    near = [one[0] for one, hit in zip(seen, (first < last).tolist(), strict=True) if hit]
    if not near:
        return
    query = found.queries["annotations"]
    chunks_ = [part.chunk for part in near]
    every = integers(database, query, schema.ANNOTATIONS, chunks_, *OF_ANNOTATIONS)
    for part, columns in zip(near, every, strict=True):
        part.windows[:] |= bool(wanted(found.instants, _endless(columns)).always.any())


def _endless(columns: dict[str, Ints]) -> dict[str, Ints]:
    end = columns["end"]
    return columns | {"end": np.where(end == schema.NO_END, FOREVER, end)}


def _noted(found: Survey, columns: Mapping[str, Ints], are: Wanted) -> None:
    start, end = columns["start"][are.ranges], columns["end"][are.ranges]
    closed = end[end != FOREVER]
    found.seen(start, closed, columns["start"][are.marks])
    found.undone |= len(closed) < len(end)
    found.last = max(
        found.last, int(start.max(initial=-FOREVER)), int(closed.max(initial=-FOREVER))
    )
    found.phases += int(are.phases.sum())
    process = columns["thread"][are.ranges] & ~schema.THREAD_BITS
    found.keys.setdefault("ranges", set()).update(distinct(process))


def _worked(found: Survey, columns: Mapping[str, Ints]) -> None:
    found.seen(columns["start"], columns["end"])
    if len(columns["start"]):
        most = max(int(columns[c].max()) for c in ("start", "end"))
        known = found.worked_until
        found.worked_until = most if known is None else max(most, known)


def _used(window: Ints, windows: int) -> Flags:
    used: Flags = np.bincount(window, minlength=windows) > 0
    return used


def _chunks(
    found: Survey, database: Database, table: str, rows: int, *columns: str
) -> Iterator[tuple[Chunk, dict[str, Ints]]]:
    """Yield the chunks of a table that have rows, with some of their columns."""
    query = found.queries.get(table)
    parts = chunks(database, query, rows) if query else []
    read = integers(database, query, schema.READ[table], parts, *columns) if query else iter(())
    return ((c, r) for c, r in zip(parts, read, strict=True) if len(r["start"]))
