"""The lines above a comparison: iteration time, GPU busy, idle time by cause; and the gates on them."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest
from command import bridge, done
from made_reports import PUSH_POP, Made, small, thread
from scipy.stats import ttest_ind

import bridge as library
from bridge.cli.diff import FAILED

pytestmark = pytest.mark.slow
KERNEL = 500_000  # ns


def report(path: Path, *, between: int, steps: int = 12) -> Path:
    """Write a report of steps: a kernel each, launched at the start of an op, and host code between."""
    made = Made()
    made.names_of(100)
    at = 1_000
    for number in range(steps):
        end = at + KERNEL + 2_000
        made.annotation(PUSH_POP, at, end, text="step", color=0, payload=number, thread=thread(100))
        made.annotation(PUSH_POP, at + 100, end - 100, text="matmul", thread=thread(100))
        made.kernel("gemm_kernel", at + 200, 100, at + 1_000, at + 1_000 + KERNEL)
        at = end + between + number % 3 * 100
    return made.written(path)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Return two reports with the same work; in the second the host pauses longer between steps."""
    return (
        report(tmp_path / "before.sqlite", between=100_000),
        report(tmp_path / "after.sqlite", between=250_000),
    )


def starts(path: Path) -> list[int]:
    """Return the starts of the steps."""
    ranges = library.load(path).capture.ranges.to_pandas()
    return sorted(row["start"] for row in ranges.to_dict("records") if row["name"] == "step")


def overall(*words: str | Path) -> dict:
    return json.loads(done("diff", *map(str, words), "--format", "json"))["overall"]


def test_a_pause_between_steps_is_told_first(pair):
    found = overall(*pair)
    times = [[b - a for a, b in pairwise(s)] for s in map(starts, pair)]
    iteration = found["iteration"]
    assert (iteration["before_ns"], iteration["after_ns"]) == tuple(map(mean, times))
    interval = ttest_ind(times[1], times[0], equal_var=False).confidence_interval(0.95)
    for name, bound in (("ratio_low", interval.low), ("ratio_high", interval.high)):
        assert iteration[name] == pytest.approx(1 + bound / mean(times[0]))
    assert iteration["state"] == "slower"
    text = done("diff", *pair).splitlines()
    assert text[0].startswith("Iteration, mean: 602.")
    assert text[0].endswith(": slower")
    runs = [s[-1] - s[0] + KERNEL + 2_000 for s in map(starts, pair)]  # of 12 steps
    shares = [f"{100 * 12 * KERNEL / run:.1f} %" for run in runs]
    assert text[1] == f"GPU busy {' → '.join(shares)} of the run"


def test_idle_times_by_cause_add_up_and_are_those_of_the_table(pair):
    found = overall(*pair)
    for side in ("before_ns", "after_ns"):
        assert sum(cause[side] for cause in found["causes"]) == pytest.approx(found["idle"][side])
    table = json.loads(done("diff", *pair, "--by", "idle", "--format", "json"))
    for side, name in (("before_ns", "step_before_ns"), ("after_ns", "step_after_ns")):
        assert sum(row[name] for row in table["rows"]) == pytest.approx(found["idle"][side])
    for side, path in zip(("before", "after"), pair, strict=True):
        told = json.loads(done("summary", path, "--format", "json"))
        values = found["gpu"][side]
        assert values["busy_ns"] == told["gpus"][0]["busy_ns"] == 12 * KERNEL
        assert values["span_ns"] == told["run"]["length_ns"]
        whole = sum(row[f"{side}_ns"] for row in table["rows"])
        assert whole == values["idle_ns"] == values["span_ns"] - values["busy_ns"]


def test_a_limit_without_a_scope_is_one_of_the_iteration_too(pair):
    failed = bridge("diff", *pair, "--fail-over", "5%")
    assert failed.exit_code == FAILED
    assert failed.stderr.startswith("failed: iteration time: 602.")
    assert bridge("diff", *pair[::-1], "--fail-over", "5%").exit_code == 0
    assert bridge("diff", *pair, "--fail-over", "total:5%").exit_code == 0  # the work is the same
    assert bridge("diff", *pair, "--fail-over", "iteration:30%").exit_code == 0
    assert bridge("diff", *pair, "--fail-over", "iteration:200us").exit_code == 0
    assert bridge("diff", *pair, "--fail-over", "iteration:140us").exit_code == FAILED
    idle = bridge("diff", *pair, "--fail-over", "idle:100%")
    assert idle.exit_code == FAILED
    assert idle.stderr.startswith("failed: GPU idle time: ")


def test_a_limit_of_what_is_not_known_fails(tmp_path):
    one = report(tmp_path / "one.sqlite", between=100, steps=1)
    result = bridge("diff", one, one, "--fail-over", "iteration:5%")
    assert result.exit_code == FAILED
    assert "nothing was judged; a report has no two steps that follow each other" in result.stderr
    assert bridge("diff", one, one, "--fail-over", "5%").exit_code == 0


def test_few_iterations_are_judged_on_request_only(tmp_path):
    few = [report(tmp_path / f"{pause}.sqlite", between=pause, steps=3) for pause in (100, 300_000)]
    assert bridge("diff", *few, "--fail-over", "5%").exit_code == 0
    assert bridge("diff", *few, "--fail-over", "iteration:5%").exit_code == FAILED


def test_idle_time_stands_alone(pair):
    assert "cannot be combined" in bridge("diff", *pair, "--by", "idle,op").stderr
    assert "idle" in done("diff", "--by", "list").splitlines()


def test_real_trainings_lost_their_time_between_kernels(corpus):
    """The ops take the same time; each iteration takes 30 % longer, since it waits for data."""
    pair = [corpus / "kineto" / f"resnet50-workers{n}.pt.trace.json.gz" for n in (4, 0)]
    found = overall(*pair)
    assert found["iteration"]["state"] == found["idle"]["state"] == "slower"
    assert found["iteration"]["ratio"] == pytest.approx(1.295, abs=0.001)
    assert found["causes"][0]["cause"] == "data loading"


def test_the_real_pair_is_idle_between_kernels(corpus):
    pair = [corpus / "nsys" / f"pytorch-2gpu-{side}.sqlite" for side in ("before", "after")]
    found = overall(*pair)
    assert found["iteration"] is None  # one pass of a model
    assert found["causes"][0]["cause"] == "host code"


def test_reports_without_common_ops_are_said(tmp_path, pair):
    other = small(tmp_path / "other.sqlite", steps=12)
    assert "were both annotated in the same way?" in done("diff", pair[0], other)
    assert "annotated in the same way" not in done("diff", *pair)


def test_a_row_by_step_says_what_it_adds_up(tmp_path):
    ranks = ",".join(str(small(tmp_path / f"{name}.sqlite", steps=12)) for name in "ab")
    text = done("diff", ranks, ranks, "--by", "step")
    assert "\nA row adds up the same step of all processes\n" in text
    assert "\noutside " in text
