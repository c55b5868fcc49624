"""Where time goes and why GPUs are idle: against plain loops, against NVIDIA's figures, and by identities."""

from collections import Counter
from functools import cache
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_parts import corpus_reports
from witness.causes import History, Walk

import bridge.report
from bridge.analyze.run.causes import causes, queue_times
from bridge.analyze.run.causes.starving import idle_times
from bridge.analyze.run.idle.causes import WORDS, find_causes, times_of_causes
from bridge.analyze.run.idle.tables import by_gap, by_idle
from bridge.analyze.tables.breakdown import by_op
from bridge.analyze.tables.host import by_launch
from bridge.join import arrays
from bridge.join.attributed import AttributedCapture
from causes.histories import history_of, made, waits_and_others

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
    table = by_gap(joined, over).to_pandas()
    ours = table[["start_ns", "gap_ns", "ended_by", "kernel"]].itertuples(index=False, name=None)
    assert sorted(ours) == truth.listed(over)
    idle = by_idle(joined, over).to_pandas()
    assert idle["total_ns"].sum() == table["gap_ns"].sum()
    assert not idle.duplicated(["cause", "op", "call"]).any()


def same_launches(joined: AttributedCapture, truth: History) -> None:
    table = by_launch(joined).to_pandas().drop(columns="report", errors="ignore")
    ours = sorted(table.itertuples(index=False, name=None))
    expected = truth.by_launch()
    assert [row[:6] for row in ours] == [row[:6] for row in expected]
    assert [row[6:] for row in ours] == [pytest.approx(row[6:], rel=1e-12) for row in expected]


def same_sums(joined: AttributedCapture, truth: History) -> None:
    """The parts of an op's CPU time, and of all idle time, are the whole."""
    table = by_op(joined).to_pandas().set_index("op")["cpu_self_ns"]
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


@pytest.mark.slow
@given(waits_and_others())
def test_any_records(of):
    """The causes of each gap, against a walk that asks at each ns."""
    joined = of.attributed()
    truth = history_of(joined)
    if not truth.by_gpu:
        return
    walk, found = Walk(joined, truth), find_causes(joined)
    summed = np.zeros((len(WORDS), len(joined.ops) + 1), np.int64)
    np.add.at(summed, (found.cause, found.op), found.length)
    with mock.patch.object(arrays, "BLOCK", 2):
        assert times_of_causes(joined, found.gaps).tolist() == summed.tolist()
    gaps = {
        (gap.start, gap.end, (gap.ended_by or gap.before).gpu): gap for gap in truth.gaps_of_run
    }
    assert len(gaps) == len(found.gaps)
    ops, calls = [*joined.ops, ""], [*found.callees, ""]
    columns = (found.gap, found.cause, found.op, found.callee, found.length, found.first)
    told = [{} for _ in gaps]
    for gap, cause, op, call, ns, first in zip(*(c.tolist() for c in columns), strict=True):
        told[gap][WORDS[cause], ops[op], calls[call]] = (ns, first)
    keys = zip(
        *(c.tolist() for c in (found.gaps.start, found.gaps.end, found.gaps.device)), strict=True
    )
    for key, ours in zip(keys, told, strict=True):
        instants = walk.told(gaps[key])
        if instants is not None:
            expected = Counter(instants)
            assert ours == {one: (ns, key[0] + instants.index(one)) for one, ns in expected.items()}


# -- real ones


@reports
def test_real_profiles(path):
    joined, truth = opened(path)
    same_causes(joined, truth)
    for over in (0, 10_000):
        same_gaps(joined, truth, over)
    same_launches(joined, truth)
    same_sums(joined, truth)
