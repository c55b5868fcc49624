"""Assign the idle time of GPUs to what the host did meanwhile, and list gaps and causes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import lowest, sums
from bridge.analyze.core.kinds import is_compilation, is_data_loading
from bridge.analyze.run.account import RunClocks, Span
from bridge.analyze.run.causes.host_timeline import (
    IDLE,
    IN_API,
    IN_BLOCKING,
    IN_COMPILER,
    IN_COPY,
    IN_LAUNCH,
    IN_LOADER,
    IN_OP,
    IN_SYNC,
    WAITS,
    Cover,
    Gaps,
    Pieces,
    Timeline,
    call_ends,
    call_states,
    concatenate,
)
from bridge.importers import frames
from bridge.join.arrays import NONE, Flags, Ints, number_groups, unions
from bridge.join.attributed import AttributedCapture
from bridge.join.forest import outermost_above

# -- Timelines of the host


TOWARDS_LAUNCH, KEPT_FROM_LAUNCH = 1, 2  # states of the coarse timeline
KEEPING_STATES = (*WAITS, IN_COMPILER, IN_LOADER)


def coarse_timeline(attributed: AttributedCapture) -> Timeline:
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


def fine_timeline(attributed: AttributedCapture, cover: Cover) -> Timeline:
    """Return the timeline of all states within a cover, cut where an op begins or ends."""
    rows = []
    for columns in (_nodes(attributed), _calls(attributed)):
        mask = cover.meets(*columns[:3])
        rows.append(tuple(c[mask] for c in columns))
    return Timeline.of(*(np.concatenate(pair) for pair in zip(*rows, strict=True)))


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
    start = frames.ints(attributed.capture.launches, "start")
    return attributed.attribution.stack, start, call_ends(attributed), call_states(attributed)


# -- Causes of idle time


# Further states: the launching call had returned, or was not recorded.
LATENCY, UNKNOWN = IN_LOADER + 1, IN_LOADER + 2


def launching_stacks(attributed: AttributedCapture, gaps: Gaps) -> tuple[Ints, Ints]:
    """Return the stacks that launched the activity that ended each gap, and the one before the gap.

    NONE where no API call is known. Behind the last activity of a GPU both are the stack that launched that.
    """
    launch = np.append(attributed.attribution.launch, NONE)
    stack = np.append(attributed.attribution.stack, NONE)
    first, second = (stack[launch[rows]] for rows in (gaps.ended_by, gaps.before))
    return np.where(gaps.ended_by == NONE, second, first), second


def host_ends(attributed: AttributedCapture, gaps: Gaps) -> Ints:
    """Return until when the host explains each gap: until the launching call returned, or no work follows."""
    launch = np.append(attributed.attribution.launch, NONE)[gaps.ended_by]
    returned = np.append(call_ends(attributed), 0)[launch]
    until = np.where(launch == NONE, gaps.start, np.clip(returned, gaps.start, gaps.end))
    is_last = (gaps.ended_by == NONE) & (launching_stacks(attributed, gaps)[0] != NONE)
    return np.where(is_last, gaps.end, until)


def host_windows(attributed: AttributedCapture, gaps: Gaps) -> Cover:
    """Return the times for which the state of each thread is needed."""
    until = host_ends(attributed, gaps)
    lasting = np.flatnonzero(until > gaps.start)  # often few: launches return before the work ends
    gaps, until = gaps.take(lasting), until[lasting]
    stack = np.concatenate(launching_stacks(attributed, gaps))
    start, end = np.concatenate((gaps.start, gaps.start)), np.concatenate((until, until))
    has_stack = stack != NONE
    return Cover.of(stack[has_stack], start[has_stack], end[has_stack])


def assign_causes(attributed: AttributedCapture, gaps: Gaps, timeline: Timeline) -> Pieces:
    """Cut gaps into pieces with one state each; the pieces of a gap add up to its length.

    The state is that of the thread whose launch ended the gap; where that has nothing open, of the
    thread that launched the work before. States are those of the timeline, `LATENCY` and `UNKNOWN`.
    """
    first, second = launching_stacks(attributed, gaps)
    until = host_ends(attributed, gaps)
    explained = np.flatnonzero((first != NONE) & (until > gaps.start))
    pieces = _cut(timeline, explained, first[explained], gaps.start[explained], until[explained])
    other = second[pieces.interval]
    is_idle = (pieces.state == IDLE) & (other != NONE) & (other != pieces.stack)
    unexplained = pieces.take(is_idle)
    second_pieces = _cut(
        timeline, unexplained.interval, other[is_idle], unexplained.start, unexplained.end
    )
    tail_rows = np.flatnonzero(gaps.end > until)
    state = np.where(first[tail_rows] == NONE, UNKNOWN, LATENCY)
    after = Pieces(
        tail_rows, state, np.full(len(tail_rows), NONE), until[tail_rows], gaps.end[tail_rows]
    )
    return concatenate(pieces.take(~is_idle), second_pieces, after)


def _cut(timeline: Timeline, gap: Ints, stack: Ints, start: Ints, end: Ints) -> Pieces:
    """Cut intervals that are parts of gaps."""
    cut = timeline.cut(stack, start, end)
    return Pieces(gap[cut.interval], cut.state, cut.stack, cut.start, cut.end)


CAUSES = {  # states and their names; of equal causes the first counts
    IN_OP: "host code",
    IN_LAUNCH: "launch calls",
    IN_API: "other CUDA calls",
    IN_COPY: "memcpy calls",
    LATENCY: "launch latency",
    IN_LOADER: "data loading",
    IN_COMPILER: "compilation",
    IN_SYNC: "synchronization",
    IN_BLOCKING: "blocking memcpy",
    IDLE: "host code outside ops",
    UNKNOWN: "unknown",
}
WORDS = tuple(CAUSES.values())
CAUSE_OF_STATE = np.array([list(CAUSES).index(state) for state in range(len(CAUSES))])


@dataclass(frozen=True)
class Causes:
    """Causes of gaps: one row per gap, cause (a position in `WORDS`) and op.

    ``length`` is the part of the gap in ns; the rows of a gap add up to its length. ``first`` is
    the start of the first piece. Rows are sorted by gap, cause and op. ``row_of_piece`` is the row
    of each of the ``pieces``.
    """

    gaps: Gaps
    gap: Ints
    cause: Ints
    op: Ints
    length: Ints
    first: Ints
    pieces: Pieces
    row_of_piece: Ints

    def take(self, mask: Flags) -> Causes:
        """Return the selected rows, of all gaps."""
        is_kept = mask[self.row_of_piece]
        return Causes(
            gaps=self.gaps,
            gap=self.gap[mask],
            cause=self.cause[mask],
            op=self.op[mask],
            length=self.length[mask],
            first=self.first[mask],
            pieces=self.pieces.take(is_kept),
            row_of_piece=(np.cumsum(mask) - 1)[self.row_of_piece[is_kept]],
        )


def find_causes(attributed: AttributedCapture, threshold_ns: int = 0) -> Causes:
    """Return the idle times of GPUs longer than the threshold, in the run or its selected part, with their causes.

    They are those of `idle_gaps`; without a threshold they add up to the idle time of the account.
    """
    return causes_of(attributed, idle_gaps(attributed, threshold_ns))


def idle_gaps(attributed: AttributedCapture, threshold_ns: int = 0) -> Gaps:
    """Return the gaps of the GPUs with counted work in the run or its selected part, with those at its begin and end.

    A gap that begins before the part, or ends after it, is cut.
    """
    devices, clocks = Devices.of_report(attributed), RunClocks.of(attributed)
    gaps = _cut_gaps(attributed, [clocks.part_of(report) for report in devices.report])
    is_used = np.zeros(len(devices.names), bool)
    is_used[devices.gpu[attributed.counted]] = True
    return gaps.take(is_used[gaps.device] & (gaps.length > threshold_ns))


def gaps_in(attributed: AttributedCapture, gpu: int, span: Span) -> Gaps:
    """Return the gaps of one GPU, by its number in `Devices`, within a time; those at its begin and end are cut."""
    gaps = _cut_gaps(attributed, [span] * len(Devices.of_report(attributed).names))
    return gaps.take(gaps.device == gpu)


def _cut_gaps(attributed: AttributedCapture, spans: Sequence[Span]) -> Gaps:
    """Return the parts of gaps, also of those before and behind all work, within a time of each GPU."""
    gaps = Gaps.with_ends(attributed)
    first, last = np.array(spans, np.int64).reshape(-1, 2).T
    start = np.maximum(gaps.start, first[gaps.device])
    end = np.minimum(gaps.end, last[gaps.device])
    return replace(gaps, start=start, end=end).take(end > start)


def gaps_between_work(attributed: AttributedCapture, threshold_ns: int = 0) -> Gaps:
    """Return the gaps longer than the threshold that counted work ended, and the end of counted work began."""
    gaps, counted = idle_gaps(attributed, threshold_ns), np.append(attributed.counted, False)
    return gaps.take(counted[gaps.before] & counted[gaps.ended_by])


def causes_of(attributed: AttributedCapture, gaps: Gaps) -> Causes:
    pieces = assign_causes(
        attributed, gaps, fine_timeline(attributed, host_windows(attributed, gaps))
    )
    op = _ops_of_pieces(attributed, gaps, pieces)
    state = np.where((pieces.state == IN_LAUNCH) & (op != NONE), IN_OP, pieces.state)
    cause = CAUSE_OF_STATE[state]
    group, rows = number_groups(pieces.interval, cause, op)
    return Causes(
        gaps=gaps,
        gap=pieces.interval[rows],
        cause=cause[rows],
        op=op[rows],
        length=sums(group, pieces.length, len(rows)),
        first=lowest(group, pieces.start, len(rows)),
        pieces=pieces,
        row_of_piece=group,
    )


def _ops_of_pieces(attributed: AttributedCapture, gaps: Gaps, pieces: Pieces) -> Ints:
    """Return the op of each piece: the one open on the host, or the one whose launch was under way.

    It is NONE if there is none.
    """
    nesting = attributed.attribution.nesting
    op = np.full(len(pieces.interval), NONE)
    covered = np.flatnonzero((pieces.state > IDLE) & (pieces.stack != NONE))
    node = nesting.innermost(pieces.stack[covered], pieces.start[covered])
    is_same_stack = np.append(nesting.stack, NONE)[node] == pieces.stack[covered]
    node[~is_same_stack] = NONE  # adopted by a range of another thread
    state = pieces.state[covered]
    for flagged_state, has_flag in (
        (IN_LOADER, is_data_loading(attributed)),
        (IN_COMPILER, is_compilation(attributed)),
    ):
        selected = np.flatnonzero(state == flagged_state)
        node[selected] = _outermost(attributed, node[selected], has_flag)
    op[covered] = np.where(node == NONE, NONE, np.append(attributed.node_op, NONE)[node])
    is_latency = pieces.state == LATENCY
    op[is_latency] = attributed.activity_op[gaps.ended_by[pieces.interval[is_latency]]]
    return op


def _outermost(attributed: AttributedCapture, node: Ints, has_flag: Flags) -> Ints:
    """Return the outermost node around each whose op has the flag, else the node itself."""
    nesting = attributed.attribution.nesting
    outermost = outermost_above(nesting.own_parent, has_flag[attributed.node_op])
    result = np.append(outermost, NONE)[node]
    return np.where(result == NONE, node, result)
