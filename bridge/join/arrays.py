"""Sort, group and number whole columns, and unite intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import scatter

Ints = NDArray[np.int64]
Rows = NDArray[np.int32]  # row numbers of a long column; half as large as `Ints`
Integers = NDArray[np.signedinteger[Any]]  # of any size
Flags = NDArray[np.bool_]

NONE = -1  # "no such row", in any column that holds row numbers


def stable_order(key: Integers) -> Ints:
    """Return the stable sort order of a column; cheap if the column is already sorted."""
    if (key[1:] >= key[:-1]).all():
        return np.arange(len(key))
    if key.min() >= 0 and key.max() < 1 << 16:
        return np.argsort(key.astype(np.uint16), kind="stable")  # NumPy's radix sort: linear
    return np.argsort(key, kind="stable")


def order_by(*keys: Integers) -> Ints:
    """Return the order that sorts rows by the first key, then by each further key, then by row."""
    if is_sorted(*keys):
        return np.arange(len(keys[0]))
    order = stable_order(keys[-1])
    for key in keys[-2::-1]:
        following = key[order]
        if not is_sorted(following):
            order = order[stable_order(following)]
    return order


def is_sorted(*keys: Integers) -> bool:
    """Return whether rows are sorted by the first key, then by each further key.

    Stops at the first key that shows that they are not.
    """
    tied: Flags | bool = True
    for key in keys:
        before, after = key[:-1], key[1:]
        if (tied & (after < before)).any():
            return False
        tied = tied & (after == before)
    return True


def outer_first_order(track: Ints, start: Ints, end: Ints) -> Ints:
    """Return the order by track, then start, then descending end, then row."""
    order = unless_outer_first(track, start, end)
    return np.arange(len(start)) if order is None else order


def unless_outer_first(track: Ints, start: Ints, end: Ints) -> Ints | None:
    """Return `outer_first_order`, None if rows are in that order."""
    order = None if is_sorted(track, start) else order_by(track, start)
    track, start = (key if order is None else taken(key, order) for key in (track, start))
    same = np.zeros(len(start) + 1, bool)  # as the row before
    same[1:-1] = (track[1:] == track[:-1]) & (start[1:] == start[:-1])
    tied = np.flatnonzero(same[:-1] | same[1:])
    rows = tied if order is None else order[tied]
    keys = np.cumsum(~same[tied]), -end[rows]
    if not is_sorted(*keys):
        order = np.arange(len(start)) if order is None else order
        order[tied] = rows[order_by(*keys)]
    return order


def distinct(numbers: Ints) -> Ints:
    """Return the distinct values of a column of small numbers from 0 on, sorted."""
    if is_single_value(numbers):
        return numbers[:1].copy()
    return np.flatnonzero(np.bincount(numbers))


def run_edges(key: Ints) -> Ints:
    """Return the index at which each run of equal values starts, then the length of ``key``."""
    if not len(key):
        return np.zeros(1, np.int64)
    return np.concatenate(([0], np.flatnonzero(key[1:] != key[:-1]) + 1, [len(key)]))


def number_groups(*keys: Ints) -> tuple[Ints, Ints]:
    """Number the distinct combinations of keys in sorted order.

    Returns the number of each row's combination, and one row of each combination.
    """
    if not len(keys[0]):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if all(map(is_single_value, keys)):
        return repeated(0, len(keys[0])), np.zeros(1, np.int64)
    keys = tuple(key for key in keys if not is_single_value(key))  # others distinguish nothing
    combination = _few_combinations(*keys)
    if combination is not None:
        return _number_few(combination)
    order = None if is_sorted(*keys) else order_by(*keys)
    new = np.zeros(len(keys[0]), bool)
    for key in keys:
        ordered = key if order is None else key[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    number = np.cumsum(new)
    new[0] = True
    if order is None:
        return number, np.flatnonzero(new)
    numbers = np.empty(len(order), np.int64)
    numbers[order] = number
    return numbers, order[new]


FEW = 1 << 18  # combinations that are counted in a table instead of sorted, or twice the rows


def search_groups(group: Ints, values: Ints, of: Ints, sought: Ints, *, side: str) -> Ints:
    """Return where each sought value belongs among the values of its group, as `numpy.searchsorted` does.

    ``values`` are sorted by ``group`` and then by themselves; ``of`` is the group of each sought value.
    """
    distinct, rank = np.unique(np.concatenate((values, sought)), return_inverse=True)
    keys = group * len(distinct) + rank[: len(values)]
    wanted = of * len(distinct) + rank[len(values) :]
    result: Ints = np.searchsorted(keys, wanted, "left" if side == "left" else "right")
    return result


def _few_combinations(*keys: Ints) -> Ints | None:
    """Return the combination of keys of each row as one number, in their order; None if it may be large."""
    combination, size = np.zeros(len(keys[0]), np.int64), 1
    for key in keys:
        smallest = int(key.min())
        values = int(key.max()) - smallest + 1
        size *= values
        if size > max(FEW, 2 * len(key)):
            return None
        if values > 1:  # a key with a single value distinguishes nothing
            combination = combination * values + (key.astype(np.int64) - smallest)
    return combination


def _number_few(combination: Ints) -> tuple[Ints, Ints]:
    """Return what `number_groups` does, for combinations that are small numbers."""
    occurs = np.zeros(int(combination.max()) + 1, bool)
    occurs[combination] = True
    numbers = (np.cumsum(occurs) - 1)[combination]
    first_row = np.empty(np.count_nonzero(occurs), np.int64)
    first_row[numbers[::-1]] = np.arange(len(numbers))[::-1]  # the last assignment stays
    return numbers, first_row


# -- Columns with the same value in every row, which take the memory of one


def is_single_value(column: Ints) -> bool:
    """Return whether a column repeats one place in memory."""
    return column.strides == (0,)


def repeated(value: int, count: int) -> Ints:
    """Return a column with the same value in every row; it cannot be written to."""
    return np.broadcast_to(np.int64(value), count)


def each(function: Callable[[Ints], Ints], column: Ints) -> Ints:
    """Apply an elementwise function to a column; what repeats one value still does."""
    if is_single_value(column) and len(column):
        return np.broadcast_to(function(column[:1]), column.shape)
    return function(column)


def taken(column: Ints, rows: Integers) -> Ints:
    """Return a column's values at some rows; what repeats one value still does."""
    return (
        repeated(int(column[0]), len(rows))
        if is_single_value(column) and len(column)
        else column[rows]
    )


def at_rows(values: Ints, rows: Ints, count: int) -> Ints:
    """Return a column of ``count`` rows with values at distinct rows, NONE at others."""
    if is_single_value(values) and len(rows) == count:
        return values
    return scatter(values, rows, count)


# -- Unions of intervals per group


BLOCK = 1 << 18  # rows processed at a time, so that intermediate arrays stay in the cache


def blocks(rows: int) -> Iterator[slice]:
    """Yield the slices of `BLOCK` rows of which a column consists."""
    return (slice(first, min(first + BLOCK, rows)) for first in range(0, rows, BLOCK))


def busy_time(group: Ints, start: Ints, end: Ints, groups: int) -> Ints:
    """Return the length of the union of each group's intervals; groups are 0 … groups - 1.

    Intervals that end before they start are ignored.
    """
    total = np.zeros(groups, np.int64)
    if not len(group):
        return total
    order = order_by(group, start)
    span = int(max(end.max(), start.max())) - int(start.min()) + 1
    step = max(1, (1 << 62) // span)  # groups per pass, so that shifted times fit into 63 bits
    for first in range(0, groups, step):
        a, b = np.searchsorted(group, (first, first + step), sorter=order)
        # Groups are shifted one after another on one time axis, so that one running maximum does.
        covered_until = np.iinfo(np.int64).min
        for block in range(a, b, BLOCK):
            rows = order[block : min(block + BLOCK, b)]
            shift = (group[rows] - first) * span - start.min()
            added, covered_until = _added_lengths(
                start[rows] + shift, end[rows] + shift, covered_until
            )
            np.add.at(total, group[rows], added)
    return total


def busy_time_by_clock(group: Ints, clock: Ints, start: Ints, end: Ints, groups: int) -> Ints:
    """Return the busy time of each group, summed over clocks (0, 1 …) that cannot be compared."""
    clocks = int(clock.max(initial=0)) + 1
    if clocks == 1:
        return busy_time(group, start, end, groups)
    by_clock = busy_time(group * clocks + clock, start, end, groups * clocks)
    total: Ints = by_clock.reshape(groups, clocks).sum(axis=1)
    return total


def unions(group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return group, start and end of the disjoint intervals of each group's union, sorted."""
    order = None if is_sorted(group, start) else order_by(group, start)
    kind = np.min_scalar_type(-int(group.max(initial=0)) - 1)  # signed, as wide as the last group
    columns = each(lambda column: column.astype(kind), group), start, end
    last = [column[:0] for column in columns]  # the piece that the next block may prolong
    joined: tuple[list[NDArray[Any]], ...] = ([], [], [])
    for block in blocks(len(start)):
        rows = block if order is None else order[block]
        lasting = end[rows] > start[rows]
        pieces = _united(*map(np.append, last, (column[rows][lasting] for column in columns)))
        last = [column[-1:] for column in pieces]
        for parts, column in zip(joined, pieces, strict=True):
            parts.append(column[:-1])
    owner, begin, stop = map(_joined, joined, last)
    is_one = is_single_value(group) and len(owner)
    return repeated(int(group[0]), len(owner)) if is_one else owner.astype(np.int64), begin, stop


def _joined(parts: list[NDArray[Any]], last: NDArray[Any]) -> NDArray[Any]:
    """Return parts and the last one as one column, and give back their memory."""
    result = np.concatenate([*parts, last])
    parts.clear()
    return result


def _united(group: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the pieces of the unions of intervals, which are sorted by group and start and have a length."""
    reached = running_maximum(group, start, end)
    new = np.ones(len(start), bool)
    new[1:] = (group[1:] != group[:-1]) | (start[1:] > reached[:-1])
    begin = np.flatnonzero(new)
    stop = np.append(begin[1:], len(start))[: len(begin)] - 1
    return group[begin], start[begin], reached[stop]


def running_maximum(group: Ints, start: Ints, end: Ints) -> Ints:
    """Return the latest end so far in each group; rows are sorted by group, then start."""
    edges = run_edges(group)
    if not len(group):
        return end
    earliest = int(start.min())
    span = int(end.max()) - earliest + 1
    if len(edges) * span < 1 << 62:  # the groups one after another on one time axis
        shift = np.repeat(np.arange(len(edges) - 1) * span - earliest, np.diff(edges))
        latest: Ints = np.maximum.accumulate(end + shift) - shift
        return latest
    latest = end.copy()
    for first, last in pairwise(edges.tolist()):
        latest[first:last] = np.maximum.accumulate(end[first:last])
    return latest


def _added_lengths(start: Ints, end: Ints, covered_until: int) -> tuple[Ints, int]:
    """Return the length that each interval adds to the union, and the end of the union.

    ``covered_until`` is the end of the union before these intervals, which are sorted by start.
    """
    running = np.maximum(np.maximum.accumulate(end), covered_until)
    before = np.concatenate(([covered_until], running[:-1]))
    added: Ints = np.maximum(0, end - np.maximum(start, before))
    return added, int(running[-1])
