"""Tell that no work on a device is in a capture, or next to none, and why: what was called, and what was said.

A share of the time, a score or a bottleneck of such a capture would mislead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

import numpy as np

from bridge.analyze.core import no_timeline
from bridge.analyze.core.failed_calls import all_launches_failed
from bridge.analyze.core.kinds import COPYING, LAUNCHING, calls_matching
from bridge.analyze.core.unrecorded import Unrecorded, explaining
from bridge.importers import frames
from bridge.importers.capture import UNREAD, Capture
from bridge.importers.device_work import is_next_to_nothing, work_ns
from bridge.importers.records import record
from bridge.join.attributed import AttributedCapture

MOST_NAMES = 3  # of API calls
MOST_QUOTES = 2
WARNING, ERROR = frames.SEVERITIES.index("warning"), frames.SEVERITIES.index("error")


@record
class NoDeviceWork:
    """A capture that holds no work on a device, or next to none.

    ``busy_ns`` is the time of its ``activities``, ``run_ns`` the length of the run (`gpu_use.no_device_work` tells it),
    ``calls`` the number of API calls,
    ``names`` those of the most frequent, and ``unread`` the number of events of a device that are not read.
    ``printed`` are lines in which the program tells of errors, ``messages`` those of the profiler that explain it.
    ``launching`` is the number of calls that launch work or copy, and ``all_failed`` whether every launch failed.
    ``unrecorded`` is what shows that work ran all the same, None if nothing does.
    """

    activities: int
    busy_ns: int
    calls: int
    run_ns: int = 0
    names: tuple[str, ...] = ()
    ranges: int = 0
    unread: int = 0
    printed: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    launching: int = 0
    all_failed: bool = False
    unrecorded: Unrecorded | None = None

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Self | None:
        """Return what is known of the reason; None for a capture with work, or without a timeline."""
        capture = attributed.capture
        if not no_timeline.has_timeline(capture) or not all(map(_is_idle, _files(capture))):
            return None
        return cls(
            activities=len(capture.activities),
            busy_ns=work_ns(capture.activities),
            calls=len(capture.launches),
            names=_names(capture.launches),
            ranges=len(capture.ranges),
            unread=sum(facts.beside.get(UNREAD, 0) for facts in capture.facts),
            printed=printed(capture)[:MOST_QUOTES],
            messages=explaining(capture)[:MOST_QUOTES],
            launching=sum(
                int(calls_matching(attributed, pattern).sum()) for pattern in (LAUNCHING, COPYING)
            ),
            all_failed=all_launches_failed(attributed),
            unrecorded=Unrecorded.of(attributed),
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Return what `dataclasses.asdict` wrote, read back from JSON."""
        texts = ("names", "printed", "messages")
        unrecorded = values.get("unrecorded")
        parts = {"unrecorded": Unrecorded.from_dict(unrecorded) if unrecorded else None}
        return cls(**{**values, **{name: tuple(values[name]) for name in texts}, **parts})


File = tuple[
    frames.Activities, frames.Launches, int
]  # activities, API calls, length of the capture in ns


def _files(capture: Capture) -> Iterator[File]:
    """Yield what ran and was called in each file."""
    spans = [facts.span[1] - facts.span[0] for facts in capture.facts]
    if len(spans) == 1:
        yield capture.activities, capture.launches, spans[0]
        return
    for report, span in enumerate(spans):
        work, calls = capture.activities, capture.launches
        yield work.take(work.report == report), calls.take(calls.report == report), span


def _is_idle(file: File) -> bool:
    return is_next_to_nothing(*file)


def printed(capture: Capture, severity: int = 0) -> tuple[str, ...]:
    """Return the quoted lines of the program of at least this severity, the most severe first."""
    table = capture.diagnostics
    is_line = table.source == frames.PROGRAM
    rows = np.flatnonzero(is_line & (table.severity >= severity))
    order = np.argsort(-table.severity[rows], kind="stable")
    return _distinct(table, rows[order])


def rates(capture: Capture) -> tuple[str, ...]:
    """Return the rates that the program printed, such as ``59.19 samples/second``."""
    table = capture.diagnostics
    return _distinct(table, np.flatnonzero(table.source == frames.RATE))


def hints(capture: Capture) -> tuple[str, ...]:
    """Return what the program printed about the speed of the GPU."""
    table = capture.diagnostics
    is_hint = table.severity == WARNING
    return _distinct(table, np.flatnonzero(is_hint & (table.source == frames.PROGRAM)))


def _distinct(table: frames.Diagnostics, rows: np.ndarray) -> tuple[str, ...]:
    return tuple(table.name[rows].used)


def _names(launches: frames.Launches) -> tuple[str, ...]:
    """Return the names of the most frequent API calls."""
    return tuple(launches.name.by_frequency[:MOST_NAMES])
