"""Every activity gets its innermost op, or the reason why it has none.

Activity → launch by (process, correlation); launch → the ranges open on its thread at its start; the
innermost of those that are ops is the one. What the rules leave out is listed in `REASONS`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.join.launches import launch_of
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints

REASONS = {
    "": "it has an op",
    "no_launch": "no API call with its process and correlation id is in the report",
    "no_range": "no op was open on the thread of its API call when the call began",
    "invalid_time": "it ends before it starts, so it counts no time",
}
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
class Attribution:
    """Per activity: its launch, its node in the nesting and its range (rows, or NONE) and reason."""

    launch: Ints
    node: Ints
    range: Ints
    reason: Ints
    nesting: Nesting


def attribute(activities: Activities, launches: Launches, ranges: Ranges) -> Attribution:
    """Attribute every activity."""
    process, theirs = _shared(
        (activities.report, activities.process), (launches.report, launches.process)
    )
    launch = launch_of(
        process, activities.correlation, (theirs, launches.correlation, launches.start)
    )
    ops = np.flatnonzero(ranges.is_op)
    stack, asked = _shared(
        (ranges.report[ops], ranges.thread[ops]), (launches.report, launches.thread)
    )
    nesting = Nesting.of(stack, ranges.start[ops], ranges.end[ops], ops)
    launched = launch != NONE
    node = np.full(len(launch), NONE)
    calls = launch[launched]
    node[launched] = nesting.innermost(asked[calls], launches.start[calls])
    invalid = (activities.end < activities.start) | (activities.end == 0)
    node[invalid] = NONE
    reason = np.where(launched, np.where(node == NONE, NO_RANGE, ATTRIBUTED), NO_LAUNCH)
    reason[invalid] = INVALID_TIME
    return Attribution(
        launch=launch,
        node=node,
        range=_at(nesting.range, node),
        reason=reason,
        nesting=nesting,
    )


def _at(values: Ints, rows: Ints) -> Ints:
    """Return the value at each row, NONE for no row."""
    return np.where(rows == NONE, NONE, np.append(values, NONE)[rows])


def _shared(*keys: tuple[Ints, Ints]) -> list[Ints]:
    """Number the (report, id) pairs of several tables alike."""
    ids = pd.factorize(np.concatenate([ids for _, ids in keys]))[0].astype(np.int64)
    if any(len(report) and report.strides != (0,) for report, _ in keys):
        reports = np.concatenate([report for report, _ in keys])
        ids = pd.factorize(ids * (int(reports.max(initial=0)) + 1) + reports)[0].astype(np.int64)
    return np.split(ids, np.cumsum([len(report) for report, _ in keys])[:-1])
