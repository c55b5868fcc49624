"""Sorting whole columns: by several keys, fast where they are nearly in order, as records are."""

from __future__ import annotations

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
