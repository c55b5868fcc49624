"""Idle time of GPUs, blamed on what the host did meanwhile."""

from __future__ import annotations

import numpy as np

from bridge.analyze.causes.calls import IN_LOADER, NOTHING, ends
from bridge.analyze.causes.idle import Gaps
from bridge.analyze.causes.places import Cover
from bridge.analyze.causes.timeline import Pieces, Timeline, joined_pieces
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints

# After the states of a thread: the launching call had returned, or is not in the report.
LATENCY, UNKNOWN = IN_LOADER + 1, IN_LOADER + 2


def threads(joined: Attributed, gaps: Gaps) -> tuple[Ints, Ints]:
    """Return the stack that launched what ended each gap, and the one that launched what ran before.

    NONE where no API call is known.
    """
    launch = joined.attribution.launch
    stack = np.append(joined.attribution.stack, NONE)
    first, second = (stack[launch[rows]] for rows in (gaps.ended_by, gaps.before))
    return first, second


def host_until(joined: Attributed, gaps: Gaps) -> Ints:
    """Return until when the host tells of each gap: until the launching call returned, if that was in it."""
    launch = joined.attribution.launch[gaps.ended_by]
    returned = np.append(ends(joined), 0)[launch]
    return np.where(launch == NONE, gaps.start, np.clip(returned, gaps.start, gaps.end))


def windows(joined: Attributed, gaps: Gaps) -> Cover:
    """Return when each thread may be asked."""
    until = host_until(joined, gaps)
    stacks = threads(joined, gaps)
    stack = np.concatenate(stacks)
    start, end = np.concatenate((gaps.start, gaps.start)), np.concatenate((until, until))
    known = stack != NONE
    return Cover.of(stack[known], start[known], end[known])


def blame(joined: Attributed, gaps: Gaps, timeline: Timeline) -> Pieces:
    """Cut gaps into pieces of one state each; lengths of a gap's pieces add up to its own.

    The thread whose launch ends the gap tells; where it has nothing open, the one that launched what
    ran before. States are the timeline's, `LATENCY` and `UNKNOWN`.
    """
    first, second = threads(joined, gaps)
    until = host_until(joined, gaps)
    asked = np.flatnonzero((first != NONE) & (until > gaps.start))
    told = _cut(timeline, asked, first[asked], gaps.start[asked], until[asked])
    other = second[told.of]
    silent = (told.state == NOTHING) & (other != NONE) & (other != told.stack)
    again = told.taken(silent)
    retold = _cut(timeline, again.of, other[silent], again.start, again.end)
    rest = np.flatnonzero(gaps.end > until)
    state = np.where(first[rest] == NONE, UNKNOWN, LATENCY)
    after = Pieces(rest, state, np.full(len(rest), NONE), until[rest], gaps.end[rest])
    return joined_pieces(told.taken(~silent), retold, after)


def _cut(timeline: Timeline, of: Ints, stack: Ints, start: Ints, end: Ints) -> Pieces:
    """Cut intervals that are parts of gaps."""
    cut = timeline.cut(stack, start, end)
    return Pieces(of[cut.of], cut.state, cut.stack, cut.start, cut.end)
