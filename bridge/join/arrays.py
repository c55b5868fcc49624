"""Sorting whole columns: by several keys, fast where they are nearly in order, as records are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

NONE = -1  # "no such row", in any column that holds row numbers


def stable(key: Ints) -> Ints:
    """Return the stable order of a column; costs next to nothing where it is sorted already."""
    if (key[1:] >= key[:-1]).all():
        return np.arange(len(key))
    if key.min() >= 0 and key.max() < 1 << 16:
        return np.argsort(key.astype(np.uint16), kind="stable")  # NumPy's radix sort: linear
    return np.argsort(key, kind="stable")


def by(*keys: Ints) -> Ints:
    """Return the order by the first key, ties by the next ones, then by row."""
    if in_order(*keys):
        return np.arange(len(keys[0]))
    order = stable(keys[-1])
    for key in keys[-2::-1]:
        order = order[stable(key[order])]
    return order


def in_order(*keys: Ints) -> bool:
    """Tell whether rows are sorted by the first key, ties by the next ones; soon where they are not."""
    tied: Flags | bool = True
    for key in keys:
        before, after = key[:-1], key[1:]
        if (tied & (after < before)).any():
            return False
        tied = tied & (after == before)
    return True


def outer_first(track: Ints, start: Ints, end: Ints) -> Ints:
    """Return the order by track and start, of equal starts the later end first, then by row."""
    order = by(track, start)
    same = (track[order][1:] == track[order][:-1]) & (start[order][1:] == start[order][:-1])
    return by(track, start, -end) if same.any() else order


def runs(key: Ints) -> Ints:
    """Return where each run of equal neighbours starts, and the length as last entry."""
    if not len(key):
        return np.zeros(1, np.int64)
    return np.concatenate(([0], np.flatnonzero(key[1:] != key[:-1]) + 1, [len(key)]))


def number(*keys: Ints) -> tuple[Ints, Ints]:
    """Number the distinct combinations of some keys, in their order; also a row of each."""
    if not len(keys[0]):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    order = by(*keys)
    new = np.zeros(len(order), bool)
    for key in keys:
        new[1:] |= key[order][1:] != key[order][:-1]
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(new)
    new[0] = True
    return numbers, order[new]


# -- Unions of intervals, and their lengths, per group


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
