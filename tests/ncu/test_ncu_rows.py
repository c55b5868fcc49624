"""What rows say of the kernels in them together: ncu's time over that of the timeline, and what limits them."""

from __future__ import annotations

import counters
import numpy as np
import pytest
from made_ncu import DURATION, kernel, raw

import bridge
from bridge.analyze.cost.metrics.values import bottlenecks
from bridge.analyze.tables.metrics import _ratios

PEAK = "avg.pct_of_peak_sustained_elapsed"
SM, MEMORY = f"sm__throughput.{PEAK}", f"gpu__compute_memory_throughput.{PEAK}"
STEP = {"gemm": (100, 90.0, 20.0), "add": (3_000, 30.0, 70.0)}  # ncu's ns, throughputs


@pytest.fixture
def measured(folder):
    """Give a timeline of two steps and what ncu says of the first: of one gemm, without its memory, and the add."""
    counters.timeline(folder / "t.sqlite")
    rows = []
    for name, blocks in (("gemm", 8), ("add", 16)):
        ns, compute, memory = STEP[name]
        metrics = {DURATION: (str(ns), "ns"), SM: (str(compute), "%"), MEMORY: (str(memory), "%")}
        grid = {"pushed": ["step 0", f"op_{name}"], "grid": (blocks, 1, 1)}
        rows.append(kernel(f"void {name}(float*)", metrics=metrics, **grid))
    (folder / "c.csv").write_text(raw(rows), encoding="utf-8")
    return folder


def joined(folder):
    from pathlib import Path

    from bridge.source import ReportInput, load_report

    return load_report(ReportInput((folder / "t.sqlite",), Path(), ncu=(folder / "c.csv",)))


def test_times_are_those_of_the_kernels_that_were_measured(measured):
    report = joined(measured)
    rows = report.by("op", metrics=["ncu_time", "time_ratio", "bottleneck", "match"]).set_index(
        "op"
    )
    activities, duration = report.capture.activities, report.attributed.duration
    for name, (ns, _, _) in STEP.items():
        theirs = ours = 0
        for row in range(len(activities)):
            if activities.name[row] == name and report.capture.metrics.of[row] >= 0:
                theirs, ours = theirs + ns, ours + int(duration[row])
        assert theirs
        assert rows.loc[f"op_{name}", "ncu_time"] == theirs
        assert rows.loc[f"op_{name}", "time_ratio"] == pytest.approx(theirs / ours)
    assert rows.loc["op_gemm", "bottleneck"] == "compute"
    assert rows.loc["op_add", "bottleneck"] == "memory"


def test_rows_without_measured_kernels_say_nothing(measured):
    text = (measured / "c.csv").read_text().replace("void add(", "void other(")
    (measured / "c.csv").write_text(text)
    rows = joined(measured).by("op", metrics=["time_ratio", "bottleneck"]).set_index("op")
    assert rows.loc["op_add"].tolist()[-2:] == [-1.0, ""]
    assert rows.loc["op_gemm", "bottleneck"] == "compute"


def test_kernels_without_a_time_on_either_side_do_not_count():
    numbers, timed = np.array([10, np.nan, 30, 5]), np.array([5.0, 7, 0, 5])
    assert _ratios(numbers, timed, np.array([0, 0, 0, 1]), 3).tolist() == [2.0, 1.0, -1.0]


def test_what_limits_a_kernel_is_the_busier_unit_if_that_is_busy():
    compute = np.array([60.0, 59.9, 10.0, 61.0, -1.0, 90.0])
    memory = np.array([0.0, 59.9, 60.0, 61.0, 90.0, -1.0])
    assert bottlenecks(compute, memory).tolist() == [
        "compute",
        "latency",
        "memory",
        "memory",
        "",
        "",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cutlass-gemm-nvtx", "cutlass-gemm-int8", "simple-divergence"])
def test_it_agrees_with_the_rule_of_nsight_compute(corpus, name):
    pytest.importorskip("ncu_report", reason="no ncu-report: pip install ncu-report")
    report = bridge.load(corpus / "ncu" / f"{name}.ncu-rep")
    rows = report.by("kernel", metrics=["bottleneck"])
    limited = dict(zip(rows["kernel"], rows["bottleneck"], strict=True))
    rules = report.by("rule")
    said = rules[rules["rule"] == "SOLBottleneck"]
    assert len(said) == len(limited)
    for kernel_, text in zip(said["kernel"], said["text"], strict=True):
        busy = "utilizing greater than 80.0%" in text
        assert (limited[kernel_] in {"compute", "memory"}) == busy
        assert (limited[kernel_] == "latency") == ("too small to fill" in text)
