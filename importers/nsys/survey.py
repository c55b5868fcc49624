"""A first look over an export larger than memory: in which window of host time each row belongs, and what is of the whole.

A window holds the API calls that start in it, the activities that these issued (without a call: those that start in it),
and the ranges that are open at some time in it, each beginning in one window only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from importers.columns import Database, Query
from importers.frames import MISSING
from importers.nsys import schema
from importers.nsys.calling import Calling
from importers.nsys.chunks import Chunk, chunks, distinct, integers
from importers.nsys.devices import ended, only_process
from importers.nsys.table import Table
from importers.nsys.wanted import FOREVER, Flags, Instants, Wanted, in_order, wanted
from importers.texts import Ints

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
