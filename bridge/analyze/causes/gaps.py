"""Tables of idle GPUs: every gap with its cause, and what each cause cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bridge.analyze.causes.blame import LATENCY, UNKNOWN, blame, windows
from bridge.analyze.causes.calls import (
    IN_API,
    IN_BLOCKING,
    IN_COMPILER,
    IN_COPY,
    IN_LAUNCH,
    IN_LOADER,
    IN_OP,
    IN_SYNC,
    NOTHING,
)
from bridge.analyze.causes.host import fine
from bridge.analyze.causes.idle import Gaps
from bridge.analyze.causes.timeline import Pieces
from bridge.analyze.groups import counts, highest, lowest, ratio, sums, texts
from bridge.analyze.roles import compiles, loads_data
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Flags, Ints, by, number, runs
from importers import frames

CAUSES = {  # the words for states, in the order in which ties are broken
    IN_OP: "op",
    IN_LAUNCH: "launch",
    IN_API: "api",
    IN_COPY: "copy",
    LATENCY: "latency",
    IN_LOADER: "data loading",
    IN_COMPILER: "compilation",
    IN_SYNC: "sync",
    IN_BLOCKING: "blocking copy",
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
