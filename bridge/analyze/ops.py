"""The table per op: calls, what ran under it, its time on the GPU and on the CPU."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from bridge.analyze.breakdown import breakdown
from bridge.join.attributed import Attributed
from bridge.views import VIEWS


def by_op(joined: Attributed, columns: Collection[str] = VIEWS["op"].columns) -> pd.DataFrame:
    """Return one row per op.

    ``self`` is of the innermost op only, so selfs add up; ``total`` is of the op and everything
    under it, once per activity however often the op recurs on the stack. Counts of activities are
    selfs. ``busy`` is the union of the total's intervals; mean to max are of a call's total.
    """
    return breakdown(joined, ["op"], columns)[["op", *columns]]
