"""Every activity gets its innermost op, or the reason why it has none.

Activity → launch by (process, correlation); launch → the ranges open on its thread at its start; the
innermost of those that are ops is the one. What the rules leave out is listed in `REASONS`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.join.launches import launch_of
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints
from importers.frames import shared

REASONS = {
    "": "it has an op",
    "no_launch": "no API call with its process and correlation id is in the report",
    "no_range": "no op was open on the thread of its API call when the call began",
    "invalid_time": "it ends before it starts, or at 0, so it counts no time",
}
RULES = {
    "": "it has no op",
    "launch": "the innermost op open on the thread of its API call when the call began",
    "capture": "the innermost op open where its node of a CUDA graph was captured",
    "adopted": "the op that the one other thread of its process was waiting in: a guess by time",
}
NO_RULE, BY_LAUNCH, BY_CAPTURE, BY_ADOPTION = range(len(RULES))
ATTRIBUTED, NO_LAUNCH, NO_RANGE, INVALID_TIME = range(len(REASONS))


@dataclass(frozen=True)
class Activities:
    """What the join needs of activities; ``report`` tells captures apart whose ids may be equal."""

    report: Ints
    process: Ints
    correlation: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True)
class Launches:
    """What the join needs of API calls."""

    report: Ints
    process: Ints
    thread: Ints
    correlation: Ints
    start: Ints


@dataclass(frozen=True)
class Ranges:
    """What the join needs of ranges, and which of them may own activities."""

    report: Ints
    thread: Ints
    start: Ints
    end: Ints
    is_op: Flags


@dataclass(frozen=True)
class Creations:
    """Where the nodes of CUDA graphs were made; ``of`` is the row for each activity, or NONE."""

    report: Ints
    thread: Ints
    time: Ints
    of: Ints


@dataclass(frozen=True)
class Attribution:
    """Per activity: its launch, its node in the nesting and its range (rows, or NONE) and reason.

    A node of a CUDA graph has two: where the graph was launched, and where it was captured.
    ``rule`` says which of them ``node`` is. ``stack`` is the stack of the nesting that each API call's
    thread has.
    """

    launch: Ints
    stack: Ints
    launched_in: Ints
    captured_in: Ints
    node: Ints
    rule: Ints
    range: Ints
    reason: Ints
    nesting: Nesting


def attribute(
    activities: Activities,
    launches: Launches,
    ranges: Ranges,
    creations: Creations,
    *,
    prefer_capture: bool = True,
) -> Attribution:
    """Attribute every activity."""
    a = activities
    launch = calls_of(a.report, a.process, a.correlation, launches)
    ops = np.flatnonzero(ranges.is_op)
    stack, calling, making = shared(
        (ranges.report[ops], ranges.thread[ops]),
        (launches.report, launches.thread),
        (creations.report, creations.thread),
    )
    nesting = Nesting.of(stack, ranges.start[ops], ranges.end[ops], ops)
    invalid = (activities.end < activities.start) | (activities.end == 0)
    launched_in = _open_at(nesting, calling, launches.start, np.where(invalid, NONE, launch))
    captured_in = _open_at(nesting, making, creations.time, np.where(invalid, NONE, creations.of))
    first, second = (captured_in, launched_in) if prefer_capture else (launched_in, captured_in)
    node = np.where(first == NONE, second, first)
    reason = np.where(node == NONE, np.where(launch == NONE, NO_LAUNCH, NO_RANGE), ATTRIBUTED)
    reason[invalid] = INVALID_TIME
    captured = (captured_in != NONE) & (prefer_capture | (launched_in == NONE))
    rule = np.where(node == NONE, NO_RULE, np.where(captured, BY_CAPTURE, BY_LAUNCH))
    return Attribution(
        launch=launch,
        stack=calling,
        launched_in=launched_in,
        captured_in=captured_in,
        node=node,
        rule=rule,
        range=_at(nesting.range, node),
        reason=reason,
        nesting=nesting,
    )


def calls_of(report: Ints, process: Ints, correlation: Ints, launches: Launches) -> Ints:
    """Return the row of the API call that each (process, correlation id) leads to, or NONE."""
    own, theirs = shared((report, process), (launches.report, launches.process))
    return launch_of(own, correlation, (theirs, launches.correlation, launches.start))


def _open_at(nesting: Nesting, stack: Ints, time: Ints, rows: Ints) -> Ints:
    """Return the innermost node open at each row's place and time, NONE for no row."""
    found = np.full(len(rows), NONE)
    there = np.flatnonzero(rows != NONE)
    found[there] = nesting.innermost(stack[rows[there]], time[rows[there]])
    return found


def _at(values: Ints, rows: Ints) -> Ints:
    """Return the value at each row, NONE for no row."""
    return np.where(rows == NONE, NONE, np.append(values, NONE)[rows])
