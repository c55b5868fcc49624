"""Reports of ranks on one clock are one run: wherever the clock of a rank begins, the account and its parts are the same."""

from __future__ import annotations

import pytest
from ranks.run import EPOCH, Rank, run

import bridge
from bridge.analyze.run.account import runs
from bridge.analyze.run.parts import Parts, iteration_times

STEPS = 8


def told(folder, zero: int):
    """Return what is said of two ranks, of which the second one's clock is 0 so much later."""
    ranks = [Rank(0, pid=100, gpu=0, host="h"), Rank(1, pid=101, gpu=1, host="h", zero=zero)]
    paths, _ = run(folder / str(zero), ranks, steps=STEPS)
    report = bridge.load(*paths)
    attributed = report.attributed
    [found], parts = runs(attributed), Parts.of_run(attributed)
    assert parts is not None
    costs = report.summary.costs
    return {
        "run": (found.whole, [dict(gpu.states) for gpu in found.gpus]),
        "parts": parts.lengths,
        "loops": [(loop.count, loop.warm_up, loop.start, loop.end) for loop in parts.loops],
        "iteration": [time.ns for time in iteration_times(attributed)],
        "costs": (costs.in_each, costs.each_ns, costs.once, costs.once_ns),
        "by part": report.by("part").to_dict("records"),
        "idle": report.by("idle").drop(columns="op").to_dict("records"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("zero", [1, 3_000_000, -2_000_000_000])
def test_the_clock_of_a_rank_changes_nothing(tmp_path, zero):
    assert EPOCH + zero > 0
    here, there = told(tmp_path, 0), told(tmp_path, zero)
    assert here == there
    assert [count for count, *_ in here["loops"]] == [STEPS]
    assert sum(here["parts"].values()) == here["run"][0].length
