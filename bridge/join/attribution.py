"""Every activity gets its innermost op, or the reason why it has none.

Activity → launch by (process, correlation); launch → the ranges open on its thread at its start; the
innermost of those that are ops is the one. What the rules leave out is listed in `REASONS`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from bridge.join.arrays import NONE, Flags, Ints, by, runs, stable
from bridge.join.nesting import Nesting
from importers.frames import shared

# -- From an activity to the API call that issued it, by (process, correlation id)


DENSE = 8  # a table indexed by id may be this many times longer than there are ids


def launch_of(process: Ints, correlation: Ints, of: tuple[Ints, Ints, Ints]) -> Ints:
    """Return the row of each activity's call, or NONE.

    ``of`` holds process, correlation id and start of the calls. Of several calls with one key the
    earliest counts, which is the outermost; ids of 0 and below stand for no call.
    """
    theirs, ids, starts = of
    both, distinct = pd.factorize(np.concatenate((process, theirs)))
    ours, calls = both[: len(process)], both[len(process) :]
    if not len(ids) or not len(correlation):
        return np.full(len(process), NONE)
    low, high = int(ids.min()), int(ids.max())
    if (high - low + 1) * len(distinct) > DENSE * len(ids) + 1_000_000:
        return _by_search(ours, correlation, (calls, ids, starts))
    # Ids are nearly consecutive, so a table of them beats sorting; the earliest call is written last.
    table = np.full((high - low + 1) * len(distinct), NONE)
    latest_first = stable(starts)[::-1]
    known = latest_first[ids[latest_first] > 0]
    table[calls[known] * (high - low + 1) + ids[known] - low] = known
    inside = (correlation > 0) & (correlation >= low) & (correlation <= high)
    place = np.where(inside, ours * (high - low + 1) + correlation - low, 0)
    return np.where(inside, table[place], NONE)


def _by_search(process: Ints, correlation: Ints, of: tuple[Ints, Ints, Ints]) -> Ints:
    """The same by sorting, for ids that lie far apart: one binary search per activity."""
    found = np.full(len(process), NONE)
    order = by(*of)
    edges = runs(of[0][order])
    asked = stable(process)
    ours = runs(process[asked])
    of_process = {int(process[asked[a]]): asked[a:b] for a, b in pairwise(ours)}
    for first, last in pairwise(edges):  # one turn per process
        calls = order[first:last]
        rows = of_process.get(int(of[0][calls[0]]), np.empty(0, np.int64))
        ids = of[1][calls]
        place = np.minimum(np.searchsorted(ids, correlation[rows]), len(ids) - 1)
        hit = (ids[place] == correlation[rows]) & (correlation[rows] > 0)
        found[rows] = np.where(hit, calls[place], NONE)
    return found


# -- Every activity gets its innermost op, or the reason why it has none


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


# -- Where a node of a CUDA graph was captured: the call that made it, or the node it was cloned from


MOST_COPIES = 64  # copies of copies followed; a cycle, which no driver writes, ends there


@dataclass(frozen=True)
class NodeEvents:
    """Creations of graph nodes; ``original`` is the node copied, NONE for one made by a call."""

    report: Ints
    process: Ints
    node: Ints
    original: Ints
    time: Ints


def creation_of(report: Ints, process: Ints, node: Ints, events: NodeEvents) -> Ints:
    """Return the row of the event that first made each activity's node, or NONE.

    Of several creations with one number the earliest counts. Numbers mean something only within
    their process. NONE stands for an activity of no graph, and for a node made before the capture.
    """
    asked, made, copied = shared(
        (report, process, node),
        (events.report, events.process, events.node),
        (events.report, events.process, events.original),
    )
    count = int(max(k.max(initial=NONE) for k in (asked, made, copied))) + 1
    latest_first = stable(events.time)[::-1]
    copies = latest_first[events.original[latest_first] != NONE]
    firsts = latest_first[events.original[latest_first] == NONE]
    original, first = np.full(count + 1, NONE), np.full(count + 1, NONE)
    original[made[copies]] = copied[copies]  # written latest first, so that the earliest stays
    first[made[firsts]] = firsts
    at = np.where(node == NONE, count, asked)  # the last entry is nobody's
    for _ in range(MOST_COPIES):
        further = (first[at] == NONE) & (original[at] != NONE)
        if not further.any():
            break
        at = np.where(further, original[at], at)
    return first[at]
