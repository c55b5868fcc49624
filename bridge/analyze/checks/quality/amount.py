"""Measurements and deductions, the profiler's overhead, and reasons about the amount of data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.check import COUNT, NS, SHARE, Check, Scale
from bridge.analyze.core.groups import highest, lowest
from bridge.analyze.run.parts import is_warm_up as is_warm_up_step
from bridge.analyze.run.steps import judge_steps
from bridge.importers import frames
from bridge.importers.frames import key_codes
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, busy_time
from bridge.join.attributed import AttributedCapture

# -- Measurements and deductions


@dataclass(frozen=True)
class Measurement:
    """The result of a reason: the ``value`` that determines its cost, and the figures of its text.

    Suffixes of ``figures`` are units: ``_ns``, ``_share`` (of 1); others are counts or texts.
    ``text`` is the sentence where it says more than that of the reason.
    """

    value: float
    figures: Mapping[str, object]
    text: str = ""


@record
class Deduction:
    """A reason with a cost, what was measured, in which unit, the points, and what to do in this program."""

    reason: ReasonCheck
    measured: Measurement
    unit: str
    cost: int
    remedy: str


# -- Overhead of the profiler while the program worked


THREAD_BITS = 0xFFFFFF
NEVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True)
class Overhead:
    """The time of the profiler itself in ns; ``inside`` is the part of each row that counts.

    It is the time on threads that launch (if there are none, with ops) between the first op or
    launch of the process and the end of its last work. ``own`` is the union over all processes,
    ``window`` the sum of these times.
    """

    inside: Ints
    own: int
    window: int

    @property
    def share(self) -> float:
        """The fraction of the time that the profiler took."""
        return self.own / self.window if self.window else 0.0

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Overhead:
        table = attributed.capture.overhead
        if not len(table):
            return cls(np.empty(0, np.int64), 0, 0)
        hosts = _host_work(attributed)
        keys = tuple(table[c] for c in ("report", "process"))
        process, *homes = key_codes(keys, *((h.report, h.process) for h in hosts))
        work_process, starts, ends = (
            np.concatenate(columns)
            for columns in (homes, [h.start for h in hosts], [h.end for h in hosts])
        )
        size = int(max(process.max(initial=NONE), work_process.max(initial=NONE))) + 1
        first, last = (
            lowest(work_process, starts, size, empty=NEVER),
            highest(work_process, ends, size, empty=-NEVER),
        )
        start = np.maximum(table.start, first[process])
        end = np.minimum(table.end, last[process])
        inside = np.where(
            _is_on_launching_thread(attributed, table) & (end > start), end - start, 0
        )
        start = np.where(inside > 0, start, 0)
        window = np.maximum(last - first, 0)[np.unique(work_process)].sum()
        return cls(inside, int(busy_time(process, start, start + inside, size).sum()), int(window))


class _HostWork(NamedTuple):
    """Rows that show when a process works."""

    report: Ints
    process: Ints
    start: Ints
    end: Ints


def _host_work(attributed: AttributedCapture) -> list[_HostWork]:
    """Return ops, API calls that launched, and what they launched."""
    capture = attributed.capture
    calls = _launching_calls(attributed)
    work = np.flatnonzero(attributed.attribution.launch != NONE)
    ops = np.flatnonzero(attributed.op != NONE)
    return [
        _host_rows(capture.ranges, ops, capture.ranges.end),
        _host_rows(capture.launches, calls, capture.launches.end),
        _host_rows(capture.activities, work, attributed.end),
    ]


def _host_rows(table: frames.Timed, rows: Ints, end: Ints) -> _HostWork:
    report, process, start = (frames.pick(table[c], rows) for c in ("report", "process", "start"))
    return _HostWork(report, process, start, frames.pick(end, rows))


def _launching_calls(attributed: AttributedCapture) -> Ints:
    """Return the API calls that launched anything."""
    launched = np.zeros(len(attributed.capture.launches) + 1, bool)
    launched[attributed.attribution.launch] = True
    return np.flatnonzero(launched[:-1])


def _is_on_launching_thread(attributed: AttributedCapture, table: frames.Overhead) -> Flags:
    """Return whether each row of overhead is on a thread that launches.

    Rows without a recorded thread count, too.
    """
    capture, rows = attributed.capture, _launching_calls(attributed)
    source: frames.HostEvents = capture.launches
    if not len(rows):
        source, rows = capture.ranges, np.flatnonzero(attributed.op != NONE)
    keys = ("report", "thread")
    launching = [frames.pick(source[c], rows) for c in keys]
    row_key, launching_key = key_codes([table[c] for c in keys], launching)
    thread = table.thread
    is_unknown = (thread == NONE) | (thread & THREAD_BITS == 0)
    flags: Flags = np.isin(row_key, launching_key) | is_unknown
    return flags


class CaptureEvidence(Evidence):
    """A capture as reasons see it: the data of advice, and the overhead of the profiler."""

    @cached_property
    def overhead(self) -> Overhead:
        return Overhead.of(self.attributed)


ReasonCheck: TypeAlias = Check[CaptureEvidence, Measurement | None]


# -- Reasons about the amount of data


NS_PER_MS = 1_000_000


def short_capture(evidence: CaptureEvidence) -> Measurement | None:
    """Measure how long all GPUs were busy together."""
    if not evidence.is_kind(frames.KERNEL, frames.GRAPH).any():
        return None
    rows = np.flatnonzero(evidence.counted)
    start, device = (
        evidence.capture.activities.start[rows],
        evidence.devices.gpu[rows],
    )
    busy = int(
        busy_time(device, start, evidence.attributed.end[rows], len(evidence.devices.names)).sum()
    )
    return Measurement(busy, {"busy_ns": busy})


def few_steps(evidence: CaptureEvidence) -> Measurement | None:
    """Measure the number of captured steps, of the process with the most."""
    steps = evidence.attributed.steps
    if not len(steps):
        return None
    maximum = max(last - first for first, last in steps.by_process())
    return Measurement(maximum, {"steps": maximum})


def warm_up(evidence: CaptureEvidence) -> Measurement | None:
    """Measure the fraction of the time of steps by which warm-up steps exceed the others."""
    steps = evidence.attributed.iterations
    if not len(steps):
        return None
    length = steps.end - steps.start
    change, _ = judge_steps(evidence.attributed, length)
    is_warm_up = is_warm_up_step(evidence.attributed)
    excess = length[is_warm_up] * (1 - 1 / (1 + change[is_warm_up]))
    share = float(excess.sum() / max(1, length.sum()))
    longest = float(np.max(1 + change[is_warm_up], initial=1.0))
    figures = {"steps": int(is_warm_up.sum()), "times": f"{longest:.1f}", "work_share": share}
    return Measurement(share, figures)


REASONS = (
    Check(
        name="short-capture",
        title="time that GPUs were busy",
        scale=Scale(unit=NS, free=20 * NS_PER_MS, full=0, points=15),
        text="the GPU was busy for {busy_ns} in all",
        remedy="Capture more steps or a larger part of the program.",
        find=short_capture,
    ),
    Check(
        name="few-steps",
        title="steps, where steps are named",
        scale=Scale(unit=COUNT, free=5, full=0, points=10),
        text="{steps} steps: too few to tell outliers from the others",
        remedy="Capture at least 5 steps with bridge run --schedule wait=1,warmup=1,active=5.",
        find=few_steps,
        timeline=False,
    ),
    Check(
        name="warm-up",
        title="time of steps by which those of the warm-up are longer than a usual one",
        scale=Scale(unit=SHARE, free=0.05, full=0.5, points=10),
        text="{steps} steps of warm-up, the longest {times} times as long as a usual one:"
        " they add {work_share} of the time of all steps",
        remedy="Capture later steps with bridge run --schedule wait=1,warmup=2,active=5,"
        " or leave out the warm-up with --step 3..9.",
        find=warm_up,
        timeline=False,
    ),
)
