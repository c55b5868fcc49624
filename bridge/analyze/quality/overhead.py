"""The profiler's own time: what of it fell into the time in which the program worked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from bridge.analyze.advice.seen import Seen
from bridge.analyze.groups import highest, lowest
from bridge.join.attributed import Attributed
from bridge.join.intervals import busy
from bridge.join.order import NONE, Flags, Ints
from importers import frames
from importers.frames import shared

THREAD_BITS = 0xFFFFFF
NEVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Overhead:
    """The profiler's own time, in ns: ``inside`` of each row of the frame is what counts of it.

    That is what a thread that launches (without any: one with ops) spent between the first op or launch of its process and the end of
    its last work; ``own`` is the union of that over all processes, ``window`` the sum of their times.
    """

    inside: Ints
    own: int
    window: int

    @property
    def share(self) -> float:
        """The profiler's share of the time."""
        return self.own / self.window if self.window else 0.0

    @classmethod
    def of(cls, joined: Attributed) -> Overhead:
        """Measure a report."""
        table = joined.report.overhead
        if not len(table):
            return cls(np.empty(0, np.int64), 0, 0)
        hosts = _hosts(joined)
        own = tuple(frames.ints(table, c) for c in ("report", "process"))
        of, *homes = shared(own, *((h.report, h.process) for h in hosts))
        home, began, ended = (
            np.concatenate(columns)
            for columns in (homes, [h.start for h in hosts], [h.end for h in hosts])
        )
        many = int(max(of.max(initial=NONE), home.max(initial=NONE))) + 1
        first, last = (
            lowest(home, began, many, empty=NEVER),
            highest(home, ended, many, empty=-NEVER),
        )
        start = np.maximum(frames.ints(table, "start"), first[of])
        end = np.minimum(frames.ints(table, "end"), last[of])
        inside = np.where(_on_launching(joined, table) & (end > start), end - start, 0)
        start = np.where(inside > 0, start, 0)
        window = np.maximum(last - first, 0)[np.unique(home)].sum()
        return cls(inside, int(busy(of, start, start + inside, many).sum()), int(window))


class _Host(NamedTuple):
    """Something that shows a process at work."""

    report: Ints
    process: Ints
    start: Ints
    end: Ints


def _hosts(joined: Attributed) -> list[_Host]:
    """Return ops, API calls that launched, and what they launched."""
    report = joined.report
    calls = _launching(joined)
    work = np.flatnonzero(joined.attribution.launch != NONE)
    ops = np.flatnonzero(joined.op != NONE)
    return [
        _host(report.ranges, ops, frames.ints(report.ranges, "end")),
        _host(report.launches, calls, frames.ints(report.launches, "end")),
        _host(report.activities, work, joined.end),
    ]


def _host(table: pd.DataFrame, rows: Ints, end: Ints) -> _Host:
    report, process, start = (
        frames.pick(frames.ints(table, c), rows) for c in ("report", "process", "start")
    )
    return _Host(report, process, start, frames.pick(end, rows))


def _launching(joined: Attributed) -> Ints:
    """Return the API calls that launched anything."""
    launched = np.zeros(len(joined.report.launches) + 1, bool)
    launched[joined.attribution.launch] = True
    return np.flatnonzero(launched[:-1])


def _on_launching(joined: Attributed, table: pd.DataFrame) -> Flags:
    """Tell which overhead is on a thread that launches; where no thread is recorded, it may be."""
    report, rows = joined.report, _launching(joined)
    source = report.launches
    if not len(rows):
        source, rows = report.ranges, np.flatnonzero(joined.op != NONE)
    keys = ("report", "thread")
    launching = [frames.pick(frames.ints(source, c), rows) for c in keys]
    own, theirs = shared([frames.ints(table, c) for c in keys], launching)
    thread = frames.ints(table, "thread")
    unknown = (thread == NONE) | (thread & THREAD_BITS == 0)
    flags: Flags = np.isin(own, theirs) | unknown
    return flags


class Capture(Seen):
    """A report as reasons see it: what advice shares, and the profiler's own time."""

    @cached_property
    def overhead(self) -> Overhead:
        """The profiler's own time."""
        return Overhead.of(self.joined)
