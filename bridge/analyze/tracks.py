"""Which process and thread of a viewer each slice is drawn on, what they are called, in which order.

Viewers know a track by two numbers. A process keeps its own, so do its threads; streams, lanes and
devices get numbers that no operating system gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count, pairwise

import numpy as np
import pandas as pd

from bridge.analyze.ranks import Ranks
from bridge.analyze.ranks.members import PLACE, of_file
from bridge.join.arrays import NONE, Flags, Ints, by, number, outer_first, runs
from bridge.join.nesting import parents
from importers import frames
from importers.report import Report

OURS = 10_000_000  # beyond any process or thread number of Linux (4 194 304)
ID_BITS = 0xFFFFFF
HOME_ROOM = 100  # places in the order of a process's tracks that a home has for its lanes
ORDER = {"steps": 0, "ops": 0, "overhead": 49, "api": 50, "projection": 0, "stream": 50}
SUFFIXES = {"api": " CUDA API", "overhead": " profiler", "projection": " ops"}


@dataclass(frozen=True)
class Group:
    """What a viewer calls a process: a process, or a device of a process."""

    pid: int
    name: str
    order: int
    report: int = 0
    process: int = 0  # globalPid
    device: int = NONE  # of the process; NONE for the process itself


@dataclass(frozen=True)
class Track:
    """A row of the viewer."""

    group: Group
    tid: int
    name: str
    order: int


@dataclass(frozen=True)
class Home:
    """What lanes are made for: a thread of a process, or a stream of a device; ``tid`` of its main track."""

    group: Group
    tid: int
    name: str


class Tracks:
    """Hands out tracks; a track's number is its place in ``made``."""

    def __init__(
        self, report: Report, first: int = OURS, ranks: Mapping[tuple[int, int], str] | None = None
    ) -> None:
        self.report = report
        self.made: list[Track] = []
        self.homes: list[Home] = []
        self.numbers = count(first)
        self.known: dict[tuple[str, tuple[int, ...]], int] = {}
        self.processes: dict[tuple[int, int], Group] = {}
        self.devices: dict[tuple[int, int, int], Group] = {}
        self.process_names = _names(report.processes, "process")
        self.thread_names = _names(report.threads, "thread")
        self.gpu_names = _names(report.devices, "process", "device")
        self.ranks = _shown(report) if ranks is None else ranks
        self.several_contexts = len(np.unique(report.activities["context"])) > 1

    def of_devices(self) -> Tracks:
        """Return tracks for devices, which can be handed out at the same time as these.

        The processes that they belong to are known before, and their numbers are others.
        """
        activities = self.report.activities
        processes = activities[["report", "process"]].drop_duplicates()
        for report, process in zip(*(processes[c].tolist() for c in processes), strict=True):
            self._process(report, process)
        apart = Tracks(self.report, 2 * OURS, self.ranks)
        apart.processes = self.processes
        return apart

    def host(self, report: Ints, thread: Ints) -> Ints:
        """Return the home of each row's thread."""
        return self._each("thread", self._thread, report, thread)

    def streams(self, activities: pd.DataFrame) -> Ints:
        """Return the home of each activity's stream; contexts and processes have their own."""
        columns = ("report", "process", "device", "context", "stream")
        return self._each("stream", self._stream, *(frames.ints(activities, c) for c in columns))

    @cached_property
    def of_activities(self) -> Ints:
        """The home of each activity's stream, of all of the report."""
        return self.streams(self.report.activities)

    def steps(self, report: Ints, process: Ints) -> Ints:
        """Return the home of the steps of each row's process."""
        return self._each("steps", self._steps, report, process)

    def devices_of(self, activities: pd.DataFrame) -> tuple[Ints, Ints]:
        """Return a number per activity for its (process, device), from 0, and a track of each of these."""
        columns = (frames.ints(activities, c) for c in ("report", "process", "device"))
        code, rows = number(*columns)
        first = self.streams(activities.iloc[rows])
        return code, self.lane(first, np.zeros(len(rows), np.int64), "stream")

    def lane(self, home: Ints, lane: Ints, what: str) -> Ints:
        """Return the track for each (home, lane); ``what`` is a word of `ORDER`."""
        return self._each(what, lambda h, n: self._track(h, n, what), home, lane)

    def group(self, report: int, process: int, device: int = NONE) -> Group:
        """Return the group of a process, or of a device of it."""
        if device == NONE:
            return self._process(report, process)
        return self._device(report, process, device)

    def bare(self, group: Group, name: str) -> int:
        """Return a new track of a group, for what is of none of its threads and streams."""
        self.made.append(Track(group, next(self.numbers), name, 0))
        return len(self.made) - 1

    def first_of_group(self) -> Ints:
        """Return for each track the first of its group; NONE (the last entry) for none."""
        first: dict[Group, int] = {}
        return np.array(
            [*(first.setdefault(t.group, n) for n, t in enumerate(self.made)), NONE], np.int64
        )

    def _each(self, what: str, make: Callable[..., int], *keys: Ints) -> Ints:
        """Return what ``make`` makes of every distinct combination of keys, once for ever, per row."""
        if not len(keys[0]):
            return np.empty(0, np.int64)
        codes, rows = number(*keys)
        found = []
        for row in rows.tolist():
            key = (what, tuple(int(k[row]) for k in keys))
            if key not in self.known:
                self.known[key] = make(*key[1])
            found.append(self.known[key])
        return np.array(found, np.int64)[codes]

    def _track(self, home: int, lane: int, what: str) -> int:
        of = self.homes[home]
        name = of.name + SUFFIXES.get(what, "") + (f" ({lane + 1})" if lane else "")
        tid = next(self.numbers) if lane or what in SUFFIXES else of.tid
        order = home * HOME_ROOM + ORDER[what] + min(lane, HOME_ROOM // 2 - 1)
        self.made.append(Track(of.group, tid, name, order))
        return len(self.made) - 1

    def _steps(self, report: int, process: int) -> int:
        self.homes.append(Home(self._process(report, process), next(self.numbers), "steps"))
        return len(self.homes) - 1

    def _thread(self, report: int, thread: int) -> int:
        tid = thread & ID_BITS
        name = self.thread_names.get((report, thread)) or f"thread {tid}"
        self.homes.append(Home(self._process(report, thread & ~ID_BITS), tid, name))
        return len(self.homes) - 1

    def _stream(self, report: int, process: int, device: int, context: int, stream: int) -> int:
        name = f"stream {stream}" + (f" (context {context})" if self.several_contexts else "")
        self.homes.append(Home(self._device(report, process, device), next(self.numbers), name))
        return len(self.homes) - 1

    def _process(self, report: int, process: int) -> Group:
        """A process keeps its number unless another capture or machine has one like it."""
        key = (report, process)
        if key not in self.processes:
            own = (process >> 24) & ID_BITS
            taken = own in {group.pid for group in self.processes.values()}
            name = self.process_names.get(key, "").rpartition("/")[2] or "process"
            pid = next(self.numbers) if taken else own
            order = 2 * len(self.processes)
            self.processes[key] = Group(pid, name + self._where(key), order, report, process)
        return self.processes[key]

    def _where(self, key: tuple[int, int]) -> str:
        """Return the rank of a process, and where there are several captures its file, with the host if they have several."""
        report, sources = key[0], self.report.source
        shown = self.ranks.get(key, "")
        if len(sources) == 1:
            return shown
        nth = f" ({report + 1})" if sources.count(sources[report]) > 1 else ""
        return f"{shown} in {sources[report]}{nth}"

    def _device(self, report: int, process: int, device: int) -> Group:
        key = (report, process, device)
        if key not in self.devices:
            of = self._process(report, process)
            gpu = f"GPU {device} {self.gpu_names.get(key, '')}".rstrip()
            name = f"{gpu}, {of.name} {(process >> 24) & ID_BITS}"
            self.devices[key] = Group(
                next(self.numbers), name, of.order + 1, report, process, device
            )
        return self.devices[key]


def _shown(report: Report) -> dict[tuple[int, int], str]:
    """Return ``rank 3 on host`` for each process of which that is known; the host where there are several.

    In one capture the place alone is no rank.
    """
    members = Ranks.of(report).members
    several, hosts = len(report.source) > 1, {one.host for one in members if one.host}
    found = {}
    for one in members:  # a turn per process
        rank = f" rank {one.rank}" if several or one.known_by != PLACE else ""
        host = f" on {one.host}" if one.host and len(hosts) > 1 else ""
        found[one.report, one.process] = (rank if one.rank != NONE else "") + host
    return found


def rank_of(report: Report, nth: int) -> int | None:
    """Return the rank of a capture as a whole, as best known: see docs/ranks.md; None if nothing says it."""
    found = of_file(report.facts[nth], report.source[nth])
    return found[0][0] if found else None


def _names(table: pd.DataFrame, *keys: str) -> dict[tuple[int, ...], str]:
    ids = zip(*(table[key].tolist() for key in ("report", *keys)), strict=True)
    return dict(zip(ids, table["name"].astype(str).tolist(), strict=True))


# -- Lanes: on one track of a viewer slices may nest or follow each other, never cross


def apart(track: Ints, start: Ints, end: Ints) -> Ints:
    """Return a lane per slice such that no two of a lane overlap at all, as few as possible."""
    order = by(track, start, end)  # of one start, what has no length first: it is in nobody's way
    overlaps = _overlapping(track[order], start[order], end[order])
    return _lanes(track, order, overlaps, lambda rows: _first_fit(start[rows], end[rows]))


def nested(track: Ints, start: Ints, end: Ints) -> Ints:
    """Return a lane per slice such that those of a lane nest; given order is outer before inner."""
    order = outer_first(track, start, end)
    if not _overlapping(track[order], start[order], end[order]).any():
        return np.zeros(len(order), np.int64)  # as calls of an API are, mostly
    above = parents(track[order], start[order], end[order])
    crosses = (above != NONE) & (end[order] > end[order][above])
    return _lanes(track, order, crosses, lambda rows: _nesting(start[rows], end[rows]))


def _overlapping(track: Ints, start: Ints, end: Ints) -> Flags:
    """Tell which of sorted slices overlap the one before; if any two do, two neighbours do."""
    found = np.zeros(len(start), bool)
    found[1:] = (track[1:] == track[:-1]) & (start[1:] < end[:-1])
    return found


def _lanes(track: Ints, order: Ints, wrong: Flags, chosen: Callable[[Ints], Flags]) -> Ints:
    """Fill lanes of the tracks that have anything wrong, one lane after the other."""
    lane = np.zeros(len(track), np.int64)
    bad = np.isin(track[order], np.unique(track[order][wrong]))
    left, number = order[bad], 0
    while len(left):
        edges = runs(track[left])
        stays = np.concatenate([chosen(left[a:b]) for a, b in pairwise(edges)])
        lane[left[stays]] = number
        left, number = left[~stays], number + 1
    return lane


def _first_fit(start: Ints, end: Ints) -> Flags:
    """Choose the first slice, then always the next that starts once the last chosen has ended."""
    count = len(start)
    following = np.append(np.searchsorted(start, end, side="left"), count)
    following[:-1] = np.maximum(following[:-1], np.arange(1, count + 1))  # of no length: move on
    chosen = np.zeros(count + 1, bool)
    reached = np.zeros(1, np.int64)
    while reached[-1] != count:  # each round knows twice as many steps, and takes them at once
        reached = np.concatenate((reached, following[reached]))
        following = following[following]
    chosen[reached] = True
    return chosen[:-1]


def _nesting(start: Ints, end: Ints) -> Flags:
    """Choose slices that nest: leave out whichever crosses, until none does."""
    kept = np.arange(len(start))
    while True:
        above = parents(np.zeros(len(kept), np.int64), start[kept], end[kept])
        crosses = (above != NONE) & (end[kept] > end[kept][above])
        if not crosses.any():
            chosen = np.zeros(len(start), bool)
            chosen[kept] = True
            return chosen
        kept = kept[~crosses]
