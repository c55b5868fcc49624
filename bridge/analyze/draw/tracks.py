"""Assign slices to the processes and threads of a trace viewer, with their names and order.

Viewers identify a track by two numbers. Processes and threads keep their own; streams, lanes and
devices get numbers that no operating system assigns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count, pairwise

import numpy as np

from bridge.analyze.core.devices import gpu_names
from bridge.analyze.run.ranks import Ranks
from bridge.analyze.run.ranks.members import PLACE
from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.importers.frames import distinct_keys
from bridge.importers.records import record
from bridge.join.arrays import (
    NONE,
    Flags,
    Ints,
    is_sorted,
    number_groups,
    order_by,
    outer_first_order,
    repeated,
    run_edges,
)
from bridge.join.nesting import parents

FIRST_NUMBER = 10_000_000  # above all process and thread ids of Linux (4 194 304)
LANES_PER_HOME = 100  # positions in the order of tracks that are reserved for the lanes of a home
ORDER = {
    "steps": 0,
    "ops": 0,
    "gil": 47,
    "osrt": 48,
    "overhead": 49,
    "api": 50,
    "projection": 0,
    "stream": 50,
}
SUFFIXES = {
    "api": " CUDA API",
    "overhead": " profiler overhead",
    "osrt": " OS runtime",
    "gil": " GIL",
    "projection": " ops",
}


@dataclass(frozen=True)
class Group:
    """A group of tracks, which viewers show as a process: a process, or a device of a process."""

    pid: int
    name: str
    order: int
    report: int = 0
    process: int = 0  # globalPid
    device: int = NONE  # of the process; NONE for the process itself


@record
class Track:
    """A row of the viewer."""

    group: Group
    tid: int
    name: str
    order: int


@record
class Home:
    """The owner of lanes: a thread or a stream; ``tid`` is that of its first track."""

    group: Group
    tid: int
    name: str


class Tracks:
    """The tracks of a capture; the number of a track is its position in ``made``."""

    def __init__(
        self,
        capture: Capture,
        first: int = FIRST_NUMBER,
        ranks: Mapping[tuple[int, int], str] | None = None,
    ) -> None:
        self.capture = capture
        self.made: list[Track] = []
        self.homes: list[Home] = []
        self.numbers = count(first)
        self.known: dict[tuple[str, tuple[int, ...]], int] = {}
        self.processes: dict[tuple[int, int], Group] = {}
        self.devices: dict[tuple[int, int, int], Group] = {}
        self.process_names = _names(capture.processes, "process")
        self.thread_names = _names(capture.threads, "thread")
        self.gpu_names = gpu_names(capture)
        self.ranks = _rank_texts(capture) if ranks is None else ranks
        self.several_contexts = len(np.unique(capture.activities.context)) > 1

    def of_devices(self) -> Tracks:
        """Return separate tracks for devices, which another thread may use at the same time.

        Processes are registered before; the numbers of the new tracks differ from those of this
        object.
        """
        activities = self.capture.activities
        report, process = activities.report, activities.process
        _, rows = distinct_keys(report, process)
        for key in zip(report[rows].tolist(), process[rows].tolist(), strict=True):
            self._process(*key)
        disjoint_lanes = Tracks(self.capture, 2 * FIRST_NUMBER, self.ranks)
        disjoint_lanes.processes = self.processes
        return disjoint_lanes

    def host(self, report: Ints, thread: Ints) -> Ints:
        """Return the home of the thread of each row."""
        return self._each("thread", self._thread, report, thread)

    def streams(self, activities: frames.Activities) -> Ints:
        """Return the home of the stream of each activity; streams differ by context and process."""
        columns = ("report", "process", "device", "context", "stream")
        return self._each("stream", self._stream, *(activities[c] for c in columns))

    @cached_property
    def of_activities(self) -> Ints:
        """The home of the stream of each activity of the capture."""
        return self.streams(self.capture.activities)

    def steps(self, report: Ints, process: Ints) -> Ints:
        """Return the home of the steps of the process of each row."""
        return self._each("steps", self._steps, report, process)

    def devices_of(self, activities: frames.Activities) -> tuple[Ints, Ints]:
        """Return a code per activity for its (process, device), from 0, and a track for each."""
        columns = activities.report, activities.process, activities.device
        code, rows = number_groups(*columns)
        first = self.streams(activities.take(rows))
        return code, self.lane(first, np.zeros(len(rows), np.int64), "stream")

    def lane(self, home: Ints, lane: Ints, kind: str) -> Ints:
        """Return the track for each (home, lane); ``kind`` is a key of `ORDER`."""
        return self._each(kind, lambda h, n: self._track(h, n, kind), home, lane)

    def group(self, report: int, process: int, device: int = NONE) -> Group:
        """Return the group of a process, or of one of its devices."""
        if device == NONE:
            return self._process(report, process)
        return self._device(report, process, device)

    def bare(self, group: Group, name: str) -> int:
        """Return a new track of a group that belongs to none of its threads and streams."""
        self.made.append(Track(group, next(self.numbers), name, 0))
        return len(self.made) - 1

    def first_of_group(self) -> Ints:
        """Return the first track of the group of each track; the last entry is NONE."""
        first: dict[Group, int] = {}
        return np.array(
            [*(first.setdefault(t.group, n) for n, t in enumerate(self.made)), NONE], np.int64
        )

    def _each(self, kind: str, make: Callable[..., int], *keys: Ints) -> Ints:
        """Return per row what ``make`` returns for its keys; it is called once per distinct key."""
        if not len(keys[0]):
            return np.empty(0, np.int64)
        codes, rows = number_groups(*keys)
        result = []
        for row in rows.tolist():
            key = (kind, tuple(int(k[row]) for k in keys))
            if key not in self.known:
                self.known[key] = make(*key[1])
            result.append(self.known[key])
        if len(result) == 1:
            return repeated(result[0], len(codes))
        return np.array(result, np.int64)[codes]

    def _track(self, home: int, lane: int, kind: str) -> int:
        owner = self.homes[home]
        name = owner.name + SUFFIXES.get(kind, "") + (f" ({lane + 1})" if lane else "")
        tid = next(self.numbers) if lane or kind in SUFFIXES else owner.tid
        order = home * LANES_PER_HOME + ORDER[kind] + min(lane, LANES_PER_HOME // 2 - 1)
        self.made.append(Track(owner.group, tid, name, order))
        return len(self.made) - 1

    def _steps(self, report: int, process: int) -> int:
        self.homes.append(Home(self._process(report, process), next(self.numbers), "steps"))
        return len(self.homes) - 1

    def _thread(self, report: int, thread: int) -> int:
        tid = thread & frames.ID_BITS
        name = self.thread_names.get((report, thread)) or f"thread {tid}"
        self.homes.append(Home(self._process(report, thread & ~frames.ID_BITS), tid, name))
        return len(self.homes) - 1

    def _stream(self, report: int, process: int, device: int, context: int, stream: int) -> int:
        name = f"stream {stream}" + (f" (context {context})" if self.several_contexts else "")
        self.homes.append(Home(self._device(report, process, device), next(self.numbers), name))
        return len(self.homes) - 1

    def _process(self, report: int, process: int) -> Group:
        """Return the group of a process, which keeps its number unless another has the same one."""
        key = (report, process)
        if key not in self.processes:
            pid_recorded = frames.pid(process)
            taken = pid_recorded in {group.pid for group in self.processes.values()}
            name = self.process_names.get(key, "").rpartition("/")[2] or "process"
            pid = next(self.numbers) if taken else pid_recorded
            order = 2 * len(self.processes)
            self.processes[key] = Group(
                pid=pid, name=name + self._where(key), order=order, report=report, process=process
            )
        return self.processes[key]

    def _where(self, key: tuple[int, int]) -> str:
        """Return the rank of a process as text, with the file and host where there are several."""
        report, sources = key[0], self.capture.source
        rank = self.ranks.get(key, "")
        if len(sources) == 1:
            return rank
        nth = f" ({report + 1})" if sources.count(sources[report]) > 1 else ""
        return f"{rank} in {sources[report]}{nth}"

    def _device(self, report: int, process: int, device: int) -> Group:
        key = (report, process, device)
        if key not in self.devices:
            owner = self._process(report, process)
            gpu = self.gpu_names.get(key, f"GPU {device}")
            name = f"{gpu}, {owner.name} {frames.pid(process)}"
            self.devices[key] = Group(
                pid=next(self.numbers),
                name=name,
                order=owner.order + 1,
                report=report,
                process=process,
                device=device,
            )
        return self.devices[key]


def _rank_texts(capture: Capture) -> dict[tuple[int, int], str]:
    """Return texts such as `` rank 3 on host`` by (file, process).

    The host is added where there are several. In a single capture a rank that is known only by
    position is left out.
    """
    members = Ranks.of(capture).members
    is_multi_file, hosts = (
        len(capture.source) > 1,
        {member.host for member in members if member.host},
    )
    result = {}
    for process_member in members:  # one iteration per process
        rank = (
            f" rank {process_member.rank}"
            if is_multi_file or process_member.known_by != PLACE
            else ""
        )
        host = f" on {process_member.host}" if process_member.host and len(hosts) > 1 else ""
        result[process_member.report, process_member.process] = (
            rank if process_member.rank != NONE else ""
        ) + host
    return result


def _names(table: frames.Records, *keys: str) -> dict[tuple[int, ...], str]:
    ids = zip(*(table[key].tolist() for key in ("report", *keys)), strict=True)
    return dict(zip(ids, table["name"], strict=True))


# -- Lanes: slices on one track of a viewer must nest or follow each other


def disjoint_lanes(track: Ints, start: Ints, end: Ints) -> Ints:
    """Return a lane per slice so that slices of a lane do not overlap; lanes are few."""
    if is_sorted(track, start, end) and not _overlapping(track, start, end).any():
        return repeated(0, len(track))
    order = order_by(track, start, end)  # slices of length 0 first: they block no lane
    overlaps = _overlapping(track[order], start[order], end[order])
    return _lanes(track, order, overlaps, lambda rows: _first_fit(start[rows], end[rows]))


def nested_lanes(track: Ints, start: Ints, end: Ints) -> Ints:
    """Return a lane per slice so that slices of a lane nest.

    The given order is that of outer before inner slices.
    """
    if is_sorted(track, start) and not _overlapping(track, start, end).any():
        return repeated(0, len(track))  # the usual case for API calls
    order = outer_first_order(track, start, end)
    parent = parents(track[order], start[order], end[order])
    crosses = (parent != NONE) & (end[order] > end[order][parent])
    return _lanes(track, order, crosses, lambda rows: _nesting_slices(start[rows], end[rows]))


def _overlapping(track: Ints, start: Ints, end: Ints) -> Flags:
    """Return whether each of the sorted slices overlaps the one before.

    If any two overlap, two neighbours do.
    """
    result = np.zeros(len(start), bool)
    result[1:] = (track[1:] == track[:-1]) & (start[1:] < end[:-1])
    return result


def _lanes(track: Ints, order: Ints, is_conflict: Flags, select: Callable[[Ints], Flags]) -> Ints:
    """Assign lanes on the tracks with a conflict, one lane after the other."""
    lane = np.zeros(len(track), np.int64)
    has_conflict = np.isin(track[order], np.unique(track[order][is_conflict]))
    remaining, number = order[has_conflict], 0
    while len(remaining):
        edges = run_edges(track[remaining])
        is_selected = np.concatenate([select(remaining[a:b]) for a, b in pairwise(edges)])
        lane[remaining[is_selected]] = number
        remaining, number = remaining[~is_selected], number + 1
    return lane


def _first_fit(start: Ints, end: Ints) -> Flags:
    """Return a mask of slices: the first, then always the next one that starts after its end."""
    count = len(start)
    following = np.append(np.searchsorted(start, end, side="left"), count)
    following[:-1] = np.maximum(
        following[:-1], np.arange(1, count + 1)
    )  # progress past slices of length 0
    mask = np.zeros(count + 1, bool)
    visited = np.zeros(1, np.int64)
    while visited[-1] != count:  # pointer doubling
        visited = np.concatenate((visited, following[visited]))
        following = following[following]
    mask[visited] = True
    return mask[:-1]


def _nesting_slices(start: Ints, end: Ints) -> Flags:
    """Return a mask of slices that nest, by removing those that cross until none does."""
    remaining = np.arange(len(start))
    while True:
        parent = parents(np.zeros(len(remaining), np.int64), start[remaining], end[remaining])
        crosses = (parent != NONE) & (end[remaining] > end[remaining][parent])
        if not crosses.any():
            mask = np.zeros(len(start), bool)
            mask[remaining] = True
            return mask
        remaining = remaining[~crosses]
