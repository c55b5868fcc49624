"""Several reports of Nsight Compute of one timeline: held against a walk over activities and metrics."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from bridge.analyze.cost.metrics.matching import merge_metrics
from bridge.importers.ncu.metrics import Kernel, Metrics, Rule, Value, metrics_of

NAMES = "abc"
PART = st.lists(
    st.tuples(st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from(NAMES))), max_size=3
)  # of each kernel which metrics and rules there are
ACTIVITIES = 4


@st.composite
def parts(draw):
    found = []
    for number in range(draw(st.integers(1, 3))):
        kernels = [
            Kernel(
                "k",
                "k",
                metrics={n: Value(100.0 * number + place, "inst") for n in sorted(metrics)},
                rules=[
                    Rule("s", n, "OPT", f"{number}.{place}.{nth}")
                    for n in sorted(rules)
                    for nth in (0, 1)
                ],
            )
            for place, (metrics, rules) in enumerate(draw(PART))
        ]
        which = st.integers(-1, len(kernels) - 1)
        kernel = np.array(draw(st.lists(which, min_size=ACTIVITIES, max_size=ACTIVITIES)), np.int64)
        sure = [draw(st.integers(0, 3)) if k >= 0 else -1 for k in kernel.tolist()]
        made = metrics_of(kernels)
        found.append(
            Metrics(made.table, made.rules, kernel, np.array(sure, np.int64), (f"{number}",))
        )
    return found


def rows_of(table: pd.DataFrame, kernel: int, name: str) -> dict[str, list[object]]:
    rows = table[table["kernel"] == kernel]
    said: dict[str, list[object]] = {}
    for row in rows.to_dict("records"):
        said.setdefault(str(row[name]), []).append(row["value" if name == "metric" else "text"])
    return said


def by_hand(found: list[Metrics], activity: int, what: str, name: str) -> dict[str, list[object]]:
    """Take one report after another, the least sure first, of equally sure ones in the order named."""
    said: dict[str, list[object]] = {}
    known = [part for part in found if part.of[activity] >= 0]
    for part in sorted(known, key=lambda part: -part.sure[activity]):
        said |= rows_of(getattr(part, what).to_pandas(), int(part.of[activity]), name)
    return said


@given(parts())
def test_as_by_hand(found):
    together = merge_metrics(found)
    for activity in range(ACTIVITIES):
        kernel = int(together.of[activity])
        for what, name in (("table", "metric"), ("rules", "rule")):
            expected = by_hand(found, activity, what, name)
            assert (
                rows_of(getattr(together, what).to_pandas(), kernel, name) if kernel >= 0 else {}
            ) == expected
        sure = [part.sure[activity] for part in found if part.of[activity] >= 0]
        assert (kernel >= 0) == bool(sure)
        assert together.sure[activity] == max(sure, default=-1)
    assert together.source == tuple(name for part in found for name in part.source)
    for table in (together.table, together.rules):
        numbers = table.kernel
        assert (np.diff(numbers) >= 0).all()  # as rows of one kernel stand everywhere
