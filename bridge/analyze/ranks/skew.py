"""The table of how unevenly ranks spend their GPU time: per op the slowest, and what it costs."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.groups import counts, highest, lowest, quantiles, ratio, sums, texts
from bridge.analyze.ranks.members import Ranks
from bridge.analyze.roles import is_communication
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints, number
from importers import frames


def by_skew(joined: Attributed) -> pd.DataFrame:
    """Return one row per op that owns GPU time: how that is spread over the ranks (processes) that have any of it.

    ``total_ns`` is the op's own GPU time, of all ranks; mean, median, slowest and fastest are per rank. ``skew`` is
    slowest over median less 1, ``lost_ns`` slowest less median: what the run could gain of the op at most if its slowest
    rank were as the others. ``communication_ns`` is the part of ``total_ns`` in kernels of communication, which last longer the
    earlier a rank comes.
    """
    ranks = Ranks.of(joined.report, joined.place)
    rows = np.flatnonzero(joined.activity_op != NONE)
    op, time = joined.activity_op[rows], joined.duration[rows]
    columns = (frames.ints(joined.report.activities, c)[rows] for c in ("report", "process"))
    pair, first = number(op, ranks.place(*columns))
    own = sums(pair, time, len(first))
    place = ranks.place(
        *(frames.ints(joined.report.activities, c)[rows[first]] for c in ("report", "process"))
    )
    group, of_group = number(op[first])
    many, names = len(of_group), texts(ranks.names)
    total, have = sums(group, own, many), counts(group, many)
    slowest, fastest = highest(group, own, many), lowest(group, own, many)
    (median,) = quantiles(group, own, many, 0.5)
    talk = np.where(is_communication(joined)[rows], time, 0)
    return pd.DataFrame(
        {
            "op": texts(joined.ops)[op[first][of_group]],
            "ranks": have,
            "total_ns": total,
            "mean_ns": ratio(total, have),
            "median_ns": median,
            "slowest": names[_first(group, place, own == slowest[group], many)],
            "slowest_ns": slowest,
            "fastest": names[_first(group, place, own == fastest[group], many)],
            "fastest_ns": fastest,
            "skew": np.divide(slowest, median, out=np.ones(many), where=median > 0) - 1,
            "lost_ns": np.rint(slowest - median).astype(np.int64),
            "communication_ns": sums(group[pair], talk, many),
        }
    )


def _first(group: Ints, place: Ints, there: np.ndarray, many: int) -> Ints:
    """Return the first member of each group for which a flag is set."""
    return lowest(group[there], place[there], many)
