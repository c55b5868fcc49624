"""Which process and thread of a viewer each slice is drawn on, what they are called, in which order.

Viewers know a track by two numbers. A process keeps its own, so do its threads; streams, lanes and
devices get numbers that no operating system gives.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.join.order import Ints, number
from importers import frames
from importers.report import Report

OURS = 10_000_000  # beyond any process or thread number of Linux (4 194 304)
ID_BITS = 0xFFFFFF
ORDER = {"ops": 0, "api": 1, "stream": 2}


@dataclass(frozen=True)
class Track:
    """A row of the viewer."""

    pid: int
    tid: int
    process: str
    name: str
    process_order: int
    order: int


@dataclass(frozen=True)
class _Home:
    """What lanes are made for: a thread of a process, or a stream of a device."""

    pid: int
    tid: int
    process: str
    process_order: int
    name: str


class Tracks:
    """Hands out tracks; a track's number is its place in `all`."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.homes: list[_Home] = []
        self.made: dict[tuple[int, int, str], int] = {}
        self.tracks: list[Track] = []
        self.pids: dict[tuple[int, int], int] = {}
        self.home_of_thread: dict[tuple[int, int], int] = {}
        self.processes = _names(report.processes, "process")
        self.threads = _names(report.threads, "thread")
        self.gpus = {
            (int(r), int(p), int(d)): str(n)
            for r, p, d, n in zip(
                *(report.devices[c].tolist() for c in ("report", "process", "device", "name")), strict=True
            )
        }

    def all(self) -> list[Track]:
        """Return every track made."""
        return self.tracks

    def host(self, report: Ints, thread: Ints) -> Ints:
        """Return the home of each row's thread."""
        return _each(self._thread, report, thread)

    def streams(self, activities: pd.DataFrame) -> Ints:
        """Return the home of each activity's stream; contexts and processes have their own."""
        columns = ("report", "process", "device", "context", "stream")
        return _each(self._stream, *(frames.ints(activities, c) for c in columns))

    def lane(self, home: Ints, lane: Ints, what: str) -> Ints:
        """Return the track for each (home, lane)."""
        return _each(lambda h, n: self._track(h, n, what), home, lane)

    def _track(self, home: int, lane: int, what: str) -> int:
        key = (home, lane, what)
        if key not in self.made:
            self.made[key] = len(self.tracks)
            self.tracks.append(self._new(self.homes[home], lane, what))
        return self.made[key]

    def _new(self, home: _Home, lane: int, what: str) -> Track:
        first = lane == 0 and what != "api"
        name = home.name + (" CUDA API" if what == "api" else "") + (f" ({lane + 1})" if lane else "")
        place = self.homes.index(home) * 100 + ORDER[what] * 10 + min(lane, 9)
        tid = home.tid if first else OURS + len(self.tracks)
        return Track(home.pid, tid, home.process, name, home.process_order, place)

    def _thread(self, report: int, thread: int) -> int:
        pid = self._pid(report, thread & ~ID_BITS)
        tid = thread & ID_BITS
        name = self.threads.get((report, thread), "")
        home = _Home(pid, tid, *self._process(report, thread & ~ID_BITS, pid), name or f"thread {tid}")
        return self._home((report, thread), home)

    def _home(self, key: tuple[int, int], home: _Home) -> int:
        if key not in self.home_of_thread:
            self.home_of_thread[key] = len(self.homes)
            self.homes.append(home)
        return self.home_of_thread[key]

    def _stream(self, report: int, process: int, device: int, context: int, stream: int) -> int:
        pid = self._pid(report, process)
        of, order = self._process(report, process, pid)
        gpu = self.gpus.get((report, process, device), "")
        shown = f"GPU {device}{f' {gpu}' if gpu else ''}, {of}"
        group = self.pids.setdefault((report, OURS + (pid << 8) + device), OURS + len(self.pids))
        home = _Home(group, OURS + len(self.homes), shown, order + 1, self._stream_name(context, stream))
        self.homes.append(home)
        return len(self.homes) - 1

    def _stream_name(self, context: int, stream: int) -> str:
        contexts = self.report.activities["context"]
        several = len(contexts) and contexts.iloc[0] != contexts.to_numpy().max()
        return f"stream {stream}" + (f" (context {context})" if several else "")

    def _pid(self, report: int, process: int) -> int:
        """A process keeps its number unless another capture or machine has one like it."""
        if (report, process) not in self.pids:
            own = (process >> 24) & ID_BITS
            taken = own in self.pids.values()
            self.pids[report, process] = OURS + len(self.pids) if taken else own
        return self.pids[report, process]

    def _process(self, report: int, process: int, pid: int) -> tuple[str, int]:
        name = self.processes.get((report, process), "")
        of = f" in {self.report.source[report]}" if len(self.report.source) > 1 else ""
        order = 2 * list(self.pids).index((report, process))
        return f"{name.rpartition('/')[2] or 'process'} {(process >> 24) & ID_BITS}{of}", order


def _each(make, *keys: Ints) -> Ints:  # type: ignore[no-untyped-def]
    """Call ``make`` once for every distinct combination of keys; return its answer per row."""
    if not len(keys[0]):
        return np.empty(0, np.int64)
    codes, rows = number(*keys)
    made = [make(*(int(key[row]) for key in keys)) for row in rows.tolist()]
    return np.array(made, np.int64)[codes]


def _names(table: pd.DataFrame, key: str) -> dict[tuple[int, int], str]:
    ids = zip(table["report"].tolist(), table[key].tolist(), strict=True)
    return dict(zip(ids, table["name"].astype(str).tolist(), strict=True))
