"""The idle time right before each activity: while the thread that issued it was launching, and while it starved."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import sums
from bridge.analyze.core.kinds import is_compilation, is_data_loading
from bridge.analyze.run.causes.gaps import Gaps
from bridge.analyze.run.causes.host_timeline import (
    IDLE,
    IN_COMPILER,
    IN_LOADER,
    IN_OP,
    WAITS,
    Pieces,
    Timeline,
    call_ends,
    call_states,
    concatenate,
)
from bridge.importers.arrays import lookup
from bridge.join.arrays import NONE, Ints, unions
from bridge.join.attributed import AttributedCapture

TOWARDS_LAUNCH, KEPT_FROM_LAUNCH = 1, 2  # states of the timeline
LATENCY, UNKNOWN = 3, 4  # further states: the launching call had returned, or was not recorded
KEEPING_STATES = (*WAITS, IN_COMPILER, IN_LOADER)


def idle_times(attributed: AttributedCapture) -> tuple[Ints, Ints]:
    """Return the idle time of the GPU right before each activity, in ns: launching, and starving.

    The sum of both over all activities is the idle time of the GPUs between their first and last
    work.
    """
    gaps = Gaps.of(attributed)
    pieces = _pieces(attributed, gaps, _timeline(attributed))
    is_launching = np.isin(pieces.state, (TOWARDS_LAUNCH, LATENCY))
    activity, size = gaps.ended_by[pieces.interval], len(attributed.capture.activities)
    masks = (is_launching, ~is_launching)
    launched, starved = (sums(activity[mask], pieces.length[mask], size) for mask in masks)
    return launched, starved


def _timeline(attributed: AttributedCapture) -> Timeline:
    """Return a timeline with two states: towards a launch, and kept from it."""
    nesting = attributed.attribution.nesting
    stack, start, end, kind = _nodes(attributed)
    outermost = (nesting.parent == NONE) | (nesting.stack[nesting.parent] != nesting.stack)
    is_needed = outermost | (kind != IN_OP)
    nodes = tuple(c[is_needed] for c in (stack, start, end, kind))
    stack, start, end, kind = (
        np.concatenate(pair) for pair in zip(nodes, _calls(attributed), strict=True)
    )
    is_keeping = np.isin(kind, KEEPING_STATES)
    working = unions(stack, start, end)
    waiting = unions(*(c[is_keeping] for c in (stack, start, end)))
    state = np.repeat([TOWARDS_LAUNCH, KEPT_FROM_LAUNCH], [len(working[0]), len(waiting[0])])
    stack, start, end = (np.concatenate(pair) for pair in zip(working, waiting, strict=True))
    return Timeline.of(stack, start, end, state)


def _nodes(attributed: AttributedCapture) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the stack, start, end and state of each range that is an op."""
    nesting = attributed.attribution.nesting
    op = attributed.node_op
    kind = np.where(
        is_data_loading(attributed)[op],
        IN_LOADER,
        np.where(is_compilation(attributed)[op], IN_COMPILER, IN_OP),
    )
    return nesting.stack, nesting.start, nesting.end, kind


def _calls(attributed: AttributedCapture) -> tuple[Ints, Ints, Ints, Ints]:
    """Return the stack, start, end and state of each API call."""
    start = attributed.capture.launches.start
    return attributed.attribution.stack, start, call_ends(attributed), call_states(attributed)


def _launching_stacks(attributed: AttributedCapture, gaps: Gaps) -> tuple[Ints, Ints]:
    """Return the stacks that launched the activity that ended each gap, and the one before the gap.

    NONE where no API call is known.
    """
    launch = np.append(attributed.attribution.launch, NONE)
    stack = np.append(attributed.attribution.stack, NONE)
    first, second = (stack[launch[rows]] for rows in (gaps.ended_by, gaps.before))
    return first, second


def _host_ends(attributed: AttributedCapture, gaps: Gaps) -> Ints:
    """Return until when the host explains each gap: until the launching call returned."""
    launch = lookup(attributed.attribution.launch, gaps.ended_by)
    returned = lookup(call_ends(attributed), launch, 0)
    return np.where(launch == NONE, gaps.start, np.clip(returned, gaps.start, gaps.end))


def _pieces(attributed: AttributedCapture, gaps: Gaps, timeline: Timeline) -> Pieces:
    """Cut gaps into pieces with one state each; the pieces of a gap add up to its length.

    The state is that of the thread whose launch ended the gap; where that has nothing open, of the
    thread that launched the work before. States are those of the timeline, `LATENCY` and `UNKNOWN`.
    """
    first, second = _launching_stacks(attributed, gaps)
    until = _host_ends(attributed, gaps)
    explained = np.flatnonzero((first != NONE) & (until > gaps.start))
    pieces = _cut(
        timeline,
        explained,
        stack=first[explained],
        start=gaps.start[explained],
        end=until[explained],
    )
    other = second[pieces.interval]
    is_idle = (pieces.state == IDLE) & (other != NONE) & (other != pieces.stack)
    unexplained = pieces.take(is_idle)
    second_pieces = _cut(
        timeline,
        unexplained.interval,
        stack=other[is_idle],
        start=unexplained.start,
        end=unexplained.end,
    )
    tail_rows = np.flatnonzero(gaps.end > until)
    state = np.where(first[tail_rows] == NONE, UNKNOWN, LATENCY)
    after = Pieces(
        interval=tail_rows,
        state=state,
        stack=np.full(len(tail_rows), NONE),
        start=until[tail_rows],
        end=gaps.end[tail_rows],
    )
    return concatenate(pieces.take(~is_idle), second_pieces, after)


def _cut(timeline: Timeline, gap: Ints, stack: Ints, start: Ints, end: Ints) -> Pieces:
    """Cut intervals that are parts of gaps."""
    cut = timeline.cut(stack, start, end)
    return Pieces(
        interval=gap[cut.interval], state=cut.state, stack=cut.stack, start=cut.start, end=cut.end
    )
