"""Counts, sums, extremes and quantiles per group, on whole columns of int64."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.join.arrays import Ints, order_by

Floats = NDArray[np.float64]


def texts(names: Iterable[object]) -> NDArray[np.object_]:
    """Return names as an array of dtype object, also where there are none."""
    return np.array(list(names), dtype=object)


Codes = NDArray[np.integer[Any]]  # a group per row


def counts(group: Codes, groups: int) -> Ints:
    """Return the number of rows of each group."""
    return np.bincount(group, minlength=groups).astype(np.int64)


def sums(group: Codes, values: Ints, groups: int) -> Ints:
    """Return the sum of each group, exactly, in int64."""
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, values)
    return total


def lowest(group: Codes, values: Ints, groups: int, *, empty: int = -1) -> Ints:
    """Return the minimum of each group, ``empty`` for a group without rows."""
    result = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(result, group, values)
    return np.where(result == np.iinfo(np.int64).max, empty, result)


def highest(group: Codes, values: Ints, groups: int, *, empty: int = -1) -> Ints:
    """Return the maximum of each group, ``empty`` for a group without rows."""
    result = np.full(groups, np.iinfo(np.int64).min)
    np.maximum.at(result, group, values)
    return np.where(result == np.iinfo(np.int64).min, empty, result)


def quantiles(group: Ints, values: Ints, groups: int, *shares: float) -> list[Floats]:
    """Return quantiles of each group, linearly interpolated; 0 for a group without rows."""
    size = counts(group, groups)
    return _interpolated(sorted_in_groups(group, values, size), size, None, shares)


def sorted_in_groups(group: Ints, values: Ints, size: Ints) -> Ints:
    """Return the values sorted by their group, then by themselves; ``size`` is the number of values of each group."""
    lowest_value = int(values.min(initial=0))
    span = int(values.max(initial=0)) - lowest_value + 1
    if len(size) * span + abs(lowest_value) >= 1 << 62:
        return values[order_by(group, values)]
    # The groups one after another on one axis: a sort in place suffices.
    shifted = group.astype(np.int64, copy=False) * span
    shifted += values
    shifted -= lowest_value
    shifted.sort()
    shifted %= span
    shifted += lowest_value
    return shifted


def quantiles_of_counted(
    group: Ints, values: Ints, times: Ints, groups: int, *shares: float
) -> list[Floats]:
    """Return the same where a value occurs ``times`` times; the rows are in the order of group and value."""
    return _interpolated(values, sums(group, times, groups), np.cumsum(times), shares)


def _interpolated(
    ordered: Ints, size: Ints, ends: Ints | None, shares: Sequence[float]
) -> list[Floats]:
    """Return quantiles of groups of some sizes that follow each other; value i occurs up to place ``ends[i]``."""
    first = np.cumsum(size) - size

    def at(place: Ints) -> Ints:
        positions = first + place
        if ends is not None:
            positions = np.searchsorted(ends, positions, side="right")
        return _at(ordered, positions, size > 0)

    result = []
    for share in shares:
        position = share * np.maximum(size - 1, 0)
        below = np.floor(position).astype(np.int64)
        low, high = at(below), at(np.minimum(below + 1, np.maximum(size - 1, 0)))
        result.append(low + (high - low) * (position - below))
    return result


def times(group: Ints, time: Ints, groups: int) -> dict[str, Ints | Floats]:
    """Return the count and the total, mean, minimum and maximum time of each group, in ns."""
    count, total = counts(group, groups), sums(group, time, groups)
    return {
        "count": count,
        "total_ns": total,
        "mean_ns": ratio(total, count),
        "min_ns": lowest(group, time, groups),
        "max_ns": highest(group, time, groups),
    }


def ratio(part: Ints, whole: Ints | int) -> Floats:
    """Return part / whole, 0 where ``whole`` is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=np.asarray(whole) != 0)


def _at(ordered: Ints, positions: Ints, present: NDArray[np.bool_]) -> Ints:
    if not len(ordered):
        return np.zeros(len(positions), np.int64)
    return np.where(present, ordered[np.minimum(positions, len(ordered) - 1)], 0)
