"""Steps as samples: which of them count, what they amount to, and which state they give a row."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from random import Random
from statistics import mean
from time import process_time

import made_reports
import numpy as np
import pytest
from scipy.stats import mannwhitneyu

import bridge
from bridge.analyze.compare import Comparison, compare
from bridge.analyze.compare import steps as stepwise
from bridge.analyze.compare.steps import differs
from bridge.report import Joined
from compare.brute_diff import u_test

pytestmark = pytest.mark.slow

LONGER = (
    'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + {by} WHERE "end" - start = 80 {only}'
)


@pytest.fixture
def twelve(tmp_path: Path) -> Path:
    """Give a report of 12 steps, of which each takes another time."""
    path = made_reports.small(tmp_path / "twelve.sqlite", steps=12)
    jitter = 'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + (start / 1000) * 7 % 5 WHERE "end" - start = 30'
    return made_reports.changed(path, jitter)


def longer(path: Path, by: int, only: str = "") -> Path:
    """Give a copy in which the kernel of gemm takes longer."""
    copy = shutil.copy(path, path.with_name(f"by {by}{len(only)}.sqlite"))
    return made_reports.changed(Path(copy), LONGER.format(by=by, only=only))


def row(found: Comparison, op: str) -> dict:
    [one] = [one for one in found.rows.to_dict("records") if one["op"] == op]
    return one


def samples(joined: Joined, steady: list[int]) -> dict[str, list[int]]:
    """List what each op takes in each of some steps."""
    steps, table = joined.attributed.iterations, joined.op_kernels
    starts = joined.report.launches["start"].tolist()
    found: dict[str, list[int]] = defaultdict(lambda: [0] * len(steady))
    rows = zip(
        table["op"], table["launch"], joined.report.activities.to_dict("records"), strict=True
    )
    for op, launch, activity in rows:
        when = starts[launch] if launch >= 0 else activity["start"]
        for place, step in enumerate(steady):
            ours = (
                steps.process[step] == activity["process"]
                and steps.report[step] == activity["report"]
            )
            if ours and steps.start[step] <= when < steps.end[step]:
                found[op][place] += activity["end"] - activity["start"]
    return found


def resampled(before: list[int], after: list[int]) -> tuple[float, float]:
    """Bound the difference of means by drawing steps again, with other numbers than the code under test."""
    draw = Random(7).choices
    means = sorted(
        mean(draw(after, k=len(after))) - mean(draw(before, k=len(before))) for _ in range(800)
    )
    return means[20], means[-21]


def test_an_op_that_takes_longer_in_every_step_is_slower(twelve):
    found = bridge.diff(twelve, longer(twelve, 8)).comparison
    assert (found.steps, found.untested) == ((12, 12), "")
    gemm, mm = row(found, "gemm"), row(found, "aten::mm")
    assert (gemm["step_before_ns"], gemm["step_after_ns"], gemm["step_ratio"]) == (80, 88, 1.1)
    assert (gemm["low_ns"], gemm["high_ns"], gemm["state"]) == (8, 8, "slower")
    assert gemm["p"] == pytest.approx(u_test([80] * 12, [88] * 12))
    assert (mm["p"], mm["state"]) == (1.0, "same")
    back = bridge.diff(longer(twelve, 8), twelve).comparison
    assert row(back, "gemm")["state"] == "faster"


def test_what_differs_in_few_steps_is_the_same(twelve):
    """A pause in one step is 12 % of the whole time, and no difference of the steps."""
    found = bridge.diff(twelve, longer(twelve, 120, "AND start > 12000")).comparison
    gemm = row(found, "gemm")
    assert gemm["diff_ns"] == 120
    assert gemm["p"] > 0.05
    assert gemm["state"] == "same"


def test_noise_is_none(twelve):
    other = longer(twelve, 1)
    assert row(bridge.diff(twelve, other).comparison, "gemm")["state"] == "slower"  # 1.25 %
    assert row(bridge.diff(twelve, other, noise=0.02).comparison, "gemm")["state"] == "same"


def test_without_steps_the_whole_time_is_judged(tmp_path):
    one = made_reports.small(tmp_path / "one.sqlite", steps=2)
    found = bridge.diff(one, longer(one, 8)).comparison
    gemm = row(found, "gemm")
    assert found.untested == "no p: it takes 4 steps on each side, and there are 2 before, 2 after"
    assert (gemm["p"], gemm["q"], gemm["step_ratio"], gemm["state"]) == (-1, -1, -1, "slower")
    exact = bridge.diff(one, longer(one, 8), noise=8 / 88).comparison
    assert row(exact, "gemm")["state"] == "same"  # up to the noise


def test_fewer_steps_are_not_faster(twelve, tmp_path):
    fewer = made_reports.small(tmp_path / "six.sqlite", steps=6)
    gemm = row(bridge.diff(twelve, fewer).comparison, "gemm")
    assert (gemm["diff_ns"], gemm["step_ratio"], gemm["state"]) == (-480, 1.0, "same")


def benjamini_hochberg(p, every):
    """Return the q-value of one of several p-values, by the definition."""
    ordered = sorted(every)
    later = [value * len(every) / rank for rank, value in enumerate(ordered, 1) if value >= p]
    return min(1.0, *later)


def test_steps_of_a_real_training_are_samples(corpus):
    """Two parts of one training compared, its steps against plain loops."""
    joined = bridge.load(corpus / "nsys" / "mnist-training.sqlite")
    sides = joined.within(steps=(5, 20)), joined.within(steps=(21, 40))
    found = compare(*(side.attributed for side in sides))
    assert found.steps == (16, 20)
    number = joined.attributed.iterations.number.tolist()
    steady = [[number.index(n) for n in range(*ends)] for ends in ((5, 21), (21, 41))]
    truth = [samples(joined, steps) for steps in steady]
    tested = 0
    every = [one["p"] for one in found.rows.to_dict("records") if one["p"] != -1]
    for one in found.rows.to_dict("records"):
        before, after = (side[one["op"]] for side in truth)
        assert one["step_before_ns"] == pytest.approx(mean(before))
        assert one["step_after_ns"] == pytest.approx(mean(after))
        if not any(before + after):
            assert one["p"] == one["q"] == -1
            continue
        tested += 1
        assert one["p"] == pytest.approx(u_test(before, after))
        assert one["q"] == pytest.approx(benjamini_hochberg(one["p"], every))
        low, high = resampled(before, after)
        assert [one["low_ns"], one["high_ns"]] == pytest.approx(
            [low, high], abs=(high - low) / 5 + 1e-6
        )
    assert tested > 10


def test_warm_up_is_no_sample(corpus):
    joined = bridge.load(corpus / "nsys" / "mnist-training.sqlite")
    assert joined.by("step")["state"].tolist().count("warm-up") == 1
    assert compare(joined.attributed, joined.attributed).steps == (58, 58)


def test_rows_of_single_steps_are_not_tested(twelve):
    found = bridge.diff(twelve, twelve, by="op,step").comparison
    assert found.untested == "no p: rows are of single steps"
    assert set(found.rows["p"]) == {-1}


def test_exact_tests_are_of_few_pairs():
    """Exact p of 8 with thousands of samples takes long, and is as the approximation."""
    drawn = np.random.default_rng(1)
    values = drawn.permutation(20_000).reshape(1, -1)
    for many, method in ((1_250, "exact"), (1_251, "asymptotic")):
        before, after = values[:, :8], values[:, 8 : 8 + many]
        p, _ = differs(before, after)
        assert p[0] == mannwhitneyu(after[0], before[0], method=method).pvalue
    began = process_time()
    differs(values[:, :8], values[:, 8:])
    assert process_time() - began < 1


def test_resamples_are_held_of_few_rows_at_a_time():
    rows = np.arange(10_000)
    parts = list(stepwise._portions(rows, 8))
    assert np.array_equal(np.concatenate(parts), rows)
    assert max(map(len, parts)) * stepwise.RESAMPLES <= stepwise.ROOM
    assert max(map(len, stepwise._portions(rows, 10_000))) * 10_000 <= stepwise.ROOM


def test_many_rows_are_tested_in_parts(twelve, monkeypatch):
    other = longer(twelve, 8)
    whole = bridge.diff(twelve, other).rows
    monkeypatch.setattr(stepwise, "ROOM", 24)  # one row at a time
    parts = bridge.diff(twelve, other).rows
    for column in whole.columns:
        assert np.array_equal(whole[column], parts[column]), column
