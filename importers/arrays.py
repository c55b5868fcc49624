"""Whole columns as arrays: numbering of equal values, and values by row number."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Integers = NDArray[np.signedinteger[Any]]  # of any size
Scalar = TypeVar("Scalar", bound=np.generic)

MISSING = -1  # of integers, and of row numbers: no such row
LARGE = 1 << 16  # values from which on the time to import pandas is less than that of sorting them


def lookup(values: NDArray[Scalar], rows: Integers, missing: Any = MISSING) -> NDArray[Scalar]:
    """Return the values at rows; ``missing`` where a row is -1, or the one behind the last."""
    if rows.size < len(values) // 4:  # then it is faster to correct some values than to copy all
        is_missing = (rows == MISSING) | (rows == len(values))
        found = np.asarray(values[np.where(is_missing, 0, rows)])  # of a single row a scalar
        found[is_missing] = missing
        return found
    with_missing = np.empty(len(values) + 1, values.dtype)
    with_missing[:-1], with_missing[-1] = values, missing
    result: NDArray[Scalar] = with_missing[rows]
    return result


def scatter(values: Integers, rows: Integers, size: int) -> Ints:
    """Return ``size`` integers with the values at rows, -1 elsewhere; of several values for a row the last."""
    result = np.full(size, MISSING)
    result[rows] = values
    return result


def positions(rows: Integers, size: int) -> Ints:
    """Return where each number below ``size`` stands in ``rows``, -1 if it does not."""
    return scatter(np.arange(len(rows)), rows, size)


def factorize(values: NDArray[Any]) -> tuple[Ints, NDArray[Any]]:
    """Return a code per value, in order of first occurrence, and the distinct values."""
    if values.dtype == object:
        return _factorize_objects(values)
    if len(values) >= LARGE:
        import pandas as pd

        codes, distinct = pd.factorize(values)
        return codes.astype(np.int64, copy=False), distinct
    _, first, number = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[number], values[first[order]]


def _factorize_objects(values: NDArray[Any]) -> tuple[Ints, NDArray[Any]]:
    places: dict[Any, int] = {}
    codes = [places.setdefault(value, len(places)) for value in values.tolist()]
    distinct = np.empty(len(places), object)
    distinct[:] = list(places)
    return np.array(codes, np.int64), distinct
