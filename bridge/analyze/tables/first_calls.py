"""First calls: which ops took longer the first time, by compilation, autotuning or lazy loading.

A process does such work for itself, on the host. So its first call of an op is compared with the
calls that are the first in no process.
"""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import counts, highest, quantiles, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.tables.range_columns import first_slices
from bridge.join.arrays import number_groups, order_by
from bridge.join.attributed import AttributedCapture


def by_first_call(attributed: AttributedCapture) -> Table:
    """Return one row per op that a process called twice or more.

    ``first_ns`` is the duration of the first call on the host, the longest of several processes,
    ``median_ns`` the median of the calls that are the first in no process, ``more_ns`` the first
    less that median in whole ns, 0 if it is not longer. The duration of a call in slices is the sum
    of theirs.
    """
    ranges, firsts = attributed.capture.ranges, first_slices(attributed)
    listed = np.flatnonzero(attributed.listed_ranges)
    length = np.maximum(ranges.end - ranges.start, 0)
    of_call = sums(attributed.call[listed], length[listed], len(firsts))
    keys = [ranges.report[firsts], ranges.process[firsts], ranges.start[firsts]]
    op = attributed.op[firsts]
    order = order_by(op, *keys)
    op, report, process = op[order], keys[0][order], keys[1][order]
    duration, size = of_call[order], len(attributed.ops)
    place, _ = number_groups(op, report, process)
    is_first = np.ones(len(op), bool)
    is_first[1:] = place[1:] != place[:-1]
    first = highest(op[is_first], duration[is_first], size)
    (median,) = quantiles(op[~is_first], duration[~is_first], size, 0.5)
    table = Table(
        {
            "op": texts(attributed.ops),
            "calls": counts(op, size),
            "first_ns": first,
            "median_ns": median,
            "more_ns": np.rint(np.maximum(first - median, 0)).astype(np.int64),
        }
    )
    return table[counts(op[~is_first], size) > 0]
