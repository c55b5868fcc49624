"""What is said of many times of a group: mean, extremes, quantiles, first start to last end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import numpy as np

from bridge.analyze.groups import counts, highest, lowest, quantiles, ratio, sums
from bridge.join.arrays import NONE, Ints, by, unions

Rows = TypeVar("Rows")
Columns = dict[str, np.ndarray]
TIMES = "times"  # of each group, as `times_of` gives them: nothing that a table shows
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def computed(
    groups: Rows,
    figures: Mapping[tuple[str, ...], Callable[[Rows], Columns]],
    order: Sequence[str],
    wanted: Collection[str],
) -> Columns:
    """Compute the figures of which any column is wanted; return those columns, in order."""
    found: Columns = {}
    for names, compute in figures.items():
        if any(name in wanted for name in names):
            found |= compute(groups)
    return {name: found[name] for name in order if name in wanted}


def spread(prefix: str, group: Ints, values: Ints, groups: int) -> Columns:
    """Return ``<prefix>mean_ns``, min, p50, p95, p99, max of each group; 0 for one without a value."""
    there = group != NONE
    if not there.all():
        group, values = group[there], values[there]
    found: Columns = {
        "mean": ratio(sums(group, values, groups), counts(group, groups)),
        "min": lowest(group, values, groups, empty=0),
    }
    found |= zip(QUANTILES, quantiles(group, values, groups, *QUANTILES.values()), strict=True)
    found["max"] = highest(group, values, groups, empty=0)
    return {f"{prefix}{name}_ns": column for name, column in found.items()}


def times_of(group: Ints, values: Ints, groups: int) -> np.ndarray:
    """Return the values of each group, in order: what `spread` of several reports together is made of."""
    there = group != NONE
    group, values = group[there], values[there]
    ends = np.cumsum(counts(group, groups))
    parts = np.split(values[by(group, values)], ends[:-1]) if groups else []
    return np.fromiter(parts, object, groups)


def statistic_names(prefix: str) -> tuple[str, ...]:
    """Return the names of what `spread` returns."""
    return tuple(f"{prefix}{name}_ns" for name in ("mean", "min", *QUANTILES, "max"))


def span_apart(group: Ints, clock: Ints, start: Ints, end: Ints, groups: int) -> Ints:
    """Return first start to last end of each group; what several clocks (0, 1 …) tell adds up."""
    clocks = int(clock.max(initial=0)) + 1
    both = group * clocks + clock
    first = lowest(both, start, groups * clocks, empty=0)
    last = highest(both, end, groups * clocks, empty=0)
    together: Ints = (last - first).reshape(groups, clocks).sum(axis=1)
    return together


# -- What is kept of the groups of a part of a report, so that the groups of all parts together can be told exactly


THERE = "there"  # how much of a group is counted here: without any it is no row, unless other parts say so
CALLS_OF = "ranges"  # the range that each call of a group is
FIRST, LAST, UNION = "first_ns", "last_ns", "union"
NAMES = (THERE, CALLS_OF, FIRST, LAST, UNION)
NEVER = np.iinfo(np.int64)


def there(of_range: Ints, of_activity: Ints, groups: int) -> Columns:
    """Return how many ranges and activities each group has; NONE is no group."""
    both = (counts(of[of != NONE], groups) for of in (of_range, of_activity))
    return {THERE: np.add(*both)}


def calls(group: Ints, ranges: Ints, groups: int) -> Columns:
    """Return the ranges that the calls of each group are."""
    return {CALLS_OF: times_of(group, ranges, groups)}


def intervals(group: Ints, start: Ints, end: Ints, groups: int) -> Columns:
    """Return first start and last end of each group, and its union: an array of (start, end) in order.

    A group without intervals starts never, and ends never.
    """
    of, begin, stop = unions(group, start, end)
    edges = np.cumsum(counts(of, groups))[:-1]
    pairs = np.split(np.stack((begin, stop), axis=1), edges) if groups else []
    return {
        FIRST: lowest(group, start, groups, empty=NEVER.max),
        LAST: highest(group, end, groups, empty=NEVER.min),
        UNION: np.fromiter(pairs, object, groups),
    }
