"""What was measured, where people look: arguments in traces, points on the page, rules among the advice."""

from __future__ import annotations

import json

import counters
import pytest
from command import assert_misused, done
from command import bridge as run

import bridge
from bridge.analyze.checks.advice.compute import shortened
from bridge.analyze.cost.metrics.values import HEADLINES


@pytest.fixture
def advised(counted_twice):
    """Give that folder with rules.csv, what Nsight Compute advises."""
    counters.advised(counted_twice / "rules.csv")
    return counted_twice


def args_of_kernels(path):
    events = json.loads(path.read_text())["traceEvents"]
    return [e["args"] for e in events if e.get("cat") == "kernel"]


@pytest.mark.slow
def test_kernels_of_a_trace_have_what_was_measured(advised):
    done("trace", "t.sqlite", "--ncu", "c.csv", "-o", "x.json")
    found = args_of_kernels(advised / "x.json")
    assert len(found) == 6
    for nth, args in enumerate(found):
        assert args["occupancy (%)"] == 10.25 + nth
        assert args["dram_bytes (byte)"] == 10 * (nth + 1)
        assert args["flop_fp32 (inst)"] == 40 * (nth + 1)
        assert args["match"] == "call"
    assert {name.split(" (")[0] for name in found[0]} & set(HEADLINES) == {
        *("occupancy", "dram_bytes", "l2_bytes", "l1_bytes", "flop_fp32", "ncu_time")
    }


@pytest.mark.slow
def test_kernels_without_metrics_have_none(advised):
    text = (advised / "c.csv").read_text().replace("void add(", "void other(")
    (advised / "c.csv").write_text(text)
    done("trace", "t.sqlite", "--ncu", "c.csv", "-o", "x.json")
    for args in args_of_kernels(advised / "x.json"):
        assert ("occupancy (%)" in args) == ("match" in args) == (args["op"] != "op_add")
    done("trace", "t.sqlite", "-o", "y.json")
    assert not any("occupancy (%)" in args for args in args_of_kernels(advised / "y.json"))


@pytest.mark.slow
def test_perfetto_reads_them_as_numbers(advised, trace_processor):
    done("trace", "t.sqlite", "--ncu", "c.csv", "-o", "x.pftrace")
    sql = (
        "SELECT s.name, a.display_value AS shown, a.value_type AS type FROM slice s JOIN args a USING (arg_set_id)"
        " WHERE a.key = 'debug.{}' ORDER BY s.ts"
    )
    processor = trace_processor(advised / "x.pftrace")
    rows = processor.query(sql.format("occupancy (%)"))
    assert [(row[0], float(row[1]), row[2]) for row in rows] == [
        (counters.OPS[nth % 3][0], 10.25 + nth, "real") for nth in range(6)
    ]


@pytest.mark.slow
def test_points_of_the_page(advised):
    done("html", "t.sqlite", "--ncu", "c.csv", "-o", "x.html")
    text = (advised / "x.html").read_text()
    assert '"level":["DRAM","L2","L1","DRAM","L2","L1"]' in text.replace(" ", "")
    assert_misused(
        run("html", "t.sqlite", "t.sqlite", "--ncu", "c.csv", "-o", "y.html"), "--ncu goes with one"
    )
    (advised / "x.json").touch()
    assert_misused(run("view", "x.json", "--ncu", "c.csv"), "--ncu goes with a report")


# -- advice


def advice(*words):
    return json.loads(done("advise", *words, "--rule", "nsight-compute", "--format", "json"))


@pytest.mark.slow
def test_rules_are_advice_of_nsight_compute(advised):
    """An estimate of half of each kernel, for which the host waits; one of a unit alone saves nothing of itself."""
    counters.timeline(advised / "waits.sqlite", waits=True)
    [one] = advice("waits.sqlite", "--ncu", "rules.csv", "--over", "0")["advice"]
    assert one["text"].startswith("rule LaunchConfiguration applies to kernels: 6")
    assert one["figures"]["says"] == "Too few blocks. Launch more of them"
    taken = [3, 4, 5] * 2  # µs, of the timeline
    assert one["ceiling_ns"] == one["saving_ns"] == sum(taken) * 1_000 // 2
    rows = {row["path"]: row for row in one["evidence"]}
    assert rows["step/op_gemm"]["saves_ns"] == 8_000
    assert rows["step/op_gemm"]["count"] == 4
    assert rows["step/op_add"]["activity"] == "add"


@pytest.mark.slow
def test_faster_kernels_that_nothing_waits_for_save_nothing(advised):
    assert advice("t.sqlite", "--ncu", "rules.csv", "--over", "0")["advice"] == []


@pytest.mark.slow
def test_of_the_counters_alone_it_is_a_share_of_kernel_time(advised):
    said = advice("rules.csv")
    [one] = said["advice"]
    assert (said["wall_ns"], one["ceiling_ns"], one["share"]) == (9_000, 4_500, 0.5)
    text = done("advise", "rules.csv")
    assert "1 finding in kernels of 9.000 µs" in text
    assert "50.0 % of kernel time" in text
    assert "not checked (needs a timeline): " in text


@pytest.mark.slow
def test_another_grid_has_other_trouble(advised):
    text = (advised / "rules.csv").read_text().replace("(16, 1, 1)", "(17, 1, 1)")
    (advised / "rules.csv").write_text(text)
    counters.timeline(advised / "waits.sqlite", waits=True)
    [one] = advice("waits.sqlite", "--ncu", "rules.csv", "--over", "0")["advice"]
    assert one["figures"]["kernels"] == 4


@pytest.mark.slow
def test_without_rules_it_says_what_records_them(advised):
    [left] = advice("t.sqlite", "--ncu", "c.csv")["not_judged"]
    assert left["missing"] == "rules of Nsight Compute"
    assert "ncu --set full" in left["record"]


@pytest.mark.slow
def test_of_real_reports(corpus):
    """Against the estimates of the report: of each rule the largest of a kernel, times its time."""
    pytest.importorskip("ncu_report", reason="no ncu-report: pip install ncu-report")
    joined = bridge.load(corpus / "ncu" / "cuda-graph.ncu-rep")
    rules, time = joined.capture.metrics.rules, joined.attributed.duration
    expected: dict[str, dict[int, float]] = {}
    for row in rules.to_pandas().to_dict("records"):
        if row["kind"] == "OPT" and row["scope"] == "global" and row["speedup"] > 0:
            of_rule = expected.setdefault(row["rule"], {})
            of_rule[row["kernel"]] = max(of_rule.get(row["kernel"], 0), row["speedup"])
    found = joined.advise(["nsight-compute"], worth=0).advice
    assert {one.finding.figures["rule"]: one.finding.ceiling_ns for one in found} == {
        name: sum(round(time[k] * min(s, 100) / 100) for k, s in each.items())
        for name, each in expected.items()
    }
    assert len(expected) > 2


def test_long_texts_are_quoted_by_their_first_sentences():
    assert shortened("One. Two! Three?") == "One. Two! Three?"
    assert shortened(f"One.\n Two. {'x' * 300}. Four.") == "One. Two."
    assert shortened("y" * 400) == "y" * 400
