"""Statistics of the times of groups: mean, minimum, maximum, quantiles, span."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

import numpy as np

from bridge.analyze.core.catalog.column import QUANTILES
from bridge.analyze.core.groups import (
    counts,
    highest,
    lowest,
    quantiles,
    quantiles_of_counted,
    ratio,
    sorted_in_groups,
    sums,
)
from bridge.join.arrays import NONE, Ints, unions

Rows = TypeVar("Rows")
Columns = dict[str, np.ndarray]
TIMES = "times"  # a column of `times_of`, which no table shows


def computed(
    groups: Rows,
    figures: Mapping[tuple[str, ...], Callable[[Rows], Columns]],
    order: Sequence[str],
    columns: Collection[str],
) -> Columns:
    """Compute the figures of which any column is requested; return those columns, in ``order``."""
    computed_columns: Columns = {}
    for names, compute in figures.items():
        if any(name in columns for name in names):
            computed_columns |= compute(groups)
    return {name: computed_columns[name] for name in order if name in columns}


def spread(prefix: str, group: Ints, values: Ints, groups: int) -> Columns:
    """Return ``<prefix>mean_ns``, min, p50, p95, p99, max of each group; 0 without values."""
    in_group = group != NONE
    if not in_group.all():
        group, values = group[in_group], values[in_group]
    result: Columns = {
        "mean": ratio(sums(group, values, groups), counts(group, groups)),
        "min": lowest(group, values, groups, empty=0),
    }
    result |= zip(QUANTILES, quantiles(group, values, groups, *QUANTILES.values()), strict=True)
    result["max"] = highest(group, values, groups, empty=0)
    return {f"{prefix}{name}_ns": column for name, column in result.items()}


def spread_of_counted(prefix: str, group: Ints, values: Ints, times: Ints, groups: int) -> Columns:
    """Return what `spread` does where a value occurs ``times`` times; the rows are in the order of group and value."""
    shares = quantiles_of_counted(group, values, times, groups, *QUANTILES.values())
    result: Columns = {
        "mean": ratio(sums(group, values * times, groups), sums(group, times, groups)),
        "min": lowest(group, values, groups, empty=0),
        **dict(zip(QUANTILES, shares, strict=True)),
        "max": highest(group, values, groups, empty=0),
    }
    return {f"{prefix}{name}_ns": column for name, column in result.items()}


def times_of(group: Ints, values: Ints, groups: int) -> np.ndarray:
    """Return the sorted values of each group, to compute `spread` over several reports."""
    in_group = group != NONE
    group, values = group[in_group], values[in_group]
    size = counts(group, groups)
    ends = np.cumsum(size).tolist()
    values = sorted_in_groups(group, values, size)
    # For the small groups that most are, np.split takes several times as long.
    parts = (values[first:end] for first, end in pairwise([0, *ends]))
    return np.fromiter(parts, object, groups)


def span_apart(group: Ints, clock: Ints, start: Ints, end: Ints, groups: int) -> Ints:
    """Return the span of each group, first start to last end, summed over the clocks (0, 1 …)."""
    clocks = int(clock.max(initial=0)) + 1
    clock_group = group * clocks + clock
    first = lowest(clock_group, start, groups * clocks, empty=0)
    last = highest(clock_group, end, groups * clocks, empty=0)
    total_span: Ints = (last - first).reshape(groups, clocks).sum(axis=1)
    return total_span


# -- Columns of one window of a report, from which the columns of the whole report are computed exactly


THERE = "there"  # number of ranges and activities; a group that has none in any window is no row
CALLS_OF = "ranges"  # the range of each call of a group
FIRST, LAST, UNION = "first_ns", "last_ns", "union"
NAMES = (THERE, CALLS_OF, FIRST, LAST, UNION)
NEVER = np.iinfo(np.int64)


def presence(of_range: Ints, of_activity: Ints, groups: int) -> Columns:
    """Return the number of ranges and activities of each group; NONE is no group."""
    parts = (counts(codes[codes != NONE], groups) for codes in (of_range, of_activity))
    return {THERE: np.add(*parts)}


def calls(group: Ints, ranges: Ints, groups: int) -> Columns:
    """Return for each group the ranges that its calls are."""
    return {CALLS_OF: times_of(group, ranges, groups)}


def intervals(group: Ints, start: Ints, end: Ints, groups: int) -> Columns:
    """Return the first start, the last end and the union of the intervals of each group.

    The union is an array of (start, end) in order. A group without intervals has the largest int64
    as its start and the smallest as its end.
    """
    union_group, begin, stop = unions(group, start, end)
    edges = np.cumsum(counts(union_group, groups))[:-1]
    pairs = np.split(np.stack((begin, stop), axis=1), edges) if groups else []
    return {
        FIRST: lowest(group, start, groups, empty=NEVER.max),
        LAST: highest(group, end, groups, empty=NEVER.min),
        UNION: np.fromiter(pairs, object, groups),
    }
