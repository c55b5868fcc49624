"""First calls: which ops took longer the first time, by compilation, autotuning or lazy loading.

A call is compared with the later calls of its op. Times are those on the host, where such work is
done. Reports share no clock: of several, the first call is that of the first report with the op.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, quantiles, sums, texts
from bridge.analyze.tables.range_metrics import first_slices
from bridge.join.arrays import order_by
from bridge.join.attributed import AttributedCapture
from importers import frames


def by_first_call(attributed: AttributedCapture) -> pd.DataFrame:
    """Return one row per op with two calls or more.

    ``first_ns`` is the duration of its first call on the host, ``median_ns`` the median of its
    other calls, ``more_ns`` the first less that median in whole ns, 0 if it is not longer. The
    duration of a call in slices is the sum of theirs.
    """
    ranges, firsts = attributed.capture.ranges, first_slices(attributed)
    report, start, end = (frames.ints(ranges, c) for c in ("report", "start", "end"))
    listed = np.flatnonzero(attributed.listed_ranges)
    length = np.maximum(end - start, 0)[listed]
    of_call = sums(attributed.call[listed], length, len(firsts))
    op = attributed.op[firsts]
    order = order_by(op, report[firsts], start[firsts])
    op, of_call = op[order], of_call[order]
    is_first = np.append(True, op[1:] != op[:-1])[: len(op)]
    group, first = np.cumsum(is_first) - 1, of_call[is_first]
    (median,) = quantiles(group[~is_first], of_call[~is_first], len(first), 0.5)
    table = pd.DataFrame(
        {
            "op": texts(attributed.ops)[op[is_first]],
            "calls": counts(group, len(first)),
            "first_ns": first,
            "median_ns": median,
            "more_ns": np.rint(np.maximum(first - median, 0)).astype(np.int64),
        }
    )
    return table[table["calls"] > 1]
