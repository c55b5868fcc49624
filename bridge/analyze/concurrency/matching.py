"""The same collective on all ranks: the n-th of streams on which they run the same ones."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bridge.analyze.groups import lowest
from bridge.join.order import NONE, Ints, by, number, runs


def transfers(rank: Ints, stream: Ints, kind: Ints, start: Ints, time: Ints) -> Ints:
    """Return for each collective the least time that it took on any rank, -1 for one that only one rank is known to run.

    Ranks belong together by what they run, kind after kind, on a stream; where a rank has several streams
    that run the same, the first of each belong together. Clocks do not matter: times alone are compared.
    """
    if not len(rank):
        return time
    same = together(rank, stream, kind, start)
    ran = np.bincount(same)
    least = lowest(same, time, len(ran))
    found: Ints = np.where(ran > 1, least, NONE)[same]
    return found


def together(rank: Ints, stream: Ints, kind: Ints, start: Ints) -> Ints:
    """Number the collectives: alike those that are one on several ranks, and none else. There is at least one."""
    order = by(rank, stream, start)
    home, _ = number(rank[order], stream[order])
    edges = runs(home)
    place = np.arange(len(order)) - np.repeat(edges[:-1], np.diff(edges))
    sequence = np.empty(len(order), np.int64)
    for one, (first, last) in zip(
        _same(rank, kind, start, order, edges), pairwise(edges.tolist()), strict=True
    ):
        sequence[first:last] = one
    found = np.empty(len(order), np.int64)
    found[order] = number(sequence, place)[0]
    return found


def _same(rank: Ints, kind: Ints, start: Ints, order: Ints, edges: Ints) -> list[int]:
    """Number the streams: alike those of several ranks that run the same."""
    numbers: dict[tuple[bytes, int], int] = {}
    seen: dict[tuple[bytes, int], int] = {}
    found = [0] * (len(edges) - 1)
    begun = [int(start[order[first]]) for first in edges[:-1].tolist()]
    for nth in np.argsort(begun, kind="stable").tolist():  # a turn per stream of a rank
        rows = order[edges[nth] : edges[nth + 1]]
        runs_, of = kind[rows].tobytes(), int(rank[rows[0]])
        seen[runs_, of] = seen.get((runs_, of), 0) + 1
        found[nth] = numbers.setdefault((runs_, seen[runs_, of]), len(numbers))
    return found
