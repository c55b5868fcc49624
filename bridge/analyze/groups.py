"""Exact figures per group on whole columns: counts, sums, extremes, quantiles; int64 throughout."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bridge.join.arrays import Ints, by

Floats = NDArray[np.float64]


def texts(names: Iterable[object]) -> NDArray[np.object_]:
    """Return a column of names that is one of names even without a row."""
    return np.array(list(names), dtype=object)


def counts(group: Ints, groups: int) -> Ints:
    """Return how many rows each group has."""
    return np.bincount(group, minlength=groups).astype(np.int64)


def sums(group: Ints, values: Ints, groups: int) -> Ints:
    """Return each group's sum, exactly: no float in between."""
    total = np.zeros(groups, np.int64)
    np.add.at(total, group, values)
    return total


def lowest(group: Ints, values: Ints, groups: int, *, empty: int = -1) -> Ints:
    """Return each group's least value."""
    found = np.full(groups, np.iinfo(np.int64).max)
    np.minimum.at(found, group, values)
    return np.where(found == np.iinfo(np.int64).max, empty, found)


def highest(group: Ints, values: Ints, groups: int, *, empty: int = -1) -> Ints:
    """Return each group's greatest value."""
    found = np.full(groups, np.iinfo(np.int64).min)
    np.maximum.at(found, group, values)
    return np.where(found == np.iinfo(np.int64).min, empty, found)


def quantiles(group: Ints, values: Ints, groups: int, *shares: float) -> list[Floats]:
    """Return quantiles of each group, interpolated between neighbours; 0 for an empty group."""
    ordered = values[by(group, values)]
    size = counts(group, groups)
    first = np.cumsum(size) - size
    found = []
    for share in shares:
        place = share * np.maximum(size - 1, 0)
        below = np.floor(place).astype(np.int64)
        low = _at(ordered, first + below, size > 0)
        high = _at(ordered, first + np.minimum(below + 1, np.maximum(size - 1, 0)), size > 0)
        found.append(low + (high - low) * (place - below))
    return found


def times(group: Ints, time: Ints, groups: int) -> dict[str, Ints | Floats]:
    """Return count, total, mean, least and greatest time of each group, in ns."""
    count, total = counts(group, groups), sums(group, time, groups)
    return {
        "count": count,
        "total_ns": total,
        "mean_ns": ratio(total, count),
        "min_ns": lowest(group, time, groups),
        "max_ns": highest(group, time, groups),
    }


def ratio(part: Ints, whole: Ints | int) -> Floats:
    """Return part / whole, 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(len(part)), where=np.asarray(whole) != 0)


def _at(ordered: Ints, places: Ints, there: NDArray[np.bool_]) -> Ints:
    if not len(ordered):
        return np.zeros(len(places), np.int64)
    return np.where(there, ordered[np.minimum(places, len(ordered) - 1)], 0)
