"""Reasons that lie with how much was captured: too little to be a measure, or more than the part that counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pandas as pd

from bridge.analyze.advice.facts import Seen
from bridge.analyze.groups import highest, lowest
from bridge.analyze.metrics import no_timeline
from bridge.analyze.steps.pace import WARM_UP, judged
from bridge.join.arrays import NONE, Flags, Ints, busy
from bridge.join.attributed import Attributed
from importers import frames
from importers.frames import shared

# -- What a reason for less trust in a capture is, and what it costs


NS, SHARE, COUNT, RATE = "ns", "share", "count", "per second"  # what measures are in


@dataclass(frozen=True)
class Measured:
    """What a reason found: the ``value`` that its cost is of, and the sentence with its figures.

    ``said`` has places in braces for ``figures``, whose names say what they are: ``_ns``, ``_share`` (of 1); else a
    count or a text.
    """

    value: float
    said: str
    figures: Mapping[str, object]


@dataclass(frozen=True)
class Reason:
    """A reason: what is measured, in which unit, up to where it costs nothing, from where on all ``points``, what to do.

    Where less is worse, ``full`` is the lesser. ``find`` returns None where the reason does not apply.
    """

    name: str
    measures: str
    unit: str
    free: float
    full: float
    points: int
    remedy: str
    find: Callable[[Capture], Measured | None]

    def cost(self, value: float) -> int:
        """Return the points that a measure costs: in proportion between ``free`` and ``full``, rounded up."""
        part = (value - self.free) / (self.full - self.free)
        return math.ceil(round(self.points * min(max(part, 0.0), 1.0), 6))


@dataclass(frozen=True)
class Found:
    """A reason that costs something, what was measured, and the points."""

    reason: Reason
    measured: Measured
    cost: int


# -- The profiler's own time: what of it fell into the time in which the program worked


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


# -- Reasons that lie with how much was captured: too little to be a measure, or more than the part that counts


MILLI = 1_000_000


def short_capture(seen: Capture) -> Measured | None:
    """How long the GPUs were busy, all together."""
    if not seen.of_kind(frames.KERNEL, frames.GRAPH).any() or not no_timeline.has_timeline(
        seen.report
    ):
        return None
    rows = np.flatnonzero(seen.counted)
    start, of = frames.ints(seen.report.activities, "start")[rows], seen.devices.of[rows]
    lasted = int(busy(of, start, seen.joined.end[rows], len(seen.devices.names)).sum())
    return Measured(lasted, "the GPU was busy for {busy_ns} in all", {"busy_ns": lasted})


def few_steps(seen: Capture) -> Measured | None:
    """How many steps of a process were captured, of that which has most."""
    steps = seen.joined.steps
    if not len(steps):
        return None
    most = max(last - first for first, last in steps.by_process())
    return Measured(
        most, "{steps} steps: one that stands out is not told from the others", {"steps": most}
    )


def warm_up(seen: Capture) -> Measured | None:
    """The share of the steps' time by which those of the warm-up are longer than the others."""
    steps = seen.joined.steps
    if not len(steps):
        return None
    length = steps.end - steps.start
    change, state = judged(steps, length)
    warming = state == WARM_UP
    excess = length[warming] * (1 - 1 / (1 + change[warming]))
    share = float(excess.sum() / max(1, length.sum()))
    longest = float(np.max(1 + change[warming], initial=1.0))
    said = "{steps} steps of warm-up, the longest {times} times as long as a usual one: {work_share} of the time of all steps is that"
    figures = {"steps": int(warming.sum()), "times": f"{longest:.1f}", "work_share": share}
    return Measured(share, said, figures)


REASONS = (
    Reason(
        "short-capture",
        "time that GPUs were busy",
        NS,
        20 * MILLI,
        0,
        15,
        "capture more of the program: more steps, a larger part",
        short_capture,
    ),
    Reason(
        "few-steps",
        "steps, where steps are named",
        COUNT,
        5,
        0,
        10,
        "capture at least 5 steps: bridge run --schedule wait=1,warmup=1,active=5",
        few_steps,
    ),
    Reason(
        "warm-up",
        "time of steps by which those of the warm-up are longer than a usual one",
        SHARE,
        0.05,
        0.5,
        10,
        "capture later: bridge run --schedule wait=1,warmup=2,active=5; or leave them out: --step 3..9",
        warm_up,
    ),
)
