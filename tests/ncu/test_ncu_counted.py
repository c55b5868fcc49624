"""FLOPs and bytes as the GPU counted them: by name and version, over formulas, never twice, and the roofline of them."""

from __future__ import annotations

import json
import math

import counters
import numpy as np
import pytest
from command import assert_misused, done
from command import bridge as run
from made_ncu import DURATION, kernel, raw

import bridge
from bridge import importers
from bridge.analyze.cost.flops import Costs
from bridge.analyze.cost.metrics import flop_counters
from bridge.analyze.cost.metrics.flop_counters import FlopCounts, tensor_dtype
from bridge.analyze.draw.overview.axis import Names
from bridge.analyze.draw.overview.roofline import roofline
from bridge.knowledge.hardware import DTYPES

FADD = "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum"
TENSOR = "sm__ops_path_tensor"


def of_metrics(folder, *each):
    """What is counted of kernels with these metrics: name → value, or (value, unit)."""
    rows = [
        kernel(
            metrics={DURATION: ("1000", "ns")}
            | {n: v if isinstance(v, tuple) else (str(v), "") for n, v in one.items()}
        )
        for one in each
    ]
    (folder / "k.csv").write_text(raw(rows), encoding="utf-8")
    return FlopCounts(importers.load(folder / "k.csv").metrics)


def instructions(kind, add, mul, fma, unit="smsp", end=""):
    values = {"add": add, "mul": mul, "fma": fma}
    return {
        f"{unit}__sass_thread_inst_executed_op_{kind}{op}_pred_on.sum{end}": n
        for op, n in values.items()
        if n is not None
    }


@pytest.mark.parametrize(
    ("metrics", "flops", "dtype"),
    [
        (instructions("f", 1, 20, 300), 621, "fp32"),
        (instructions("d", 1, 20, 300, unit="sm"), 621, "fp64"),
        (instructions("h", 1, 20, 300), 1242, "fp16"),
        (instructions("f", 0, 0, 0), 0, ""),
        (instructions("f", 1, 2, None), None, ""),
        (instructions("f", 5, 0, 0) | instructions("d", 0, 0, 9), 23, "fp64"),
        (
            instructions("f", "0.5", "0.25", 1, end=".per_cycle_elapsed")
            | {"smsp__cycles_elapsed.avg": 40},
            110,
            "fp32",
        ),
        (instructions("f", "0.5", "0.25", 1, end=".per_cycle_elapsed"), None, ""),
        ({f"{TENSOR}_src_bf16_dst_fp32.sum": 4096}, 4096, "bf16"),
        ({f"{TENSOR}_src_bf16_dst_fp32.sum": 0}, None, ""),
        (instructions("f", 4, 0, 0) | {f"{TENSOR}_src_tf32_dst_fp32.sum": 4096}, 4100, "tf32"),
        (  # the whole, told apart by sparsity, and by instruction besides: once
            {
                f"{TENSOR}_src_fp16_dst_fp32.sum": 100,
                f"{TENSOR}_src_fp16_dst_fp32_sparsity_off.sum": 60,
                f"{TENSOR}_src_fp16_dst_fp32_sparsity_on.sum": 40,
                f"{TENSOR}_op_hmma_src_fp16_dst_fp32_sparsity_off.sum": 60,
            },
            100,
            "fp16",
        ),
        (
            {
                f"{TENSOR}_op_{op}_src_fp4_fp6_fp8_dst_fp32_sparsity_{how}.sum": 7
                for op in ("a", "b")
                for how in ("on", "off")
            },
            28,
            "fp8",
        ),
        ({f"{TENSOR}_src_int8.sum": 3, f"{TENSOR}_src_fp64.sum": 9}, 12, "fp64_tensor"),
        (
            instructions("f", 4, 0, 0)
            | {"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active": ("5", "%")},
            None,
            "",
        ),
        (
            instructions("f", 4, 0, 0) | {"sm__inst_executed_pipe_tensor.sum.peak_sustained": 5},
            4,
            "fp32",
        ),
        (
            instructions("f", 4, 0, 0)
            | {"sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active": ("0", "%")},
            4,
            "fp32",
        ),
        (
            instructions("f", 4, 0, 0)
            | {"sm__inst_executed_pipe_fp64.avg.pct_of_peak_sustained_active": ("1", "%")},
            None,
            "",
        ),
        ({f"{TENSOR}_src_fp16.sum": 9, f"{TENSOR}_src_fp16_dst_fp32.sum": 9}, 9, "fp16"),
        (
            {f"{TENSOR}_op_a_src_fp16_dst_fp16.sum": 2, f"{TENSOR}_src_fp16_dst_fp32.sum": 3},
            5,
            "fp16",
        ),
        ({}, None, ""),
    ],
)
def test_flops(tmp_path, metrics, flops, dtype):
    counted = of_metrics(tmp_path, metrics)
    assert counted.flops.tolist() == pytest.approx(
        [math.nan if flops is None else flops], nan_ok=True
    )
    if flops is not None:
        assert [DTYPES[code] if code >= 0 else "" for code in counted.dtype] == [dtype]


@pytest.mark.slow
@pytest.mark.parametrize("measured", [0, 1, 2])
def test_kernels_without_any_metric_may_come_last(folder, measured):
    each = {n: (str(v), "inst") for n, v in instructions("f", 5, 0, 0).items()}
    each |= {DURATION: ("1000", "ns"), "dram__bytes.sum": ("64", "byte")}
    some = kernel("k", metrics=each, pushed=["op"])
    rows = [kernel("z", metrics={FADD: ("", "inst")}, pushed=["op"])] * 3
    rows[measured] = some
    (folder / "k.csv").write_text(raw(rows), encoding="utf-8")
    counted = FlopCounts(importers.load(folder / "k.csv").metrics)
    assert len(counted) == len(counted.flops) == 3
    for words in (["--metrics", "dram_bytes"], ["--metrics", FADD], ["--columns", "flops"]):
        done("report", "k.csv", *words)
    done("plot", "k.csv", "--kind", "roofline", "-o", "r.svg")


def test_each_kernel_has_what_was_counted_of_it(tmp_path):
    tensor = {f"{TENSOR}_src_bf16_dst_fp32.sum": 8}
    counted = of_metrics(
        tmp_path, instructions("f", 1, 0, 0), {}, tensor, instructions("f", 0, 0, 1) | tensor
    )
    assert counted.flops.tolist() == pytest.approx([1, math.nan, 8, 10], nan_ok=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metrics", "level", "moved"),
    [
        ({"dram__bytes.sum": ("5", "Kbyte")}, "DRAM", 5000),
        ({"dram__bytes_read.sum": 3, "dram__bytes_write.sum": 4}, "DRAM", 7),
        ({"dram__bytes_read.sum": 3}, "DRAM", None),
        ({"dram__sectors_read.sum": 3, "dram__sectors_write.sum": 4}, "DRAM", 224),
        ({"dram__bytes.sum.per_second": ("2", "Gbyte/second")}, "DRAM", 2000),
        ({"lts__t_bytes.sum": 9, "lts__t_sectors.sum": 5}, "L2", 9),
        ({"lts__t_sectors.sum": 5}, "L2", 160),
        ({"lts__t_sectors.sum": 5, "derived__lts__lts2xbar_bytes.sum.per_second": 10**9,
          "derived__lts__lts2xbar_bytes.sum.peak_sustained": 7}, "L2", 1000),
        ({"l1tex__t_bytes.sum": 9}, "L1", 9),
        ({"l1tex__lsu_writeback_active_mem_lg.sum": 2}, "L1", 256),
    ],
)  # fmt: skip
def test_bytes(tmp_path, metrics, level, moved):
    found = of_metrics(tmp_path, metrics).bytes_of(level).tolist()
    assert found == pytest.approx([math.nan if moved is None else moved], nan_ok=True)


def test_dtypes_of_tensor_cores():
    said = {
        s: tensor_dtype(s)
        for s in ("bf16", "fp16", "tf32", "fp64", "int8", "int4", "fp8", "fp4_fp6_fp8", "fp4")
    }
    assert list(said.values()) == "bf16 fp16 tf32 fp64_tensor int8 int8 fp8 fp8 fp8".split()


def test_roofs_are_peaks_times_clocks(tmp_path):
    metrics = {
        "sm__sass_thread_inst_executed_op_ffma_pred_on.sum.peak_sustained": ("1000", "inst/cycle"),
        "sm__cycles_elapsed.avg.per_second": ("2", "cycle/nsecond"),
        f"{TENSOR}_op_x_src_bf16_dst_fp32_sparsity_off.sum.peak_sustained": 8000,
        f"{TENSOR}_src_bf16_dst_fp32.sum.peak_sustained": 16000,
        "dram__bytes.sum": 1,
        "dram__bytes.sum.peak_sustained": ("100", "byte/cycle"),
        "dram__cycles_elapsed.avg.per_second": ("3", "cycle/nsecond"),
        "lts__t_bytes.sum": 1,
    }
    slower = metrics | {"sm__cycles_elapsed.avg.per_second": ("1", "cycle/nsecond")}
    counted = of_metrics(tmp_path, slower, metrics)
    assert flop_counters.peak_tflops(counted) == {"fp32": 4.0, "bf16": 16.0}
    assert flop_counters.peak_gb_per_s(counted) == {"DRAM": 300.0}


@pytest.mark.slow
def test_a_real_report(corpus):
    """Against NVIDIA's own derived metrics of a GB200: kernels of additions alone."""
    pytest.importorskip("ncu_report", reason="no ncu-report: pip install ncu-report")
    report = importers.load(corpus / "ncu" / "cuda-graph.ncu-rep")
    table = report.metrics.table
    named = {(k, m): v for k, m, v in zip(table.kernel, table.metric, table.value, strict=True)}
    counted = FlopCounts(report.metrics)
    for k in range(3):
        per_cycle = named[k, FADD + ".per_cycle_elapsed"]
        assert counted.flops[k] == pytest.approx(per_cycle * named[k, "smsp__cycles_elapsed.avg"])
        speed = named[k, "derived__lts__lts2xbar_bytes.sum.per_second"]
        assert counted.bytes_of("L2")[k] == round(speed * named[k, DURATION] / 1e9)
        assert (
            counted.bytes_of("DRAM")[k]
            == named[k, "dram__bytes_read.sum"] + named[k, "dram__bytes_write.sum"]
        )
    clock = max(named[k, "sm__cycles_elapsed.avg.per_second"] for k in range(3))
    peak = named[0, "derived__sm__sass_thread_inst_executed_op_ffma_pred_on_x2"]
    assert flop_counters.peak_tflops(counted)["fp32"] == pytest.approx(peak * clock / 1e12)
    found = roofline(bridge.load(corpus / "ncu" / "cuda-graph.ncu-rep").attributed, Names())
    assert found is not None
    assert sorted(set(found["level"])) == ["DRAM", "L1", "L2"]
    assert sum(found["flops"]) == 3 * counted.flops.sum()
    assert {roof["name"] for roof in found["roofs"]} == {"fp32", "L2", "L1"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cutlass-gemm-nvtx", "cutlass-gemm-int8"])
def test_tensor_cores_that_nobody_counted_leave_flops_unknown(corpus, name):
    pytest.importorskip("ncu_report", reason="no ncu-report: pip install ncu-report")
    counted = FlopCounts(importers.load(corpus / "ncu" / f"{name}.ncu-rep").metrics)
    assert np.isnan(counted.flops).all()
    assert (counted.bytes_of("DRAM") > 0).all()


# -- of calls


def columns(*words, by="op"):
    shown = "calls,flop,moved_bytes,flop_once,uncounted,formula"
    said = done("report", *words, "--by", by, "--columns", shown, "--format", "json")
    return {row[by]: row for row in json.loads(said)["rows"]}


FLOPS = {"op_gemm": 40 * (1 + 3 + 4 + 6), "op_add": 40 * (2 + 5)}


@pytest.mark.slow
def test_measured_comes_first_and_counts_once(counted_twice):
    rows = columns("t.sqlite", "--ncu", "c.csv")
    assert {op: rows[op]["flop"] for op in FLOPS} == FLOPS
    assert {row["formula"] for row in rows.values()} == {"measured"}
    assert rows["step 0"]["flop"] == 40 * 6
    assert rows["step 1"]["moved_bytes"] == 10 * (4 + 5 + 6)
    assert sum(row["flop_once"] for row in rows.values()) == sum(FLOPS.values())
    assert not any(row["uncounted"] for row in rows.values())
    [whole] = json.loads(
        done(
            "report",
            "t.sqlite",
            "--ncu",
            "c.csv",
            "--by",
            "process",
            "--columns",
            "flop",
            "--format",
            "json",
        )
    )["rows"]
    assert whole["flop"] == sum(FLOPS.values())


@pytest.mark.slow
def test_a_call_with_a_kernel_that_was_not_measured_is_not(counted_twice):
    """Of step 1 and what is in it nothing was measured by call; another kernel of the path says as much."""
    counters.counters(counted_twice / "one.csv", steps=1)
    rows = columns("t.sqlite", "--ncu", "one.csv")
    assert rows["op_gemm"]["flop"] == 2 * 40 * (1 + 3) + 40 * (3 - 1)  # by path the last one counts
    text = (
        (counted_twice / "one.csv").read_text().replace("(16, 1, 1)", "(17, 1, 1)")
    )  # add: by name alone
    (counted_twice / "other.csv").write_text(text)
    rows = columns("t.sqlite", "--ncu", "other.csv")
    assert rows["op_add"]["flop"] == -1
    assert rows["op_add"]["formula"] == "no formula"
    assert rows["op_gemm"]["formula"] == "measured"
    assert rows["step 0"]["flop"] == 40 * 4
    assert rows["step 0"]["uncounted"] == 1


@pytest.mark.slow
def test_recorded_and_computed_figures_come_after(folder):
    """A call that says 8 FLOPs, and one whose shapes do: measured once, as they say without."""
    from made_reports import PUSH_POP, Made, thread

    made = Made()
    made.names_of(100)
    texts = ["aten::mm, sizes = [[2, 3], [3, 4]]", "mine"]
    for place, text in enumerate(texts):
        at = 1_000 * (place + 1)
        more = {"json": '{"flops": 8, "bytes": 16}'} if text == "mine" else {}
        made.annotation(PUSH_POP, at, at + 900, text=text, thread=thread(100), **more)
        names = {"name": made.string("k"), "full_name": made.string("void k(float *)")}
        extent = {f"{what}_{axis}": 1 for what in ("grid", "block") for axis in "xyz"}
        made.launched("kernels", at + 10, 100, at + 100, at + 200, **names, **extent)
    made.written(folder / "t.sqlite")
    metrics = {DURATION: ("5", "ns"), "dram__bytes.sum": ("70", "byte"), **counters.flops(0)}
    rows = [
        kernel("void k(float*)", pushed=[text], grid=(1, 1, 1), block=(1, 1, 1), metrics=metrics)
        for text in texts
    ]
    (folder / "c.csv").write_text(raw(rows))
    before, after = columns("t.sqlite"), columns("t.sqlite", "--ncu", "c.csv")
    assert {op: (row["flop"], row["formula"]) for op, row in before.items()} == {
        "aten::mm": (48, "2·M·N·K"),
        "mine": (8, "recorded"),
    }
    for row in after.values():
        assert (row["flop"], row["moved_bytes"], row["formula"]) == (40, 70, "measured")
    assert columns("t.sqlite", "--ncu", "c.csv", "--flops", "torch")["aten::mm"]["flop"] == 48


@pytest.mark.slow
def test_the_roofline_is_of_what_was_measured(counted_twice):
    joined = bridge.load(counted_twice / "t.sqlite")
    assert roofline(joined.attributed, Names()) is None
    done("import", "-q", "t.sqlite", "--ncu", "c.csv")
    from bridge import store
    from bridge.report import join

    joined = join(store.load(counted_twice / "bridge.db"))
    names = Names()
    found = roofline(joined.attributed, names, Costs(peak_tflops=1.0, peak_gbs=2.0))
    points = {
        (names.listed[op], level): row
        for op, level, *row in zip(
            *(found[c] for c in ("op", "level", "flops", "bytes", "calls", "left")), strict=True
        )
    }
    assert points == {
        (name, level): [flops, factor * flops / 40, calls, 0]
        for name, flops, calls in (("gemm", FLOPS["op_gemm"], 4), ("add", FLOPS["op_add"], 2))
        for level, factor in (("DRAM", 10), ("L2", 20), ("L1", 40))
    }
    assert found["roofs"] == [{"name": "", "tflops": 1.0, "gb_per_s": 2.0}]
    assert roofline(joined.attributed, Names(), Costs("torch")) is None


def test_ncu_goes_with_the_roofline_alone(counted_twice):
    words = ["plot", "t.sqlite", "--ncu", "c.csv", "-o", "x.svg", "--kind", "breakdown"]
    assert_misused(run(*words), "--ncu goes with --kind roofline")
