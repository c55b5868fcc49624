"""Counters of a made report: frame, tables, trace, store, and reports without samples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import columnar
import pytest
from command import bridge as run
from join.plain_writer import METRIC_NAMES, METRICS, write

import bridge
from bridge import importers
from gpu_counters.made import COUNTERS, US, made

KIND = 1 << 40  # upper bits of a typeId


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("counters") / "made.sqlite")


def sample(time: int | None, type_: int, metric: int, value: object) -> dict[str, object]:
    return {"timestamp": time, "typeId": KIND | type_, "metricId": metric, "value": value}


def name(type_: int, metric: int, text: str | None) -> dict[str, object]:
    return {"typeId": KIND | type_, "metricId": metric, "metricName": text}


CALL = {"start": 10, "end": 20, "globalTid": 7 << 24 | 7, "correlationId": 1, "nameId": 1}


def test_a_metric_is_named_by_its_type_and_its_id(tmp_path: Path) -> None:
    rows = [sample(-5, 1, 2, 7), sample(6, 2, 2, 8), sample(7, 1, 9, 0), sample(7, 1, 4, 100)]
    names = [name(1, 2, "SMs Active"), name(2, 2, "SM Issue"), name(1, 4, None)]
    tables = {"CUPTI_ACTIVITY_KIND_RUNTIME": [CALL], METRICS: rows, METRIC_NAMES: names}
    file = write(tmp_path / "r.sqlite", tables)
    frame = importers.load(file).gpu_metrics.to_pandas()
    assert frame.astype({"metric": str}).to_numpy().tolist() == [
        [-5, 1, "SMs Active", 7, 0],
        [6, 2, "SM Issue", 8, 0],
        [7, 1, "metric 9", 0, 0],
        [7, 1, "metric 4", 100, 0],
    ]
    assert not len(importers.load(file, details=False).gpu_metrics)
    again = write(tmp_path / "s.sqlite", tables)
    both = importers.load(file, again).gpu_metrics
    assert both["report"].tolist() == [0] * 4 + [1] * 4
    assert both["metric"].tolist() == 2 * frame["metric"].tolist()


def test_values_that_are_no_numbers_and_impossible_times_are_left_out(tmp_path: Path) -> None:
    rows = [sample(1, 0, 1, None), sample(2, 0, 1, -3), sample(3, 0, 1, 2.5), sample(4, 0, 1, "x")]
    rows += [sample(1 << 62, 0, 1, 1), sample(-(1 << 63), 0, 1, 1), sample(5, 0, 1, 1)]
    tables = {"CUPTI_ACTIVITY_KIND_RUNTIME": [CALL], METRICS: rows}
    assert importers.load(write(tmp_path / "r.sqlite", tables)).gpu_metrics["time"].tolist() == [5]


def test_the_columns_of_ops_kernels_and_copies(path: Path) -> None:
    report = bridge.load(path)
    ops = report.by("op", columns="counters").set_index("op")
    assert ops.loc["matmul", ["sm_active", "tensor_active", "dram_read"]].tolist() == [97, 71, 34]
    assert ops.loc["norm", ["sm_active", "tensor_active", "gpc_clock"]].tolist() == [88, 0, 1980]
    assert ops.loc["norm", "sampled_ns"] == 4 * 178 * US
    assert ops.loc["norm", "sample_share"] == pytest.approx(178 / 180)
    assert ops.loc["step", ["sm_active", "sampled_ns", "sample_share"]].tolist() == [-1, 0, -1]
    kernels = report.by("op-kernel", columns="tensor_active,tensor_active_peak").set_index("op")
    assert kernels["tensor_active_peak"].tolist() == [71, 0]
    assert report.by("memcpy", columns="pcie_rx")["pcie_rx"].tolist() == [82]
    assert report.by("device,kernel", columns="dram_write")["dram_write"].tolist() == [12, 41]


def test_the_table_of_counters_of_a_gpu(path: Path) -> None:
    table = bridge.load(path).by("counter").set_index("counter")
    assert table.index.tolist() == sorted(COUNTERS)
    assert table["interval_ns"].unique().tolist() == [10 * US]
    assert table.loc["SMs Active [Throughput %]", "peak"] == 97
    one_step = run("report", path, "--by", "counter", "--step", "1", "--format", "json").stdout
    rows = {row["counter"]: row for row in json.loads(one_step)["rows"]}
    assert rows["SMs Active [Throughput %]"]["sampled_ns"] == (668 - 30) * US


def test_a_trace_draws_a_curve_per_counter(path: Path, tmp_path: Path) -> None:
    assert run("trace", path, "-o", tmp_path / "t.json").exit_code == 0
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    curve = [
        (e["ts"], e["args"]["value"])
        for e in events
        if e["ph"] == "C" and e["name"] == "SM active (%)"
    ]
    assert curve[:5] == [(0, 0), (30, 2), (100, 97), (440, 88), (700, 0)]
    watts = [e["args"]["value"] for e in events if e["ph"] == "C" and e["name"] == "power (W)"]
    assert watts == [300, 300, 600, 600, 0]
    assert {e["name"] for e in events if e["ph"] == "C"} >= {
        "PCIe in (%)",
        "SM clock (MHz)",
        "GPU 3 energy (mJ)",
    }


def test_a_report_without_samples_says_what_to_record(tmp_path: Path) -> None:
    file = made(tmp_path / "r.sqlite", {})
    for options in (["--columns", "counters"], ["--by", "kernel", "--columns", "sm_active"]):
        result = run("report", file, *options)
        assert result.exit_code != 0
        assert "--gpu-metrics-devices" in result.stderr
    nothing = run("report", file, "--by", "counter").stdout
    assert "nsys profile --gpu-metrics-devices=all" in nothing.replace("-\n", "-").replace(
        "\n", " "
    )
    every = bridge.load(file).by("op", columns="all")
    assert (every["sm_active"] == -1).all()


def test_a_report_in_windows_refuses_counters(path: Path) -> None:
    result = run("report", path, "--columns", "counters", "--memory-limit", "1MB")
    assert result.exit_code != 0
    assert "whole report at once" in result.stderr


def test_a_scrubbed_report_has_the_samples(path: Path, tmp_path: Path) -> None:
    assert run("scrub", path, "-o", tmp_path / "s.sqlite").exit_code == 0
    frame, scrubbed = (
        importers.load(p).gpu_metrics.to_pandas() for p in (path, tmp_path / "s.sqlite")
    )
    assert scrubbed.astype({"metric": str}).equals(frame.astype({"metric": str}))


def test_a_run_of_the_store_has_the_samples(path: Path, tmp_path: Path) -> None:
    db = ["--db", tmp_path / "s.db"]
    assert run("import", path, *db).exit_code == 0
    options = ["--by", "op", "--columns", "counters", "--format", "csv"]
    stored = run("report", "--run", "1", *db, *options)
    assert stored.exit_code == 0, stored.output
    assert stored.stdout == run("report", path, *options).stdout


@pytest.mark.slow
@pytest.mark.parametrize("form", [columnar.as_arrowdir, columnar.as_parquetdir])
def test_exports_in_columns_have_the_same_samples(form: Any, path: Path, tmp_path: Path) -> None:
    frame, other = (
        importers.load(p).gpu_metrics.to_pandas()
        for p in (path, form(columnar.tables_of(path), tmp_path / "dir"))
    )
    assert other.astype({"metric": str}).equals(frame.astype({"metric": str}))
