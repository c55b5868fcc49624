"""Tables of idle GPUs: every gap with its cause, and what each cause cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.causes.api_calls import (
    IN_API,
    IN_BLOCKING,
    IN_COMPILER,
    IN_COPY,
    IN_LAUNCH,
    IN_LOADER,
    IN_OP,
    IN_SYNC,
    NOTHING,
    WAITS,
    ends,
    kinds,
)
from bridge.analyze.causes.host_timeline import Cover, Pieces, Timeline, joined_pieces
from bridge.analyze.causes.idle import Gaps
from bridge.analyze.groups import counts, highest, lowest, ratio, sums, texts
from bridge.analyze.roles import compiles, loads_data
from bridge.join.arrays import NONE, Flags, Ints, by, number, runs, unions
from bridge.join.attributed import Attributed
from importers import frames

# -- What the threads of the host were in, as a timeline: coarse, to part idle time, or to name what kept them


WORKING, WAITING = 1, 2  # of the coarse timeline: on the way to a launch, or kept from it
KEEPING = (*WAITS, IN_COMPILER, IN_LOADER)


def coarse(joined: Attributed) -> Timeline:
    """Tell only whether a thread worked towards a launch, was kept from it, or had nothing open."""
    nesting = joined.attribution.nesting
    stack, start, end, kind = _nodes(joined)
    outermost = (nesting.parent == NONE) | (nesting.stack[nesting.parent] != nesting.stack)
    needed = outermost | (kind != IN_OP)
    nodes = tuple(c[needed] for c in (stack, start, end, kind))
    stack, start, end, kind = (
        np.concatenate(pair) for pair in zip(nodes, _calls(joined), strict=True)
    )
    keeping = np.isin(kind, KEEPING)
    working = unions(stack, start, end)
    waiting = unions(*(c[keeping] for c in (stack, start, end)))
    meaning = np.repeat([WORKING, WAITING], [len(working[0]), len(waiting[0])])
    stack, start, end = (np.concatenate(pair) for pair in zip(working, waiting, strict=True))
    return Timeline.of(stack, start, end, meaning)


def fine(joined: Attributed, windows: Cover) -> Timeline:
    """Tell what a thread was in (see `calls`) within some windows; every op begins and ends a piece."""
    rows = []
    for columns in (_nodes(joined), _calls(joined)):
        within = windows.meets(*columns[:3])
        rows.append(tuple(c[within] for c in columns))
    return Timeline.of(*(np.concatenate(pair) for pair in zip(*rows, strict=True)))


def _nodes(joined: Attributed) -> tuple[Ints, Ints, Ints, Ints]:
    """Return stack, start, end and kind of each range that is an op."""
    nesting = joined.attribution.nesting
    op = joined.node_op
    kind = np.where(
        loads_data(joined)[op], IN_LOADER, np.where(compiles(joined)[op], IN_COMPILER, IN_OP)
    )
    return nesting.stack, nesting.start, nesting.end, kind


def _calls(joined: Attributed) -> tuple[Ints, Ints, Ints, Ints]:
    """Return stack, start, end and kind of each API call."""
    start = frames.ints(joined.report.launches, "start")
    return joined.attribution.stack, start, ends(joined), kinds(joined)


# -- Idle time of GPUs, blamed on what the host did meanwhile


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


# -- Tables of idle GPUs: every gap with its cause, and what each cause cost


CAUSES = {  # the words for states, in the order in which ties are broken
    IN_OP: "op",
    IN_LAUNCH: "launch",
    IN_API: "api",
    IN_COPY: "memcpy",
    LATENCY: "latency",
    IN_LOADER: "data loading",
    IN_COMPILER: "compilation",
    IN_SYNC: "sync",
    IN_BLOCKING: "blocking memcpy",
    NOTHING: "no op",
    UNKNOWN: "unknown",
}
WORDS = tuple(CAUSES.values())
PLACE = np.array([list(CAUSES).index(state) for state in range(len(CAUSES))])
OVER_NS = 10_000


@dataclass(frozen=True)
class Causes:
    """What caused gaps: a row per gap, cause (a place in `WORDS`) and op, and how many ns of the gap.

    Sorted by these three; the sum over a gap's rows is its length. ``first`` is when the first of it began.
    """

    gaps: Gaps
    gap: Ints
    cause: Ints
    op: Ints
    length: Ints
    first: Ints


def gaps(joined: Attributed, threshold_ns: int = OVER_NS) -> Causes:
    """Find the gaps of all GPUs that are longer than the threshold and ended by what is counted, and their causes."""
    found = Gaps.of(joined, threshold_ns)
    found = found.taken(joined.counted[found.ended_by])
    pieces = blame(joined, found, fine(joined, windows(joined, found)))
    op = _named(joined, found, pieces)
    state = np.where((pieces.state == IN_LAUNCH) & (op != NONE), IN_OP, pieces.state)
    cause = PLACE[state]
    group, rows = number(pieces.of, cause, op)
    return Causes(
        gaps=found,
        gap=pieces.of[rows],
        cause=cause[rows],
        op=op[rows],
        length=sums(group, pieces.length, len(rows)),
        first=lowest(group, pieces.start, len(rows)),
    )


def by_gap(joined: Attributed, threshold_ns: int = OVER_NS) -> pd.DataFrame:
    """Return one row per gap: ``cause`` is what took most of it, ``cause_ns`` how much, ``op`` which op most of that.

    ``ended_by`` is the op of the activity that ended it, its own name if it has none; ``step`` the number
    of its step, -1 if there is none.
    """
    causes = gaps(joined, threshold_ns)
    found, activity = causes.gaps, causes.gaps.ended_by
    main, total = _main(causes)
    names = joined.report.activities["name"]
    kernel = texts([*names.cat.categories, ""])[frames.codes(names)[activity]]
    op = joined.activity_op[activity]
    step = joined.activity_iteration[activity]
    return pd.DataFrame(
        {
            "device": texts(found.devices)[found.device],
            "start_ns": found.start,
            "gap_ns": found.length,
            "cause": texts(WORDS)[causes.cause[main]],
            "cause_ns": total,
            "op": texts([*joined.ops, ""])[causes.op[main]],
            "ended_by": np.where(op == NONE, kernel, texts([*joined.ops, ""])[op]),
            "kernel": kernel,
            "step": np.append(joined.iterations.number, NONE)[step],
        }
    )


def by_idle(joined: Attributed, threshold_ns: int = OVER_NS) -> pd.DataFrame:
    """Return one row per cause and op: how many gaps it had a part in, and how much of them was its.

    ``mean`` and ``max`` are of its part of a gap; ``share`` is of the idle time of all gaps listed.
    """
    causes = gaps(joined, threshold_ns)
    group, rows = number(causes.cause, causes.op)
    size = len(rows)
    count, total = counts(group, size), sums(group, causes.length, size)
    return pd.DataFrame(
        {
            "cause": texts(WORDS)[causes.cause[rows]],
            "op": texts([*joined.ops, ""])[causes.op[rows]],
            "gaps": count,
            "total_ns": total,
            "mean_ns": ratio(total, count),
            "max_ns": highest(group, causes.length, size),
            "share": ratio(total, int(causes.gaps.length.sum())),
        }
    )


def _main(causes: Causes) -> tuple[Ints, Ints]:
    """Return per gap the row of the op that took most of the cause that took most, and the time of that cause.

    Of causes that took as much the first in `WORDS`, of ops the one that began first, counts.
    """
    kind, rows = number(causes.gap, causes.cause)
    total = sums(kind, causes.length, len(rows))[kind]
    order = by(causes.gap, -total, causes.cause, -causes.length, causes.first)
    main = order[runs(causes.gap[order])[:-1]]
    return main, total[main]


def _named(joined: Attributed, found: Gaps, pieces: Pieces) -> Ints:
    """Return the op that each piece names: where the host was, or whose launch was under way; NONE for none."""
    nesting = joined.attribution.nesting
    op = np.full(len(pieces.of), NONE)
    told = np.flatnonzero((pieces.state > NOTHING) & (pieces.stack != NONE))
    node = nesting.innermost(pieces.stack[told], pieces.start[told])
    own = np.append(nesting.stack, NONE)[node] == pieces.stack[told]
    node[~own] = NONE  # adopted by a range of another thread
    state = pieces.state[told]
    for which, ops in ((IN_LOADER, loads_data(joined)), (IN_COMPILER, compiles(joined))):
        some = np.flatnonzero(state == which)
        node[some] = _outermost(joined, node[some], ops)
    op[told] = np.where(node == NONE, NONE, np.append(joined.node_op, NONE)[node])
    late = pieces.state == LATENCY
    op[late] = joined.activity_op[found.ended_by[pieces.of[late]]]
    return op


def _outermost(joined: Attributed, node: Ints, ops: Flags) -> Ints:
    """Return the outermost node around each whose op is one of some; the node itself if there is none."""
    nesting = joined.attribution.nesting
    found, above = node.copy(), node.copy()
    left = np.flatnonzero(node != NONE)
    while len(left):
        at = above[left]
        chosen = ops[joined.node_op[at]]
        found[left[chosen]] = at[chosen]
        above[left] = nesting.parent[at]
        left = left[(nesting.parent[at] != NONE)]
        left = left[nesting.stack[above[left]] == nesting.stack[node[left]]]
    return found
