"""What is kept of the groups of a part of a report, so that the groups of all parts together can be told exactly.

Sums add up as they are. Unions of intervals, and calls that go on in another part, need these.
"""

from __future__ import annotations

import numpy as np

from bridge.analyze.breakdown.statistics import Columns, times_of
from bridge.analyze.groups import counts, highest, lowest
from bridge.join.intervals import unions
from bridge.join.order import NONE, Ints

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
