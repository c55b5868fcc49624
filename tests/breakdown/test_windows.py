"""What is counted when only some time of a run is: by the clock, by step, while a range is open."""

from __future__ import annotations

from collections import Counter
from functools import cache
from pathlib import Path

import made_reports
import numpy as np
import pandas as pd
import pytest
from real_parts import corpus_reports

import bridge
from bridge.report import Report

pytestmark = pytest.mark.slow


ADDING = {
    "op": "calls kernels memcpys memsets graphs gpu_self_ns cpu_self_ns".split(),
    "kind": ["count", "total_ns"],
    "api": ["count", "total_ns", "gpu_ns"],
    "wait": ["count", "total_ns"],
    "kernel": ["count", "total_ns"],
    "op-kernel": ["count", "total_ns"],
    "module": ["gpu_self_ns"],
    "forward-op": ["gpu_self_ns"],
}
SOME = {"mnist-training", "pytorch-2gpu-window"}


@pytest.fixture(scope="module")
def four_steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give two processes with everything in them."""
    return made_reports.report(tmp_path_factory.mktemp("input") / "r.sqlite", steps=4)


@cache
def loaded(path: Path) -> Report:
    return bridge.load(path)


@cache
def parts_of(path: Path, cut: int) -> tuple[Report, Report]:
    """Return what began or ran before and what began or ran after some time since the first event."""
    return loaded(path).within(last_ns=cut), loaded(path).within(first_ns=cut)


def figures(joined: Report, view: str) -> Counter[tuple[object, ...]]:
    """Return what adds up, by row and column; no zeros."""
    table = joined.by(view)
    names = [c for c in ("op", "kernel", "kind", "api", "wait", "module") if c in table]
    rows = table.set_index(names)[ADDING[view]].to_dict("index")
    return Counter({(key, c): n for key, row in rows.items() for c, n in row.items() if n})


CLASSES = {"gemm_kernel": "gemm"}  # of the kernels that run at a cut


def work_at(joined: Report, cut: int) -> pd.DataFrame:
    """Return the work that began before the cut and ended after it."""
    at = joined.capture.facts[0].span[0] + cut
    work = joined.capture.activities.to_pandas().assign(op=joined.op_kernels["op"])
    return work[(work["start"] < at) & (at < work["end"])]


def counted_twice(joined: Report, view: str, cut: int) -> Counter[tuple[object, ...]]:
    """Return the counts of the work at a cut, by row and column: it is cut, and so in both parts."""
    result: Counter[tuple[object, ...]] = Counter()
    for row in work_at(joined, cut).itertuples():
        has_op, is_kernel = row.op == row.op, row.kind == "kernel"
        if view == "kind":
            result[CLASSES[row.name] if is_kernel else row.kind, "count"] += 1
        if view == "op" and has_op:
            result[row.op, f"{row.kind}s"] += 1
        if view == "kernel" and is_kernel:
            result[row.name, "count"] += 1
        if view == "op-kernel" and is_kernel and has_op:
            result[(row.op, row.name), "count"] += 1
    return result


@pytest.mark.parametrize("view", sorted(ADDING))
@pytest.mark.parametrize("cut", [0, 1, 1_000, 1_215, 2_100, 10**9])
def test_two_parts_of_the_time_are_the_whole(view: str, cut: int, four_steps: Path) -> None:
    joined, parts = loaded(four_steps), parts_of(four_steps, cut)
    whole = figures(joined, view) + counted_twice(joined, view, cut)
    if view == "wait":  # these have no call in the report, and so no time
        del whole[("(no op)", "event_record"), "count"]
    assert figures(parts[0], view) + figures(parts[1], view) == whole
    twice = len(work_at(joined, cut))
    assert twice == (2 if cut == 1_215 else 0)
    assert sum(part.totals["activities"] for part in parts) == joined.totals["activities"] + twice
    assert sum(part.totals["gpu_ns"] for part in parts) == joined.totals["gpu_ns"]


@pytest.mark.parametrize("path", corpus_reports(names=SOME))
@pytest.mark.parametrize("view", sorted(ADDING))
def test_so_are_those_of_real_profiles(view: str, path: Path) -> None:
    joined = loaded(path)
    first, last = joined.capture.facts[0].span
    cut = (last - first) // 3
    parts = parts_of(path, cut)
    whole = figures(joined, view) + counted_twice(joined, view, cut)
    assert figures(parts[0], view) + figures(parts[1], view) == whole
    assert sum(part.totals["gpu_ns"] for part in parts) == joined.totals["gpu_ns"]
    assert 0 < parts[0].totals["activities"] < joined.totals["activities"]


@pytest.mark.parametrize("path", corpus_reports("nsys/mnist-training.sqlite"))
def test_steps_are_the_rows_of_the_table_by_step(path: Path) -> None:
    joined = loaded(path)
    told = joined.by("op,step", columns="default,gpu_min,gpu_p99,gpu_span,api,sync,queue")
    for step in (0, 7, 58):
        alone = joined.within(steps=(step, step))
        rows = told[told["step"] == step].drop(columns="step")
        table = alone.by("op", columns="default,gpu_min,gpu_p99,gpu_span,api,sync,queue")
        own = ["op", "calls", "kernels", "gpu_self_ns", "cpu_self_ns", "api_ns", "sync_ns"]
        merged = rows[own].merge(table[own], on="op", suffixes=("", " alone"))
        assert len(merged) == len(table) == len(rows)
        for column in own[1:]:
            assert merged[column].tolist() == merged[f"{column} alone"].tolist()
    both = joined.within(steps=(3, 5))
    assert both.totals["gpu_ns"] == told[told["step"].between(3, 5)]["gpu_self_ns"].sum()
    assert both.by("op")["share"].sum() == pytest.approx(1)


def test_a_range_chooses_what_its_process_began_meanwhile(four_steps: Path) -> None:
    """By the definition: loops over all rows."""
    joined = loaded(four_steps)
    report, op_kernels = joined.capture, joined.op_kernels
    chosen = joined.within(range_name="aten::*")
    times = [
        (r.process, r.start, r.end)
        for r in report.ranges.to_pandas().itertuples()
        if r.name == "aten::mm"
    ]

    def during(process: int, time: int) -> bool:
        return any(p == process and start <= time < end for p, start, end in times)

    work = [
        during(a.process, report.launches["start"][launch] if launch >= 0 else a.start)
        for a, launch in zip(
            report.activities.to_pandas().itertuples(), op_kernels["launch"], strict=True
        )
    ]
    lengths = np.where(op_kernels["reason"] == "invalid_time", 0, report.activities["end"] - report.activities["start"])  # fmt: skip
    assert chosen.totals["activities"] == sum(work)
    assert chosen.totals["gpu_ns"] == lengths[work].sum()
    ops = np.array([*joined.attributed.ops, ""], object)[joined.attributed.op].tolist()
    ranges = zip(ops, report.ranges.to_pandas().itertuples(), strict=True)
    calls = Counter(op for op, r in ranges if op and during(r.process, r.start))
    assert chosen.by("op").set_index("op")["calls"].to_dict() == calls


def test_windows_go_together(four_steps: Path) -> None:
    joined = loaded(four_steps)
    both = joined.within(steps=(1, 2), range_name="gemm")
    one_by_one = joined.within(steps=(1, 2)).within(range_name="gemm")
    pd.testing.assert_frame_equal(both.by("op"), one_by_one.by("op"))
    assert both.by("op-kernel")["kernel"].tolist() == ["gemm_kernel"]
    assert both.totals["activities"] == 4  # a step of each of two processes, twice


def test_what_there_is_not_is_said_in_a_line(four_steps: Path) -> None:
    joined = loaded(four_steps)
    for how, message in (
        ({"steps": (9, 11)}, r"no such step: the report has 0 to 3"),
        ({"range_name": "nothing*"}, "no range 'nothing\\*'"),
        ({"first_ns": 5, "last_ns": 5}, "the window ends before it starts"),
    ):
        with pytest.raises(ValueError, match=message):
            joined.within(**how)


def test_a_range_goes_by_the_name_that_tables_show(corpus):
    """Tables show Optimizer.step#Adam.step as Adam.step."""
    report = bridge.load(corpus / "nsys" / "mnist-training.sqlite")
    long = [op for op in report.attributed.ops if op.startswith("Optimizer.step#")]
    assert long
    for op in long:
        short = report.within(range_name=op.removeprefix("Optimizer.step#"))
        assert short.totals == report.within(range_name=op).totals
