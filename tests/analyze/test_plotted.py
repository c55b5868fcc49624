"""What a picture of work over time shows, as arrays, without a picture."""

from __future__ import annotations

import numpy as np
import pytest
from join.programs import Program, attributed
from witness.attribution import Activity, Call, Range

from bridge.analyze.draw.plots import NO_OP, OTHER_OPS, over_time

PROCESS = 7 << 24
MAIN = PROCESS | 1


def running(*work):
    """Make a program of ops with a kernel each: (op, from, to), all on one stream."""
    ranges, calls, ran = [], [], []
    for n, (op, start, end) in enumerate(work):
        ranges.append(Range(0, PROCESS, MAIN, 10 * n, 10 * n + 9, op))
        calls.append(Call(0, PROCESS, MAIN, n + 1, 10 * n + 1, 10 * n + 2))
        ran.append(Activity(0, PROCESS, n + 1, start, end, "kernel", "k"))
    return attributed(Program(ranges, calls, ran, [op for op, *_ in work]))


def shares(joined, at):
    """Give the share of each group in the bin of an instant, on the only lane."""
    found = over_time(joined, 2)
    assert len(found.lanes) == 1
    values = found.shares[0, :, (at - 1_000) // found.width_ns]
    return {group: float(share) for group, share in zip(found.groups, values, strict=True) if share}


def test_work_that_overlaps_on_a_stream_shares_its_time():
    joined = running(("a", 1_000, 3_000), ("b", 2_000, 5_000))
    assert shares(joined, 1_500) == {"a": 1}
    assert shares(joined, 2_500) == pytest.approx({"a": 0.5, "b": 0.5})
    assert shares(joined, 4_500) == {"b": 1}


def test_a_lane_is_never_fuller_than_full_and_a_pause_is_empty():
    joined = running(*[("a", 1_000 + n, 2_000 + n) for n in range(5)], ("b", 4_000, 5_000))
    found = over_time(joined, 2)
    assert found.groups == ["a", "b", OTHER_OPS, NO_OP]
    assert np.all(found.shares.sum(axis=1) <= 1 + 1e-9)
    assert not shares(joined, 3_000)
