"""Reports of Nsight Compute against what ncu itself printed of them, and against NVIDIA's library."""

from __future__ import annotations

import csv
import math
import re
from decimal import Decimal

import pytest
from real_parts import ROOT

import bridge
from bridge import importers
from bridge.analyze.cost.metrics.values import HEADLINES as HEADLINES_THERE
from bridge.analyze.cost.metrics.values import OF_ROWS
from bridge.importers.ncu.rep import base_unit

PRINTED = "simple-divergence"
REPORTS = ("cutlass-gemm-nvtx", "cutlass-gemm-int8", "cuda-graph", PRINTED)
FILES = (
    *(f"{name}.ncu-rep" for name in REPORTS),
    *(f"{PRINTED}.raw.csv", f"{PRINTED}.details.csv", "copy-blocked.details.csv"),
    *("llm-kernel.details.csv", "llm-kernel.metrics.csv"),
)
OWN = 8  # columns before the metrics


@pytest.fixture(scope="module")
def ncu(corpus):
    return corpus / "ncu"


@pytest.fixture(scope="module")
def library():
    return pytest.importorskip("ncu_report", reason="no ncu-report: pip install ncu-report")


def by_metric(report):
    """Every metric of every kernel: (number or text, unit)."""
    table = report.metrics.table.to_pandas()
    rows = zip(*(table[c].tolist() for c in table), strict=True)
    return {(k, m): (text if math.isnan(v) else v, unit) for k, m, unit, v, text in rows}


def actions(library, path):
    context = library.load_report(str(path))
    for number in range(context.num_ranges()):
        part = context.range_by_idx(number)
        yield from (part.action_by_idx(place) for place in range(part.num_actions()))


def test_the_report_has_every_figure_that_ncu_printed_to_the_last_digit(ncu, library):
    found = by_metric(importers.load(ncu / f"{PRINTED}.ncu-rep"))
    head, units, *rows = csv.reader((ncu / f"{PRINTED}.raw.csv").read_text().splitlines())
    compared = 0
    for kernel, row in enumerate(rows):
        for name, unit, cell in list(zip(head, units, row, strict=True))[OWN:]:
            if cell in {"", "no data"}:
                assert (kernel, name) not in found
                continue
            value, of = found[kernel, name]
            word, power = base_unit(unit)
            if isinstance(value, str):
                assert value == cell
            else:
                digits = len(cell.partition(".")[2])
                assert f"{Decimal(value).scaleb(-power):.{digits}f}" == cell, name
                assert of == word or not unit
            compared += 1
    assert compared == 4 * 265  # 3 of nvlink have no value


@pytest.mark.slow
def test_the_raw_page_reads_as_the_report_does(ncu, library):
    printed = by_metric(importers.load(ncu / f"{PRINTED}.raw.csv"))
    found = by_metric(importers.load(ncu / f"{PRINTED}.ncu-rep"))
    more = {name for _, name in found.keys() - printed.keys()}
    assert printed.keys() < found.keys()
    assert all(name.startswith("breakdown:") for name in more)  # which the raw page leaves out
    for key, (value, unit) in printed.items():
        if isinstance(value, str):
            assert found[key][0] == value
        else:
            assert found[key][0] == pytest.approx(value, rel=1e-6, abs=0.005), key
            assert found[key][1] == unit or not unit


HEADLINES = (
    "sm_throughput,memory_throughput,dram_throughput,l2_throughput,l1_throughput,occupancy,"
    "theoretical_occupancy,waves,registers,shared_static,shared_dynamic,cycles"
).split(",")


@pytest.mark.slow
def test_the_details_page_agrees_within_what_it_prints(ncu, library):
    tables = [
        bridge.load(ncu / f"{PRINTED}.{page}").by("kernel", metrics=HEADLINES).set_index("kernel")
        for page in ("ncu-rep", "details.csv")
    ]
    report, details = (table.sort_index() for table in tables)
    assert len(report) == 4
    for name in HEADLINES:
        assert (details[name] >= 0).all(), name
        assert details[name].tolist() == pytest.approx(report[name].tolist(), abs=0.0051), name
    assert details["total_ns"].tolist() == pytest.approx(report["total_ns"].tolist(), abs=5)


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTS)
def test_everything_in_a_report_is_what_the_library_says(ncu, library, name):
    path = ncu / f"{name}.ncu-rep"
    report = importers.load(path)
    found, activities = by_metric(report), report.activities.to_pandas()
    joined = bridge.load(path).op_kernels
    seen = 0
    for row, action in enumerate(actions(library, path)):
        metrics = {m: action[m] for m in action.metric_names() if action[m].has_value()}
        for metric, one in metrics.items():
            if one.value() in {None, ""} or (
                type(one.value()) is float and math.isnan(one.value())
            ):
                assert (row, metric) not in found
                continue
            assert found[row, metric] == (one.value(), one.unit())
            seen += 1
        own = activities.iloc[row]
        assert own["end"] - own["start"] == metrics["gpu__time_duration.sum"].value()
        for what in ("grid", "block"):
            for axis in "xyz":
                assert own[f"{what}_{axis}"] == metrics[f"launch__{what}_dim_{axis}"].value()
        assert own["registers"] == metrics["launch__registers_per_thread"].value()
        assert own["stream"] == metrics["launch__stream_id"].value()
        assert own["name"] == action.name(action.NameBase_FUNCTION)
        assert own["full_name"] == action.name(action.NameBase_DEMANGLED)
        assert own["mangled"] == action.name(action.NameBase_MANGLED)
        state = action.nvtx_state()
        stack = state.domain_by_id(0).push_pop_ranges() if state and state.domains() else ()
        assert joined["path"].iloc[row] == ("/".join(stack) or None if stack else None) or not stack
        assert (joined["op"].iloc[row] == stack[-1]) if stack else joined["reason"].iloc[row]
    assert seen == len(found) > 1000
    assert row + 1 == len(activities)


@pytest.mark.slow
def test_rules_are_those_that_the_library_gives(ncu, library):
    path = ncu / "cuda-graph.ncu-rep"
    rules = importers.load(path).metrics.rules
    said = [
        (row, one["rule_identifier"], one.get("speedup_estimation", {}).get("speedup", -1))
        for row, action in enumerate(actions(library, path))
        for one in action.rule_results_as_dicts()
        if one.get("rule_message")
    ]
    columns = (rules[c].tolist() for c in ("kernel", "rule", "speedup"))
    assert list(zip(*columns, strict=True)) == said
    assert {"OPT", "INF", "WRN"} == set(rules["kind"])
    assert not rules.text.matching(lambda text: "@" in text).any()


@pytest.mark.slow
def test_processes_are_those_of_the_file(ncu, library):
    report = importers.load(ncu / f"{PRINTED}.ncu-rep")
    row = next(csv.DictReader((ncu / f"{PRINTED}.details.csv").read_text().splitlines()))
    assert {p >> 24 for p in report.activities["process"].tolist()} == {int(row["Process ID"])}
    assert report.processes.name[0].endswith(row["Process Name"])
    assert report.devices["name"].tolist() == ["NVIDIA GeForce GTX 1660 Ti"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_file_makes_tables(ncu, library, name):
    joined = bridge.load(ncu / name)
    for by in ("kernel", "op", "op-kernel"):
        table = joined.by(by, metrics=("occupancy", "sm_throughput"))
        assert not [c for c in table if c.startswith(("cpu_", "gpu_busy"))]
        if by == "kernel":
            assert (table["total_ns"] > 0).all()
            assert (table["sm_throughput"] >= 0).all()
            assert table["count"].sum() == len(joined.capture.activities)


@pytest.mark.parametrize(
    ("name", "times"),
    [("copy-blocked.details.csv", [21_058_944]), ("llm-kernel.metrics.csv", [6_750])],
)
def test_times_are_ns_whatever_the_unit(ncu, name, times):
    assert bridge.load(ncu / name).by("kernel")["total_ns"].tolist() == times


def test_estimated_speedups_of_the_details_page(ncu):
    rules = importers.load(ncu / "copy-blocked.details.csv").metrics.rules
    found = set(zip(rules["rule"], rules["kind"], rules["scope"], rules["speedup"], strict=True))
    assert ("HighPipeUtilization", "OPT", "local", 98.86) in found
    assert ("MemoryL2Compression", "WRN", "", -1.0) in found
    table = bridge.load(ncu / "copy-blocked.details.csv").by("rule")
    assert table["saves_ns"].iloc[0] == round(
        21_058_944 * 74.14 / 100
    )  # 45.14 and 42.96 of one other rule do not add up


def test_the_page_names_every_short_name():
    page = (ROOT / "docs" / "ncu.md").read_text(encoding="utf-8")
    said = page.partition("Short names:")[2].partition(".\n")[0]
    assert re.findall(r"`(\w+)`", said) == [*HEADLINES_THERE, *OF_ROWS]
