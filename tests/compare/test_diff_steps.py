"""Steps as samples: which of them count, what they amount to, and which state they give a row."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from pathlib import Path
from statistics import mean
from time import process_time

import made_reports
import numpy as np
import pytest
from scipy.stats import mannwhitneyu, ttest_ind
from witness.diff import u_test

import bridge
from bridge.analyze.compare import Comparison, compare
from bridge.analyze.compare import steps as stepwise
from bridge.analyze.compare.statistics import mann_whitney
from bridge.render.diff import TESTS, DiffView, as_markdown, for_terminal, lines
from bridge.render.table import Look
from bridge.report import Report

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
    [one] = [one for one in found.rows.records() if one["op"] == op]
    return one


def samples(joined: Report, steady: list[int]) -> dict[str, list[int]]:
    """List what each op takes in each of some steps."""
    steps, table = joined.attributed.iterations, joined.op_kernels
    starts = joined.capture.launches.start.tolist()
    found: dict[str, list[int]] = defaultdict(lambda: [0] * len(steady))
    rows = zip(
        table["op"],
        table["launch"],
        joined.capture.activities.to_pandas().to_dict("records"),
        strict=True,
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


def welch(before: list[int], after: list[int]) -> tuple[float, float]:
    """Bound the difference of means as SciPy does."""
    interval = ttest_ind(after, before, equal_var=False).confidence_interval(0.95)
    return interval.low, interval.high


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


def test_what_differs_in_few_steps_is_unclear(twelve):
    """A pause in one step is 12 % of the whole time: whether the steps differ cannot be told."""
    found = bridge.diff(twelve, longer(twelve, 120, "AND start > 12000")).comparison
    gemm = row(found, "gemm")
    assert gemm["diff_ns"] == 120
    assert gemm["p"] > 0.05
    assert gemm["low_ns"] < 0 < gemm["high_ns"]
    assert gemm["state"] == "unclear"


def test_noise_is_none(twelve):
    other = longer(twelve, 1)
    assert row(bridge.diff(twelve, other).comparison, "gemm")["state"] == "slower"  # 1.25 %
    assert row(bridge.diff(twelve, other, noise=0.02).comparison, "gemm")["state"] == "same"


def test_too_few_steps_judge_nothing(tmp_path):
    one = made_reports.small(tmp_path / "one.sqlite", steps=2)
    found = bridge.diff(one, longer(one, 8)).comparison
    gemm = row(found, "gemm")
    assert (
        found.untested
        == "no interval and no p-value: they need at least 4 steps per report; there are 2 before, 2 after"
    )
    assert (gemm["p"], gemm["q"], gemm["step_ratio"], gemm["state"]) == (-1, -1, 1.1, "unclear")
    assert (gemm["step_ratio_low"], gemm["step_ratio_high"]) == (-1, -1)
    assert row(found, "aten::mm")["state"] == "same"  # equal to the nanosecond


def test_fewer_steps_are_not_faster(twelve, tmp_path):
    fewer = made_reports.small(tmp_path / "six.sqlite", steps=6)
    found = bridge.diff(twelve, fewer)
    gemm = row(found.comparison, "gemm")
    assert (gemm["diff_ns"], gemm["step_ratio"], gemm["state"]) == (-480, 1.0, "same")
    assert (found.comparison.work, found.comparison.unequal_steps) == ((12, 6), True)
    alike = bridge.diff(twelve, twelve).comparison
    assert (alike.per_step, alike.unequal_steps) == (True, False)
    by_step = bridge.diff(twelve, fewer, by="op,step").comparison
    assert (by_step.per_step, by_step.unequal_steps) == (False, False)
    verdicts = found.judged(["op:0%"])
    assert all(verdict.change.steps_before == 12 for verdict in verdicts)
    [gemm] = [verdict for verdict in verdicts if verdict.subject == "gemm"]
    assert gemm.line == "gemm: 80 ns -> 80 ns per step (+0.0 %)"


def test_fewer_steps_that_take_longer_are_slower(twelve, tmp_path):
    """Half of the steps, each 10 % longer: less time in all, and the limit of growth fails."""
    fewer = longer(made_reports.small(tmp_path / "six.sqlite", steps=6), 8)
    found = bridge.diff(twelve, fewer)
    gemm = row(found.comparison, "gemm")
    assert (gemm["diff_ns"], gemm["step_ratio"], gemm["state"]) == (-432, 1.1, "slower")
    failed = [v.line for v in found.judged(["op:5%"]) if not v.passed]
    assert failed == [
        (
            "gemm: 80 ns -> 88 ns per step (+10.0 %), 95 % interval +10.0 to +10.0 %: slower,"
            " over --fail-over op:5%"
        )
    ]
    assert found.comparison.rows["op"][0] == "gemm"  # by the change per step


def test_the_figures_beside_a_state_are_those_that_it_judges(twelve):
    """Equally many steps: the table shows means per step, by plain loops, and the whole under it."""
    found = bridge.diff(twelve, longer(twelve, 8))
    view = DiffView(["a"], ["b"], found.comparison, found.comparison.timed(found.rows), ())
    text = as_markdown(view, "ns")
    assert [line for line in text.splitlines() if line.startswith("interval:")] == [TESTS]
    assert for_terminal(view, Look(200)).count(f"\n{TESTS}\n") == 1
    assert "12 steps before, 12 after: times and changes are per step, calls are totals" in text
    cells = {line.split(" | ")[0][2:]: line.split(" | ") for line in text.splitlines()}
    for side, report, column in (("before", twelve, 2), ("after", longer(twelve, 8), 3)):
        truth = samples(bridge.load(report), list(range(12)))
        shown = {op: values for op, values in truth.items() if sum(values)}
        assert shown
        for op, values in shown.items():
            if op:
                assert cells[op][column] == f"{round(mean(values))} ns", (side, op)
    assert cells["gemm"][5:7] == ["+10.0 %", "+10.0 … +10.0 %"]
    assert cells["gemm"][-1].startswith("slower")
    assert re.search(r"^activity time per step .* ns → .*: \+8 ns \(", text, re.MULTILINE)
    assert re.search(r"^activity time in all .*: \+96 ns \(", text, re.MULTILINE)


def with_set_up(path: Path, ns: int) -> Path:
    """Give a report of six steps, and an op before them with a kernel of ``ns``."""
    made = made_reports.Made()
    made.annotation(made_reports.PUSH_POP, 100, 400, text="set-up", thread=made_reports.thread(100))
    made.kernel("fill", 120, 100, 200, 200 + ns)
    for number in range(6):
        made.step(number, 100)
    return made.written(path)


def test_rows_without_time_in_a_step_are_counted_under_the_table(tmp_path):
    sides = with_set_up(tmp_path / "a.sqlite", 70), with_set_up(tmp_path / "b.sqlite", 95)
    found = bridge.diff(*sides).comparison
    assert row(found, "set-up")["state"] == "unclear"
    assert found.outside_steps == (1, {"before_ns": 70, "after_ns": 95, "diff_ns": 25})
    assert "set-up" not in set(found.timed(found.rows)["op"])
    assert "without time in a step, not in the table: 1 row, in all 70 ns → 95 ns" in lines(found)


def expected_state(row: dict, noise: float) -> str:
    """Return the state of a tested row by the definition in docs/diff.md."""
    low, high, p = row["low_ns"], row["high_ns"], row["p"]
    before, after = row["step_before_ns"], row["step_after_ns"]
    limit = noise * max(before, after)
    if not row["calls_before"] or not row["calls_after"]:
        return "vanished" if row["calls_before"] else "new"
    if -limit <= low and high <= limit:
        return "same"
    if low > 0 and p <= 0.05 and after - before > limit:
        return "slower"
    if high < 0 and p <= 0.05 and before - after > limit:
        return "faster"
    return "unclear"


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
    tested, found_noise = 0, 0.01
    every = [one["p"] for one in found.rows.records() if one["p"] != -1]
    for one in found.rows.records():
        before, after = (side[one["op"]] for side in truth)
        assert one["step_before_ns"] == pytest.approx(mean(before))
        assert one["step_after_ns"] == pytest.approx(mean(after))
        if not any(before + after):
            assert one["p"] == one["q"] == -1
            continue
        tested += 1
        assert one["p"] == pytest.approx(u_test(before, after))
        assert one["q"] == pytest.approx(benjamini_hochberg(one["p"], every))
        low, high = welch(before, after)
        assert [one["low_ns"], one["high_ns"]] == pytest.approx([low, high])
        base = mean(before)
        if base:
            ends = [max(1 + low / base, 0), max(1 + high / base, 0)]
            assert [one["step_ratio_low"], one["step_ratio_high"]] == pytest.approx(ends)
        assert one["state"] == expected_state(one, found_noise)
    assert tested > 10


def test_warm_up_is_no_sample(corpus):
    joined = bridge.load(corpus / "nsys" / "llm-48-layers.sqlite")
    assert joined.by("step")["state"].tolist() == ["warm-up", "", "", ""]
    assert compare(joined.attributed, joined.attributed).steps == (3, 3)


def test_rows_of_single_steps_are_not_tested(twelve):
    found = bridge.diff(twelve, twelve, by="op,step").comparison
    assert found.untested == "no interval: rows are of single steps"
    assert set(found.rows["p"]) == {-1}


@pytest.mark.racy("costs are measured by the clock")
def test_exact_tests_are_of_few_pairs():
    """Exact p of 8 with thousands of samples takes long, and is as the approximation."""
    drawn = np.random.default_rng(1)
    values = drawn.permutation(20_000).reshape(1, -1)
    for many, method in ((1_250, "exact"), (1_251, "asymptotic")):
        before, after = values[:, :8], values[:, 8 : 8 + many]
        p, _ = mann_whitney(before, after)
        assert p[0] == mannwhitneyu(after[0], before[0], method=method).pvalue
    began = process_time()
    mann_whitney(values[:, :8], values[:, 8:])
    assert process_time() - began < 1


def test_steps_are_held_of_few_rows_at_a_time():
    rows = np.arange(10_000)
    parts = list(stepwise.chunks(rows, 8))
    assert np.array_equal(np.concatenate(parts), rows)
    assert max(map(len, stepwise.chunks(rows, 10_000))) * 10_000 <= stepwise.MAX_VALUES


def test_many_rows_are_tested_in_parts(twelve, monkeypatch):
    other = longer(twelve, 8)
    whole = bridge.diff(twelve, other).rows
    monkeypatch.setattr(stepwise, "MAX_VALUES", 24)  # one row at a time
    parts = bridge.diff(twelve, other).rows
    for column in whole.columns:
        assert np.array_equal(whole[column], parts[column]), column
