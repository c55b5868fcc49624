"""Attribution of every activity to the innermost op around its launch, or to a reason.

An activity leads to its launch by (process, correlation id). The launch leads to the ranges that
were open on its thread when it began. The innermost of those that are ops owns the activity.
`REASONS` lists why an activity has no op.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import lookup
from bridge.importers.frames import key_codes
from bridge.importers.records import record
from bridge.join.arrays import (
    NONE,
    Flags,
    Ints,
    blocks,
    order_by,
    repeated,
    run_edges,
    stable_order,
    taken,
)
from bridge.join.nesting import Nesting

LOG = logging.getLogger("bridge.join")

# -- From an activity to the API call that issued it, by (process, correlation id)


DENSE = 8  # a table indexed by id may have this many times more entries than there are ids


def launch_of(process: Ints, correlation: Ints, calls: tuple[Ints, Ints, Ints]) -> Ints:
    """Return the row of the API call of each activity, or NONE.

    ``calls`` holds process, correlation id and start of the calls. Of several calls with one key
    the earliest counts, which is the outermost. Ids of 0 and below mean no call.
    """
    call_process, ids, starts = calls
    process, call_process = key_codes((process,), (call_process,))
    result = np.full(len(process), NONE)
    if not len(ids) or not len(correlation):
        return result
    low, high = int(ids.min()), int(ids.max())
    width, processes = high - low + 1, int(max(process.max(), call_process.max())) + 1
    if width * processes > DENSE * len(ids) + 1_000_000:
        return _launch_by_search(process, correlation, (call_process, ids, starts))
    # Ids are nearly consecutive, so a table is faster than sorting. The earliest call is written
    # last.
    table = np.full(width * processes, NONE)
    latest_first = stable_order(starts)[::-1]
    for block in blocks(len(ids)):
        rows = latest_first[block]
        valid = rows[ids[rows] > 0]
        table[call_process[valid] * width + ids[valid] - low] = valid
    for block in blocks(len(process)):
        wanted = correlation[block]
        inside = (wanted > 0) & (wanted >= low) & (wanted <= high)
        place = np.where(inside, process[block] * width + wanted - low, 0)
        result[block] = np.where(inside, table[place], NONE)
    return result


def _launch_by_search(process: Ints, correlation: Ints, calls: tuple[Ints, Ints, Ints]) -> Ints:
    """Return the same as `launch_of` by binary search, for ids that are far apart."""
    result = np.full(len(process), NONE)
    call_process, ids, _ = calls
    call_order = order_by(*calls)
    order = stable_order(process)
    edges = run_edges(process[order])
    rows_of_process = {int(process[order[a]]): order[a:b] for a, b in pairwise(edges)}
    for first, last in pairwise(run_edges(call_process[call_order])):  # one iteration per process
        call = call_order[first:last]
        rows = rows_of_process.get(int(call_process[call[0]]), np.empty(0, np.int64))
        place = np.minimum(np.searchsorted(ids[call], correlation[rows]), len(call) - 1)
        is_match = (ids[call][place] == correlation[rows]) & (correlation[rows] > 0)
        result[rows] = np.where(is_match, call[place], NONE)
    return result


# -- The attribution


REASONS = {
    "": "it has an op",
    "no_launch": "no API call with its process and correlation id is in the report",
    "no_range": "no op was open on the thread of its API call when the call began",
    "ambiguous": "autograd launched it while several other threads had a range open",
    "invalid_time": "it ends before it starts, at 0 or at a time that no capture has, so it counts no time",
}
RULES = {
    "": "it has no op",
    "launch": "the innermost op open on the thread of its API call when the call began",
    "capture": "the innermost op open where its node of a CUDA graph was captured",
    "adopted": "autograd launched it, and one other thread of its process waited in this op",
    "guessed": "the op that the one other thread of its process was waiting in: a guess by time",
    "phase": "the start/end range that started last of those open in its process when the call began",
}
NO_RULE, BY_LAUNCH, BY_CAPTURE, BY_ADOPTION, BY_GUESS, BY_PHASE = range(len(RULES))
OF_ANOTHER_THREAD = (BY_ADOPTION, BY_GUESS)  # rules that look at another thread than the call's
ATTRIBUTED, NO_LAUNCH, NO_RANGE, AMBIGUOUS, INVALID_TIME = range(len(REASONS))

Codes = NDArray[np.int8]  # of `RULES` or `REASONS`: there are as many as activities


@dataclass(frozen=True)
class Activities:
    """Columns of activities that the join reads; ids are unique only within one ``report``."""

    report: Ints
    process: Ints
    correlation: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True)
class Launches:
    """Columns of API calls that the join reads."""

    report: Ints
    process: Ints
    thread: Ints
    correlation: Ints
    start: Ints


@dataclass(frozen=True)
class Ranges:
    """Columns of ranges that the join reads, and which ranges are ops that may own activities."""

    report: Ints
    thread: Ints
    start: Ints
    end: Ints
    is_op: Flags


@record
class Creations:
    """Events that created nodes of CUDA graphs.

    ``event`` is the row of each activity's event, or NONE.
    """

    report: Ints
    thread: Ints
    time: Ints
    event: Ints


@record
class Attribution:
    """Per activity: its launch (a row, or NONE), its node in the nesting, and its reason.

    An activity of a CUDA graph has two nodes: where the graph was launched (``launched_in``), and
    where it was captured (``captured_in``). ``rule`` is a code of `RULES` that says which of them
    ``node`` is. ``stack`` is the stack in the nesting of the thread of each API call.
    """

    launch: Ints
    stack: Ints
    launched_in: Ints
    captured_in: Ints
    node: Ints
    rule: Codes
    reason: Codes
    nesting: Nesting

    @property
    def range(self) -> Ints:
        """The range of each activity, a row, or NONE."""
        return lookup(self.nesting.range, self.node)


def attribute(
    activities: Activities,
    launches: Launches,
    ranges: Ranges,
    creations: Creations,
    *,
    prefer_capture: bool = True,
) -> Attribution:
    """Attribute every activity.

    With ``prefer_capture``, the op in which a CUDA graph was captured owns the work of the graph;
    otherwise the op that launched it does.
    """
    launch = calls_of(activities.report, activities.process, activities.correlation, launches)
    ops = None if ranges.is_op.all() else np.flatnonzero(ranges.is_op)
    report, thread, start, end = (
        column if ops is None else taken(column, ops)
        for column in (ranges.report, ranges.thread, ranges.start, ranges.end)
    )
    stack, launch_stack, creation_stack = key_codes(
        (report, thread),
        (launches.report, launches.thread),
        (creations.report, creations.thread),
    )
    nesting = Nesting.of(stack, start, end, ops)
    invalid = (activities.end < activities.start) | (activities.end == 0)
    launched_in = _open_at(nesting, launch_stack, launches.start, np.where(invalid, NONE, launch))
    captured_in = _open_at(
        nesting, creation_stack, creations.time, np.where(invalid, NONE, creations.event)
    )
    node, captured = _owning_nodes(launched_in, captured_in, prefer_capture=prefer_capture)
    has_node = node != NONE
    reason = np.where(launch == NONE, np.int8(NO_LAUNCH), np.int8(NO_RANGE))
    reason[has_node] = ATTRIBUTED
    reason[invalid] = INVALID_TIME
    rule = np.where(captured, np.int8(BY_CAPTURE), np.int8(BY_LAUNCH))
    rule[~has_node] = NO_RULE
    return Attribution(
        launch=launch,
        stack=launch_stack,
        launched_in=launched_in,
        captured_in=captured_in,
        node=node,
        rule=rule,
        reason=reason,
        nesting=nesting,
    )


def _owning_nodes(
    launched_in: Ints, captured_in: Ints, *, prefer_capture: bool
) -> tuple[Ints, Flags]:
    """Return the node that owns each activity, and whether it is that of the capture."""
    captured = captured_in != NONE
    if not captured.any():
        return launched_in, captured
    if not prefer_capture:
        captured &= launched_in == NONE
    return np.where(captured, captured_in, launched_in), captured


def calls_of(report: Ints, process: Ints, correlation: Ints, launches: Launches) -> Ints:
    """Return the row of the API call with each (report, process, correlation id), or NONE."""
    codes, call_codes = key_codes((report, process), (launches.report, launches.process))
    return launch_of(codes, correlation, (call_codes, launches.correlation, launches.start))


def _open_at(nesting: Nesting, stack: Ints, time: Ints, rows: Ints) -> Ints:
    """Return the innermost node open at stack and time of ``rows``, NONE where a row is NONE."""
    if not (rows != NONE).any():
        return repeated(NONE, len(rows))
    result = np.full(len(rows), NONE)
    for block in blocks(len(rows)):
        present = np.flatnonzero(rows[block] != NONE)
        row = rows[block][present]
        result[block][present] = nesting.innermost(stack[row], time[row])
    return result


# -- Where a node of a CUDA graph was captured: the call that created it, or the node that it copies


MAX_COPIES = 64  # limit of the chain of copies, in case a damaged report has a cycle


@record
class NodeEvents:
    """Events that create graph nodes.

    ``original`` is the copied node, NONE for a node created by a call.
    """

    report: Ints
    process: Ints
    node: Ints
    original: Ints
    time: Ints


def creation_of(report: Ints, process: Ints, node: Ints, events: NodeEvents) -> Ints:
    """Return the row of the event that first created the graph node of each activity, or NONE.

    Ids of nodes are unique only within their process. Of several events with one id the earliest
    counts. The result is NONE for an activity of no graph, and for a node created before the report
    began.
    """
    codes, created, copied = key_codes(
        (report, process, node),
        (events.report, events.process, events.node),
        (events.report, events.process, events.original),
    )
    count = int(max(k.max(initial=NONE) for k in (codes, created, copied))) + 1
    latest_first = stable_order(events.time)[::-1]
    copies = latest_first[events.original[latest_first] != NONE]
    firsts = latest_first[events.original[latest_first] == NONE]
    original, first = np.full(count + 1, NONE), np.full(count + 1, NONE)
    original[created[copies]] = copied[copies]  # written latest first, so that the earliest stays
    first[created[firsts]] = firsts
    at = np.where(node == NONE, count, codes)  # the last entry belongs to no node
    for _ in range(MAX_COPIES):
        further = (first[at] == NONE) & (original[at] != NONE)
        if not further.any():
            break
        at = np.where(further, original[at], at)
    return first[at]


# -- What the log says of it


def log_attribution(source: tuple[str, ...], is_op: Flags, attribution: Attribution) -> None:
    """Log how the activities of some reports were attributed; ``is_op`` tells which ranges are ops."""
    if not LOG.isEnabledFor(logging.DEBUG):
        return
    called = ", ".join(source)
    LOG.debug("%s: %d of %d ranges are ops", called, np.count_nonzero(is_op), len(is_op))
    LOG.debug(
        "%s: activities with an op, by rule: %s; without, by reason: %s",
        called,
        _counts(attribution.rule, RULES),
        _counts(attribution.reason, REASONS),
    )


def _counts(codes: Codes, meanings: Iterable[str]) -> str:
    """Return the number of activities of each code that occurs; that without a name says that there is none."""
    numbers = zip(meanings, np.bincount(codes).tolist(), strict=False)
    return ", ".join(f"{name} {number}" for name, number in numbers if name and number) or "none"
