"""A trend: medians of runs beside a plain loop, which runs compare, rows, limits, and the forms that it is written in."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from xml.etree import ElementTree as ET

import made_reports
import numpy as np
import pytest
from scipy.stats import ttest_ind

import bridge
from bridge.analyze.compare.gates import Growth
from bridge.analyze.compare.trend import NOT_TIMED, RunTimes, Trend, check_gates
from bridge.render import trend as texts
from bridge.render.table import Look
from bridge.render.trend import TrendView

NOISE = 0.01
EVIDENCE = "GPU work, ranges, steps"
UP = [100, 102, 99, 101, 100, 98, 112, 110, 109, 111]
FLAT = [50, 51, 50, 49, 50, 51, 50, 50, 49, 51]
LATE = [0, 0, 0, 0, 0, 7, 7, 8, 7, 7]
SMALL = [5000, 5001, 5000, 5001, 5000, 5020, 5021, 5020, 5021, 5020]


def run(
    number: int, times: dict[str, float], evidence: str = EVIDENCE, iteration: float = 1000.0
) -> RunTimes:
    """Make what a trend takes of a run."""
    return RunTimes(
        label=f"r{number}",
        source=(f"{number}.sqlite",),
        evidence=evidence,
        steps=20,
        names=np.array(list(times), object),
        medians=np.array(list(times.values()), float),
        whole=np.array([iteration, sum(times.values())], float),
    )


def runs(**ops: Sequence[float]) -> list[RunTimes]:
    """Make runs from the times of ops; an op without time in a run is not in it."""
    columns = zip(*ops.values(), strict=True)
    return [
        run(n, {op: ns for op, ns in zip(ops, column, strict=True) if ns})
        for n, column in enumerate(columns)
    ]


@pytest.fixture(scope="module")
def found() -> Trend:
    return Trend.of(runs(mm=UP, relu=FLAT, late=LATE, tiny=SMALL), "op", NOISE)


def rows(trend: Trend) -> dict[str, dict]:
    return {row["op"]: row for row in trend.rows.records()}


# -- What is taken of a run


def steps_of(report: bridge.Report) -> dict[str, list[int]]:
    """Add up what each op takes in each step, by plain loops."""
    steps, table = report.attributed.iterations, report.op_kernels
    starts = report.capture.launches.start.tolist()
    activities = report.capture.activities.to_pandas().to_dict("records")
    result: dict[str, list[int]] = defaultdict(lambda: [0] * len(steps))
    for op, launch, activity in zip(table["op"], table["launch"], activities, strict=True):
        when = starts[launch] if launch >= 0 else activity["start"]
        for step in range(len(steps)):
            if steps.start[step] <= when < steps.end[step]:
                result[op][step] += activity["end"] - activity["start"]
    return result


@pytest.mark.slow
def test_a_run_is_its_medians_per_step(tmp_path: Path):
    path = made_reports.small(tmp_path / "one.sqlite", steps=7)
    longer = 'UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET "end" = "end" + (start / 1000) * (start / 1000) % 11 WHERE "end" - start = 80'
    report = bridge.load(made_reports.changed(path, longer))
    of_run = RunTimes.of(report.attributed, "op", "one")
    expected = {op: median(ns) for op, ns in steps_of(report).items() if op}
    taken = dict(zip(of_run.names.tolist(), of_run.medians.tolist(), strict=True))
    assert {op: ns for op, ns in taken.items() if ns} == {
        op: ns for op, ns in expected.items() if ns
    }
    assert mean(steps_of(report)["gemm"]) != expected["gemm"]
    assert (of_run.evidence, of_run.steps, of_run.source) == (EVIDENCE, 7, ("one.sqlite",))
    whole = [sum(column) for column in zip(*steps_of(report).values(), strict=True)]
    assert of_run.whole.tolist() == [1000.0, median(whole)]
    by_step = RunTimes.of(report.attributed, "step", "one")
    assert (by_step.names.tolist(), by_step.medians.tolist()) == (["step"], [1000.0])
    by_kernel = RunTimes.of(report.attributed, "kernel", "one")
    kernels = dict(zip(by_kernel.names.tolist(), by_kernel.medians.tolist(), strict=True))
    assert kernels["gemm_kernel"] == expected["gemm"]


def test_a_run_without_gpu_work_is_its_time_on_the_host(tmp_path: Path):
    made = made_reports.Made()
    made.names_of(100)
    for n in range(3):
        start, end = 1000 * n, 1000 * n + 400 + n
        made.annotation(
            made_reports.PUSH_POP, start, end, text="load", thread=made_reports.thread(100)
        )
    of_run = RunTimes.of(
        bridge.load(made.written(tmp_path / "host.sqlite")).attributed, "op", "host"
    )
    assert of_run.evidence.startswith("ranges")
    assert "GPU work" not in of_run.evidence
    assert "load" in of_run.names.tolist()


# -- Which runs compare


def test_runs_of_unlike_evidence_are_left_out_and_named():
    ten = runs(mm=UP)
    ten[2] = run(2, {"mm": 1.0}, evidence="GPU work")
    ten.insert(5, RunTimes.left_out("ncu", ["k.ncu-rep"], NOT_TIMED))
    trend = Trend.of(ten, "op", NOISE)
    assert [one.label for one in trend.left_out] == ["r2", "ncu"]
    assert [one.label for one in trend.runs] == [f"r{n}" for n in range(10) if n != 2]
    assert trend.medians.shape == (1, 9)
    text = texts.for_terminal(TrendView(trend, trend.rows), Look(100))
    lines = [line for line in text.splitlines() if line.startswith("left out")]
    assert lines == [f"left out, as other events tell of them: r2 (GPU work), ncu ({NOT_TIMED})"]
    assert rows(trend)["mm"]["run"] == "r6"


def test_of_two_kinds_as_many_the_newest_decides():
    trend = Trend.of(
        [*runs(mm=UP)[:2], *(run(n, {"mm": 1.0}, "GPU work") for n in (7, 8))], "op", NOISE
    )
    assert [one.label for one in trend.runs] == ["r7", "r8"]


def test_no_run_compares():
    trend = Trend.of([RunTimes.left_out("a", (), "aggregates")], "op", NOISE)
    assert (len(trend.runs), len(trend.rows), len(trend.overall)) == (0, 0, 0)
    assert trend.untested == "no change can be told: it takes 5 runs that compare; there are 0"
    assert "no runs that compare" in texts.for_terminal(TrendView(trend, trend.rows), Look(100))
    assert "left out" in texts.page(TrendView(trend, trend.rows))
    assert json.loads(texts.as_json(TrendView(trend, trend.rows)))["runs"] == []


# -- Rows


def test_a_change_has_its_place_levels_and_interval(found: Trend):
    mm = rows(found)["mm"]
    before, after = UP[:6], UP[6:]
    assert (mm["at"], mm["run"], mm["state"]) == (6, "r6", "slower")
    assert (mm["first_ns"], mm["last_ns"]) == (100, 111)
    assert (mm["before_ns"], mm["after_ns"]) == (mean(before), mean(after))
    interval = ttest_ind(after, before, equal_var=False).confidence_interval(0.95)
    assert (mm["low_ns"], mm["high_ns"]) == pytest.approx((interval.low, interval.high))
    assert mm["ratio"] == pytest.approx(mean(after) / mean(before))
    assert mm["ratio_low"] == pytest.approx(1 + interval.low / mean(before))
    assert (mm["earliest"], mm["latest"]) == (6, 6)
    assert mm["p"] <= mm["q"] <= 0.05


def test_an_op_that_is_new_has_no_ratio_and_what_is_noise_no_change(found: Trend):
    late, tiny, relu = (rows(found)[op] for op in ("late", "tiny", "relu"))
    assert (late["state"], late["run"], late["before_ns"], late["ratio"]) == ("new", "r5", 0, -1)
    assert (tiny["state"], tiny["at"], tiny["run"]) == ("none", -1, "")
    assert tiny["q"] <= 0.05  # surely a change, but of 0.4 %
    assert (relu["state"], relu["before_ns"], relu["ratio"]) == ("none", mean(FLAT), -1)
    gone = Trend.of(runs(mm=LATE[::-1], relu=FLAT), "op", NOISE)
    assert (rows(gone)["mm"]["state"], rows(gone)["mm"]["ratio"]) == ("vanished", 0)
    assert rows(Trend.of(runs(tiny=SMALL), "op", 0.001))["tiny"]["state"] == "slower"


def test_the_largest_change_is_first_and_then_the_longest_op(found: Trend):
    assert found.rows["op"].tolist() == ["mm", "late", "tiny", "relu"]


def test_each_change_of_an_op_is_a_row():
    there = [10, 10.1, 9.9, 10, 10.2, 9.8, 10, 11.1, 11, 10.9, 11.2, 11, 11, 10, 9.9, 10.1, 10, 10]
    trend = Trend.of(runs(mm=there), "op", NOISE)
    assert sorted(zip(trend.rows["run"], trend.rows["state"], strict=True)) == [
        ("r13", "faster"),
        ("r7", "slower"),
    ]


def test_few_runs_are_shown_and_not_judged():
    trend = Trend.of(runs(mm=UP)[:4], "op", NOISE)
    [row] = trend.rows.records()
    assert (row["first_ns"], row["last_ns"], row["state"], row["p"], row["q"]) == (
        100,
        101,
        "none",
        -1,
        -1,
    )


# -- Limits


def judged(trend: Trend, *limits: str) -> dict[str, bool]:
    return {one.subject: one.passed for one in trend.judged(list(map(Growth.parsed, limits)))}


def test_the_newest_change_is_judged(found: Trend):
    assert judged(found, "op:5%") == {"mm at r6": False, "tiny": True}  # relu and late: 1 % of all
    assert judged(Trend.of(runs(late=LATE, relu=FLAT), "op", NOISE), "op:5%") == {
        "late at r5": False,  # any is more than nothing
        "relu": True,
    }
    assert judged(found, "op:20%")["mm at r6"]
    assert judged(found, "iteration:0%") == {"iteration time": True}
    there = [10, 10.1, 9.9, 10, 10.2, 9.8, 10, 11.1, 11, 10.9, 11.2, 11, 11, 10, 9.9, 10.1, 10, 10]
    assert judged(Trend.of(runs(mm=there), "op", NOISE), "op:5%") == {"mm at r13": True}
    assert judged(Trend.of(runs(mm=there[:13]), "op", NOISE), "op:5%", "5%") == {
        "mm at r7": False,
        "total time at r7": False,
        "iteration time": True,
    }
    [line] = [
        one.line for one in found.judged([Growth.parsed("op:5%")]) if one.subject == "mm at r6"
    ]
    assert line.startswith("mm at r6: 100 ns -> 110.5 ns per step (+10.5 %), 95 % interval +")
    assert line.endswith(": slower, over --fail-over op:5%")


@pytest.mark.parametrize("limit", ["5%", "total:5%", "iteration:5%", "op:5%"])
def test_what_cannot_be_judged_fails(limit: str):
    few = Trend.of(runs(mm=UP)[:4], "op", NOISE)
    verdicts = few.judged([Growth.parsed(limit)])
    assert not any(one.passed for one in verdicts)
    assert all(
        "nothing was judged; no change can be told: it takes 5 runs" in one.line for one in verdicts
    )
    for one in (none := Trend.of([], "op", NOISE)).judged([Growth.parsed(limit)]):
        assert (one.passed, len(none.runs)) == (False, 0)


def test_a_limit_of_what_a_trend_has_not_is_refused():
    for limit, by in (("idle:5%", "op"), ("op:5%", "kernel"), ("op:5%", "step")):
        with pytest.raises(ValueError, match=f"--fail-over {limit}: a trend judges"):
            check_gates([Growth.parsed(limit)], by)
    check_gates([Growth.parsed("op:5%"), Growth.parsed("2ms")], "op")


# -- Forms


def test_the_terminal_shows_changes_first(found: Trend):
    text = texts.for_terminal(TrendView(found, found.rows.head(2), 2), Look(120))
    lines = text.splitlines()
    assert lines[0] == "10 runs, r0 … r9: median times per step"
    assert "Iteration, median 1.000 µs → 1.000 µs" in lines
    assert re.match(r"mm +100 ns +111 ns +\+10\.5 % +\+\d\.\d … \+\d\d\.\d % +r6 ", lines[6])
    assert "… and 2 more (--top all)" in lines


def test_json_and_csv_have_all_figures(found: Trend):
    document = json.loads(texts.as_json(TrendView(found, found.rows)))
    assert {one["op"]: one["medians_ns"] for one in document["series"]}["mm"] == UP
    assert [one["label"] for one in document["runs"]] == [f"r{n}" for n in range(10)]
    assert [row["op"] for row in document["rows"]] == found.rows["op"].tolist()
    assert texts.as_csv(TrendView(found, found.rows)).splitlines()[1].startswith("mm,100.0,111.0,")


HOSTILE = "</title><script>alert(1)</script> {{styles}} \ud800"


@pytest.fixture
def page() -> str:
    names = {"mm": UP, HOSTILE: FLAT}
    hostile = [run(n, {op: of[n] for op, of in names.items()}) for n in range(10)]
    trend = Trend.of(hostile, "op", NOISE)
    return texts.page(TrendView(trend, trend.rows))


def test_the_page_is_whole_without_scripts_and_marks_the_change(page: str):
    assert "<script" not in page
    assert not re.search(r"(src|href)=\"(?!data:,)", page)
    page.encode()
    assert "{{styles}}" in page
    assert "script-src 'none'" in page
    pictures = [ET.fromstring(found) for found in re.findall(r"<svg.*?</svg>", page)]
    assert [picture.get("aria-label") for picture in pictures[2:3]] == ["mm"]
    mm, other = pictures[2:]
    dashed = [line for line in mm.iter("line") if line.get("class") == "change"]
    dots = [float(dot.get("cx")) for dot in mm.iter("circle")]
    assert len(dots) == 10
    assert dots[5] < float(dashed[0].get("x1")) < dots[6]
    assert len(dashed) == 1
    assert not [line for line in other.iter("line") if line.get("class") == "change"]
    assert "slower at r6: +10.5 %" in page
    assert mm.find("circle/title").text == "r0: 100 ns"
    heights = [float(dot.get("cy")) for dot in mm.iter("circle")]
    assert heights.index(min(heights)) == UP.index(max(UP))


@pytest.mark.slow
def test_a_browser_shows_the_page_within_its_policy(page: str, chromium, tmp_path: Path):
    pytest.importorskip("playwright", reason="playwright is not installed")
    from page.opened_page import Browser

    (tmp_path / "trend.html").write_text(page, encoding="utf-8", errors="replace")
    with Browser(chromium, bypass_csp=False) as browser:
        opened = browser.page
        opened.goto((tmp_path / "trend.html").as_uri())
        assert opened.evaluate("() => document.querySelectorAll('svg').length") == 4
        colour = opened.evaluate("() => getComputedStyle(document.querySelector('polyline')).fill")
        assert colour == "none"
        assert browser.wrong == []
