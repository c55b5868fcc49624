"""Ops of kernels by the ranges that were open: whatever the stacks, each kernel's path is its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_ncu import kernel, raw

import bridge
from bridge import importers
from bridge.importers.ncu import read as ncu_report
from bridge.importers.ncu.metrics import DEFAULT_DOMAIN, Kernel, OpenRange, Value

STACKS = st.lists(
    st.tuples(
        st.lists(st.sampled_from("abc"), max_size=4),
        st.sampled_from([1, 2]),  # process
        st.sampled_from([1, 2]),  # thread
        st.sampled_from([-1, 0, 7, 1000]),  # its time, -1 for none
    ),
    min_size=1,
    max_size=12,
)


def made(stacks):
    return [
        Kernel(
            "k",
            "k",
            process=process,
            thread=thread,
            pushed=tuple(OpenRange(DEFAULT_DOMAIN, name) for name in stack),
            metrics={} if time < 0 else {"gpu__time_duration.sum": Value(float(time), "ns")},
        )
        for stack, process, thread, time in stacks
    ]


@pytest.mark.slow
@given(STACKS)
def test_every_kernel_keeps_its_stack_and_its_time(stacks):
    report = ncu_report.to_capture("x", "raw page", made(stacks))
    joined = bridge.report.join(report)
    paths = ["/".join(stack) or None for stack, *_ in stacks]
    assert [p if isinstance(p, str) else None for p in joined.op_kernels["path"]] == paths
    length = (report.activities["end"] - report.activities["start"]).tolist()
    assert length == [max(time, 0) for *_, time in stacks]
    assert not joined.warnings
    ranges = report.ranges
    assert (ranges["end"] > ranges["start"]).all()


@pytest.mark.slow
@given(STACKS)
def test_ranges_are_as_few_as_the_stacks_allow(stacks):
    """Brute force: walk the kernels, keep a stack per thread, open and close."""
    opened, stack_of = 0, {}
    for stack, process, thread, _ in stacks:
        before = stack_of.get((process, thread), [])
        same = 0
        while same < min(len(before), len(stack)) and before[same] == stack[same]:
            same += 1
        opened += len(stack) - same
        stack_of[process, thread] = stack
    report = ncu_report.to_capture("x", "raw page", made(stacks))
    assert len(report.ranges) == opened


def load(folder, *kernels):
    path = folder / "x.csv"
    path.write_text(raw(kernels), encoding="utf-8")
    return bridge.load(path)


def test_domains_and_names_of_pytorch(tmp_path):
    call = "aten::mm, seq = 7, op_id = 40, sizes = [[2, 3]]"
    joined = load(
        tmp_path,
        kernel("a", pushed=["step", ("NCCL op", "NCCL"), call]),
        kernel("b", pushed=["step"]),
        kernel("c"),
    )
    ranges = joined.capture.ranges
    assert ranges["domain_name"].tolist() == ["", "NCCL", ""]
    assert ranges["domain"].tolist() == [0, 1, 0]
    assert joined.op_kernels["op"].tolist()[:2] == ["aten::mm", "step"]
    assert joined.op_kernels["reason"].tolist()[2] == "no_range"
    only = bridge.load(tmp_path / "x.csv", domains=["NCCL"])
    assert only.by("op")["op"].tolist() == ["NCCL op"]


def test_phases(tmp_path):
    joined = load(
        tmp_path,
        kernel("a", started=[(1, "epoch")]),
        kernel("b", started=[(1, "epoch"), (2, "eval")]),
        kernel("c", started=[(3, "epoch")]),
    )
    ranges = joined.capture.ranges
    assert ranges["kind"].tolist() == ["start_end"] * 3
    assert ranges["name"].tolist() == ["epoch", "eval", "epoch"]
    table = joined.by("phase,kernel").set_index("kernel")["phase"]
    assert table.to_dict() == {"a": "epoch", "b": "eval", "c": "epoch"}


@pytest.mark.slow
def test_brute_force_over_kernels(tmp_path):
    """Sum, mean by time, maximum: by hand for each op."""
    rng = np.random.default_rng(5)
    kernels = [
        kernel(
            f"k{rng.integers(3)}",
            pushed=[f"op{rng.integers(3)}"],
            metrics={
                "gpu__time_duration.sum": (str(rng.integers(1, 9)), "usecond"),
                "dram__bytes.sum": (f"{rng.integers(10**6):,}", "byte"),
                "sm__throughput.avg.pct_of_peak_sustained_elapsed": (
                    f"{rng.random() * 100:.3f}",
                    "%",
                ),
                "launch__registers_per_thread": (str(rng.integers(256)), "register/thread"),
            },
        )
        for _ in range(60)
    ]
    names = ["dram_bytes", "sm_throughput", "registers"]
    joined = load(tmp_path, *kernels)
    for by in ("op", "op-kernel", "kernel", "op,kernel,stream"):
        table = joined.by(by, metrics=names)
        for row in table.to_dict("records"):
            mine = [
                k["metrics"]
                for k in kernels
                if row.get("op", "") in k["pushed"] and row.get("kernel", k["name"]) == k["name"]
            ]
            time, size, busy, registers = (
                [float(m[c][0].replace(",", "")) for m in mine] for c in kernels[0]["metrics"]
            )
            weighted = sum(t * b for t, b in zip(time, busy, strict=True)) / sum(time)
            assert row["dram_bytes"] == sum(size)
            assert row["sm_throughput"] == pytest.approx(weighted, rel=1e-12)
            assert row["registers"] == max(registers)
        assert table.attrs["units"] == {
            "dram_bytes": "byte",
            "sm_throughput": "%",
            "registers": "register/thread",
        }


@pytest.mark.slow
def test_several_files_are_one_report(tmp_path):
    for number, name in enumerate(("a", "b")):
        text = raw([kernel(name, pushed=[name], metrics={"x.sum": (str(5 + number), "inst")})])
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    joined = bridge.load(tmp_path / "a.csv", tmp_path / "b.csv")
    table = joined.by("op", metrics=["x.sum"])
    assert dict(zip(table["op"], table["x.sum"], strict=True)) == {"a": 5, "b": 6}


@pytest.mark.slow
def test_nothing_else_changes_for_reports_without_metrics(corpus):
    report = importers.load(next(corpus.rglob("*.sqlite")))
    assert not len(report.metrics)
    assert all(facts.timeline for facts in report.facts)
