"""How far apart ranks came to the collectives that are one, and who came last; clocks of several reports aligned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bridge.analyze.concurrency.clocks import Clocks
from bridge.analyze.concurrency.communication import Calls
from bridge.analyze.concurrency.matching import together
from bridge.analyze.groups import Floats, counts, highest, lowest, ratio, sums, texts
from bridge.join.attributed import Attributed
from bridge.join.order import Flags, Ints, number
from importers import frames

UNKNOWN = -1
COLUMNS = ("arrival_mean_ns", "arrival_max_ns", "last")


def arrivals(
    joined: Attributed,
    calls: Calls,
    ran: Sequence[Ints],
    listed: Ints,
    group: Ints,
    names: Sequence[str],
) -> dict[str, Ints | Floats | np.ndarray]:
    """Return the `COLUMNS` per group of the ``listed`` calls; ``ran`` are rank, stream, kind, start and time of all.

    From the first rank's start to the last one's, on average and at most, in ns; who came last most often, by
    ``names`` of ranks. -1 and '' where any call of a group is of one rank alone, or clocks do not compare.
    """
    many = int(group.max(initial=UNKNOWN)) + 1
    if not many:
        return dict(zip(COLUMNS, (np.empty(0, np.int64),) * 2 + (texts([]),), strict=True))
    rank, *rest = ran
    same = together(rank, *rest[:3])
    clocks, report = Clocks.of(joined), frames.ints(joined.report.activities, "report")[calls.row]
    start = rest[2] + clocks.offset[report]
    size = int(same.max()) + 1
    apart = highest(same, start, size) - lowest(same, start, size)
    compare = _compare(same, report, clocks.exact, size)
    _, first = number(group, same[listed])
    of, one = group[first], same[listed[first]]
    known = lowest(of, compare[one].astype(np.int64), many) > 0
    mean = ratio(sums(of, apart[one], many), counts(of, many))
    late = _late(same, start, rank, size)
    return {
        "arrival_mean_ns": np.where(known, mean, UNKNOWN),
        "arrival_max_ns": np.where(known, highest(of, apart[one], many), UNKNOWN),
        "last": np.where(known, texts(names)[_most(of, late[one], many)], ""),
    }


def _compare(same: Ints, report: Ints, exact: Flags, size: int) -> Flags:
    """Tell of which collectives several ranks are known, in one report or by clocks that compare."""
    several = counts(same, size) > 1
    one_report = lowest(same, report, size) == highest(same, report, size)
    all_exact = lowest(same, exact[report].astype(np.int64), size) > 0
    found: Flags = several & (one_report | all_exact)
    return found


def _late(same: Ints, start: Ints, rank: Ints, size: int) -> Ints:
    """Return for each collective the rank that came last, of several at one time the first of them."""
    last = start == highest(same, start, size)[same]
    return lowest(same[last], rank[last], size)


def _most(group: Ints, rank: Ints, many: int) -> Ints:
    """Return the rank that each group has most often, of several the first."""
    pair, first = number(group, rank)
    often, of = counts(pair, len(first)), group[first]
    is_most = often == highest(of, often, many)[of]
    return lowest(of[is_most], rank[first][is_most], many)
