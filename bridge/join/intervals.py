"""Unions of intervals, and their lengths, per group."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bridge.join.order import Ints, by, runs

BLOCK = 1 << 18  # intervals united at a time: what is made of them stays in the cache


def busy(group: Ints, start: Ints, end: Ints, groups: int) -> Ints:
    """Return the length of the union of each group's intervals; groups are 0 … groups - 1.

    Intervals that end before they start count for nothing.
    """
    total = np.zeros(groups, np.int64)
    if not len(group):
        return total
    order = by(group, start)
    span = int(max(end.max(), start.max())) - int(start.min()) + 1
    step = max(1, (1 << 62) // span)  # as many groups at a time as fit into 63 bits
    for first in range(0, groups, step):
        a, b = np.searchsorted(group, (first, first + step), sorter=order)
        # Groups are laid one after another on one axis, so that one running maximum serves all.
        reached = np.iinfo(np.int64).min
        for block in range(a, b, BLOCK):
            rows = order[block : min(block + BLOCK, b)]
            shift = (group[rows] - first) * span - start.min()
            added, reached = _added(start[rows] + shift, end[rows] + shift, reached)
            np.add.at(total, group[rows], added)
    return total


def busy_apart(group: Ints, clock: Ints, start: Ints, end: Ints, groups: int) -> Ints:
    """Return the same where times of several clocks (0, 1 …) share none: theirs add up."""
    clocks = int(clock.max(initial=0)) + 1
    if clocks == 1:
        return busy(group, start, end, groups)
    apart = busy(group * clocks + clock, start, end, groups * clocks)
    together: Ints = apart.reshape(groups, clocks).sum(axis=1)
    return together


def unions(group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return group, start and end of the times at which any interval of a group is open, in order."""
    lasting = np.flatnonzero(end > start)
    order = lasting[by(group[lasting], start[lasting])]
    group, start, end = group[order], start[order], end[order]
    reached = end.copy()
    edges = runs(group).tolist()
    for first, last in pairwise(edges):  # a turn per group
        reached[first:last] = np.maximum.accumulate(end[first:last])
    new = np.ones(len(start), bool)
    new[1:] = (group[1:] != group[:-1]) | (start[1:] > reached[:-1])
    begin = np.flatnonzero(new)
    stop = np.append(begin[1:], len(start))[: len(begin)] - 1
    return group[begin], start[begin], reached[stop]


def _added(start: Ints, end: Ints, reached: int) -> tuple[Ints, int]:
    """Return what each interval adds to the union of those before it, which reaches so far, and how far all do."""
    running = np.maximum(np.maximum.accumulate(end), reached)
    before = np.concatenate(([reached], running[:-1]))
    added: Ints = np.maximum(0, end - np.maximum(start, before))
    return added, int(running[-1])
