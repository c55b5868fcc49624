"""The table per op: calls, what ran under it, its time on the GPU and on the CPU."""

from __future__ import annotations

from collections.abc import Collection

import pandas as pd

from bridge.analyze.breakdown import COSTS, breakdown
from bridge.analyze.flops import Costs
from bridge.analyze.views import VIEWS
from bridge.join.attributed import Attributed


def by_op(
    joined: Attributed,
    columns: Collection[str] = VIEWS["op"].columns,
    costs: Costs = COSTS,
) -> pd.DataFrame:
    """Return one row per op.

    ``self`` is of the innermost op only, so selfs add up; ``total`` is of the op and everything
    under it, once per activity however often the op recurs on the stack. Counts of activities are
    selfs. ``busy`` is the union of the total's intervals; mean to max are of a call's total.
    """
    return breakdown(joined, ["op"], columns, costs=costs)[["op", *columns]]
