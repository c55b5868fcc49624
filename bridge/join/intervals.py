"""Unions of intervals, and their lengths, per group."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bridge.join.order import Ints, by, runs


def busy(group: Ints, start: Ints, end: Ints, groups: int) -> Ints:
    """Return the length of the union of each group's intervals; groups are 0 … groups - 1.

    Intervals that end before they start count for nothing.
    """
    total = np.zeros(groups, np.int64)
    if not len(group):
        return total
    order = by(group, start)
    group, start, end = group[order], start[order], np.maximum(end, start)[order]
    span = int(end.max()) - int(start.min()) + 1
    step = max(1, (1 << 62) // span)  # as many groups at a time as fit into 63 bits
    for first in range(0, groups, step):
        a, b = np.searchsorted(group, (first, first + step))
        np.add.at(total, group[a:b], _added(group[a:b] - first, start[a:b], end[a:b], span))
    return total


def busy_apart(group: Ints, clock: Ints, start: Ints, end: Ints, groups: int) -> Ints:
    """Return the same where times of several clocks (0, 1 …) share none: theirs add up."""
    clocks = int(clock.max(initial=0)) + 1
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


def _added(group: Ints, start: Ints, end: Ints, span: int) -> Ints:
    """Return what each interval adds to the union of those before it in its group."""
    if not len(group):
        return group
    # Groups are laid one after another on one axis, so that one running maximum serves all.
    shift = group * span - start.min()
    reached = np.maximum.accumulate(end + shift)
    before = np.concatenate(([np.iinfo(np.int64).min], reached[:-1]))
    added: Ints = np.maximum(0, end + shift - np.maximum(start + shift, before))
    return added
