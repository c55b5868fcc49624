"""Where time goes and why GPUs are idle: against plain loops, against NVIDIA's figures, and by identities."""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_parts import corpus_reports
from witness.causes import History

import bridge.report
from bridge.analyze.run.causes import causes, queue_times
from bridge.analyze.run.causes.starving import idle_times
from bridge.analyze.run.idle.tables import by_gap, by_idle
from bridge.analyze.tables.breakdown import by_op
from bridge.analyze.tables.host import by_launch
from bridge.join.attributed import AttributedCapture
from causes.histories import history_of, made

pytestmark = pytest.mark.usefixtures("names_as_recorded")


EMPTY = ("failed-export", "no-kernels-osrt")
reports = pytest.mark.parametrize("path", [of for of in corpus_reports() if of.id not in EMPTY])


@cache
def opened(path):
    joined = bridge.report.load(path).attributed
    return joined, history_of(joined)


def of_ops(joined: AttributedCapture) -> dict[str, dict[str, int | str]]:
    """Return the columns of each op that has a range of some length."""
    columns = causes(joined, joined.node_op, len(joined.ops))
    assert all(column.dtype == np.int64 for name, column in columns.items() if name != "bound")
    table = pd.DataFrame(columns).to_dict("records")
    there = set(np.unique(joined.node_op).tolist())
    return {
        op: row
        for code, (op, row) in enumerate(zip(joined.ops, table, strict=True))
        if code in there
    }


def same_causes(joined: AttributedCapture, truth: History) -> None:
    lasting = {one.op for one in truth.ranges if one.end > one.start}
    assert of_ops(joined) == {op: row for op, row in truth.causes().items() if op in lasting}


def same_gaps(joined: AttributedCapture, truth: History, over: int) -> None:
    table = by_gap(joined, over)
    columns = "start_ns gap_ns cause cause_ns op ended_by kernel".split()
    ours = sorted(table[columns].itertuples(index=False, name=None))
    assert ours == truth.by_gap(over)
    idle = by_idle(joined, over).drop(columns=["os_call", "os_ns", "off_cpu_ns"], errors="ignore")
    assert idle["total_ns"].sum() == table["gap_ns"].sum()
    rows = {(row.pop("cause"), row.pop("op")): row for row in idle.to_dict("records")}
    assert len(rows) == len(idle)
    expected = truth.by_idle(over)
    assert rows == {key: pytest.approx(row, rel=1e-12) for key, row in expected.items()}


def same_launches(joined: AttributedCapture, truth: History) -> None:
    table = by_launch(joined).drop(columns="report", errors="ignore")
    ours = sorted(table.itertuples(index=False, name=None))
    expected = truth.by_launch()
    assert [row[:6] for row in ours] == [row[:6] for row in expected]
    assert [row[6:] for row in ours] == [pytest.approx(row[6:], rel=1e-12) for row in expected]


def same_sums(joined: AttributedCapture, truth: History) -> None:
    """The parts of an op's CPU time, and of all idle time, are the whole."""
    table = by_op(joined).set_index("op")["cpu_self_ns"]
    for op, row in of_ops(joined).items():
        assert row["host_ns"] + row["api_ns"] + row["sync_ns"] == table[op]
        assert min(row[c] for c in row if c != "bound") >= 0
    assert sum(part.sum() for part in idle_times(joined)) == truth.idle
    assert by_gap(joined, 0)["gap_ns"].sum() == truth.idle_in_run
    assert queue_times(joined).tolist() == [truth.queue(a) for a in truth.activities]


# -- made up


@pytest.mark.slow
@given(made(), st.booleans(), st.sampled_from([0, 1, 3]))
def test_made_up_programs(of, adopt, over):
    joined = of.attributed(adopt=adopt)
    truth = history_of(joined)
    same_causes(joined, truth)
    same_gaps(joined, truth, over)
    same_launches(joined, truth)
    same_sums(joined, truth)


# -- real ones


@reports
def test_real_profiles(path):
    joined, truth = opened(path)
    same_causes(joined, truth)
    for over in (0, 10_000):
        same_gaps(joined, truth, over)
    same_launches(joined, truth)
    same_sums(joined, truth)
