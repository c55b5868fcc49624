"""What `bridge report` lets people choose: tables, columns, rows, units; and what it says of what there is not."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from command import assert_misused, bridge, done, table_in

from bridge.analyze.core.catalog import TABLES
from bridge.analyze.core.catalog.dimensions import DIMENSIONS

pytestmark = pytest.mark.usefixtures("folder", "read_once")


def rows(*words: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done("report", "--format", "json", *words))["rows"]
    return found


@pytest.mark.slow
def test_dimensions_go_together(three_steps: Path) -> None:
    found = json.loads(done("report", three_steps, "--by", "op, shape", "--format", "json"))
    assert found["by"] == "op,shape"
    named = {(row["op"], row["shape"]): row for row in found["rows"]}
    assert named["aten::mm", "[[2, 3]]"]["calls"] == 6
    assert named["gemm", ""]["gpu_self_ns"] == 6 * 80
    kernels = rows(three_steps, "--by", "op,kernel,geometry", "--filter", "op=gemm")
    assert [(r["kernel"], r["grid"], r["block"], r["registers"], r["shared_bytes"], r["count"]) for r in kernels] == [
        ("gemm_kernel", "8x2x1", "128x1x1", 32, 1024, 6)
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("dimension", DIMENSIONS)
def test_every_dimension_prints_in_every_format(dimension: str, three_steps: Path) -> None:
    found = rows(three_steps, "--by", dimension)
    text = done("report", three_steps, "--by", dimension, "--format", "csv")
    assert [row[0] for row in csv.reader(io.StringIO(text))][1:] == [str(next(iter(row.values()))) for row in found]  # fmt: skip
    for form in ("table", "md"):
        assert len(done("report", three_steps, "--by", dimension, "--format", form).splitlines()) > len(found)  # fmt: skip


@pytest.mark.slow
def test_columns_come_as_they_are_asked_for(three_steps: Path) -> None:
    found = rows(three_steps, "--columns", "gpu_p99, calls,op,share")
    assert list(found[0]) == ["op", "gpu_p99_ns", "calls", "share"]
    assert [row["op"] for row in found] == [row["op"] for row in rows(three_steps)]
    every = rows(three_steps, "--columns", "all")[0]
    assert set(every) == {"op", *TABLES["ranges"].names}
    assert list(every)[:16] == list(rows(three_steps)[0])
    for name, columns in TABLES["ranges"].sets.items():
        if name in ("counters", "counter-peaks", "energy"):  # this report has no samples
            continue
        assert list(rows(three_steps, "--columns", name)[0]) == ["op", *columns]
    assert list(rows(three_steps, "--by", "kernel", "--columns", "kernel,busy,p95")[0]) == ["kernel", "busy_ns", "p95_ns"]  # fmt: skip
    assert list(rows(three_steps, "--by", "wait", "--columns", "total,wait")[0]) == [
        "op",
        "wait",
        "total_ns",
    ]


@pytest.mark.slow
def test_a_column_that_is_sorted_or_filtered_by_is_there(three_steps: Path) -> None:
    found = rows(three_steps, "--sort", "+gpu_p99", "--filter", "cpu_max>=0")
    assert {"gpu_p99_ns", "cpu_max_ns"} <= set(found[0])
    assert [r["gpu_p99_ns"] for r in found] == sorted(r["gpu_p99_ns"] for r in found)
    assert " p99" in table_in(done("report", three_steps, "--sort", "gpu_p99"))[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("count=3..6", {"gemm_kernel", "mm_kernel", "late_kernel", "lost_kernel"}),
        ("count!=3..6", {"backwards"}),
        ("total=100ns..200ns", {"mm_kernel", "late_kernel"}),
        ("gpu>0.3us", {"gemm_kernel"}),
        ("kernel~^m|gemm", {"gemm_kernel", "mm_kernel"}),
        ("kernel~'l(a|o)[st]{1,2}e?', count>1", {"late_kernel", "lost_kernel"}),
    ],
)
def test_filters_take_ranges_of_numbers_and_regular_expressions(
    condition: str, kept: set[str], three_steps: Path
) -> None:
    assert {
        row["kernel"] for row in rows(three_steps, "--by", "kernel", "--filter", condition)
    } == kept


@pytest.mark.slow
def test_a_filter_on_steps_chooses_them_where_rows_do_not_tell_them(three_steps: Path) -> None:
    chosen = json.loads(
        done("report", three_steps, "--filter", "op=gemm, step=1..2", "--format", "json")
    )
    assert chosen["rows"][0]["calls"] == 4
    assert chosen["totals"]["activities"] == 2 * 2 * 5  # two processes, two steps
    told = rows(three_steps, "--by", "op,step", "--filter", "op=gemm, step=1..2")
    assert sorted(row["step"] for row in told) == [1, 2]


@pytest.mark.slow
def test_running_sums_go_down_the_rows(three_steps: Path) -> None:
    found = rows(three_steps, "--by", "kernel", "--running", "--sort", "+count")
    counts = [row["count"] for row in found]
    assert [row["running_count"] for row in found] == [sum(counts[: n + 1]) for n in range(len(counts))]  # fmt: skip
    found = rows(three_steps, "--running", "--top", "2")
    assert found[1]["running_gpu_self_ns"] == found[0]["gpu_self_ns"] + found[1]["gpu_self_ns"]


@pytest.mark.slow
def test_times_come_in_the_unit_that_is_asked_for(three_steps: Path) -> None:
    table = done("report", three_steps, "--by", "kernel", "--unit", "us")
    assert "0.480 µs" in table or "0.480 us" in table
    assert "480 ns" in done(
        "report", three_steps, "--by", "kernel", "--unit", "ns", "--format", "md"
    )


@pytest.mark.slow
def test_idle_gaps_can_be_longer_or_shorter(three_steps: Path) -> None:
    every = rows(three_steps, "--by", "gap", "--idle-over", "0")
    long = rows(three_steps, "--by", "gap", "--idle-over", "500ns")
    assert 0 < len(long) < len(every)
    assert [row["gap_ns"] for row in long] == [r["gap_ns"] for r in every if r["gap_ns"] > 500]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--by", "op,gap"], ["'gap' cannot be combined with others"]),
        (["--by", "op,"], ["no table ''"]),
        (["--by", "op,op"], ["'op,op' names a dimension twice"]),
        (["--columns", "nothing"], ["no column 'nothing'", "--columns list"]),
        (["--by", "stream", "--columns", "causes"], ["no column 'causes'"]),
        (["--filter", "count~3"], ["no column 'count'"]),
        (["--filter", "calls~3"], ["calls is a number"]),
        (["--filter", "calls>3..5"], ["calls is a number"]),
        (["--filter", "op~("], ["'(' is no regular expression"]),
        (["--filter", "step>3"], ["step=3..5"]),
        (["--step", "77"], ["no such step: the report has 0 to 2"]),
        (["--range", "nothing"], ["no range 'nothing'"]),
        (["--from", "2s", "--to", "1s"], ["ends before it starts"]),
        (["--idle-over", "soon"], ["'soon' is no time"]),
        (["--by", "kernel", "--running", "--sort", "kernel"], ["no running sum of kernel"]),
        (["--unit", "h"], ["'h'"]),
    ],
)
def test_what_there_is_not_is_said_in_a_line(words: list[str], said: list[str], three_steps: Path) -> None:  # fmt: skip
    assert_misused(bridge("report", three_steps, *words), *said)
