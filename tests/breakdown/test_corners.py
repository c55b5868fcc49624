"""Names that look alike, columns that go by other names, numbers beyond floats, narrow terminals."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_reports
import numpy as np
import pandas as pd
import pytest
from command import assert_misused, bridge, done
from join.programs import CALL_IDS
from join.trainings import training
from made_reports import PUSH_POP, Made, thread
from real_parts import corpus_reports
from rich.cells import cell_len
from witness.attribution import Range

import bridge as package
from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.column import COLUMNS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.filters import filter_rows
from bridge.analyze.core.table import Table
from bridge.analyze.tables.breakdown import breakdown
from bridge.analyze.tables.build import ordered
from bridge.analyze.tables.ranges import by_call
from bridge.knowledge.amounts import parse_time_ns
from bridge.render import table as tables
from bridge.render.table import Look
from bridge.render.table_columns import displayed

pytestmark = pytest.mark.usefixtures("folder", "read_once")
ODD = ['say "a, b=c"', "it's | 'so'", "[[2, 3]]", "x*y?"]


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a range of each name that holds what separates, quotes or stands for something."""
    made = Made()
    made.names_of(100)
    for nth, name in enumerate(ODD):
        made.annotation(PUSH_POP, 100 * nth, 100 * nth + 50, text=name, thread=thread(100))
        made.kernel(f"k{nth}", 100 * nth + 10, 100, 100 * nth + 20, 100 * nth + 30)
    return made.written(tmp_path_factory.mktemp("input") / "odd.sqlite")


def rows(*words: str | Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(done("report", "--format", "json", *words))["rows"]
    return found


# -- names


@pytest.mark.slow
def test_what_says_nothing_is_one_row_whoever_does_not_say_it(three_steps: Path) -> None:
    """Work in no range, ranges without shapes."""
    for dimension in ("shape", "dtype", "path", "direction"):
        named = [row[dimension] for row in rows(three_steps, "--by", dimension)]
        assert len(named) == len(set(named))
        assert "" in named


@pytest.mark.slow
def test_memory_is_shared_whichever_way_it_was_asked_for(three_steps: Path) -> None:
    joined = package.load(three_steps)
    activities = joined.capture.activities
    dynamic = np.arange(len(activities)) % 2 == 1
    kernel = activities.kind.among("kernel")
    sizes = {
        "shared_static": np.where(kernel, np.where(dynamic, 0, 1024), -1),
        "shared_dynamic": np.where(kernel, np.where(dynamic, 1024, 0), -1),
    }
    changed = replace(joined.capture, activities=activities.replace(**sizes))
    table = package.report.join(changed).by("geometry", columns="count")
    assert sorted(table["shared_bytes"]) == [-1, 1024]


@pytest.mark.slow
def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for rank in ("one", "two"):
        (tmp_path / rank).mkdir()
        paths.append(made_reports.small(tmp_path / rank / "r.sqlite"))
    for by in ("report", "thread", "process", "step"):
        assert {row["report"] for row in rows(*paths, "--by", by)} == {"r.sqlite (1)", "r.sqlite (2)"}  # fmt: skip
    devices = [row["device"] for row in rows(*paths, "--by", "device")]
    assert sorted(devices) == ["GPU 0 in r.sqlite (1)", "GPU 0 in r.sqlite (2)"]


@pytest.mark.slow
def test_gpus_that_are_called_alike_are_told_apart(tmp_path: Path) -> None:
    """Each process has its own device 0 where the report does not number the GPUs."""
    path = made_reports.report(tmp_path / "r.sqlite", without="devices gpus")
    expected = ["GPU 0 of process 100", "GPU 0 of process 101"]
    for by in ("device", "stream"):
        assert sorted(row["device"] for row in rows(path, "--by", by)) == expected


@pytest.mark.slow
def test_work_without_a_call_has_a_process_all_the_same(three_steps: Path) -> None:
    bare = [row for row in rows(three_steps, "--by", "thread,kernel") if row["tid"] == -1]
    assert [(row["pid"], row["kernel"]) for row in bare] == [(100, "lost_kernel"), (101, "lost_kernel")]  # fmt: skip


@pytest.mark.slow
def test_odd_names_come_through_every_format(odd: Path) -> None:
    assert {row["op"] for row in rows(odd)} == {*ODD}
    text = done("report", odd, "--format", "csv")
    assert {row["op"] for row in csv.DictReader(io.StringIO(text))} == {*ODD}
    assert r"| it's \| 'so' |" in done("report", odd, "--format", "md")
    assert {row["path"] for row in rows(odd, "--by", "path", "--names", "raw")} == {*ODD}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "kept"),
    [
        ("""op='say "a, b=c"'""", [0]),
        ("op=[[2, 3]]", [2]),
        ("op=[[*]]", [2]),
        ("op=[2]", []),
        ("op!=[[2, 3]]", [0, 1, 3]),
        ("op=x?y?", [3]),
        ("op=*'so'", [1]),
        ('op~", b=c", kernels=1', [0]),
        ("op~^[xi]", [1, 3]),
    ],
)
def test_odd_names_can_be_asked_for(condition: str, kept: list[int], odd: Path) -> None:
    assert {row["op"] for row in rows(odd, "--filter", condition)} == {ODD[n] for n in kept}


@pytest.mark.slow
def test_brackets_are_brackets_in_names_of_ranges_too(odd: Path) -> None:
    assert [row["op"] for row in rows(odd, "--range", "[[2, 3]]")] == ["[[2, 3]]"]
    assert_misused(bridge("report", odd, "--range", "[2]"), "no range '[2]'")


@pytest.mark.slow
@pytest.mark.parametrize("order", [1, -1])
def test_a_call_counts_where_the_slice_that_began_first_does(order: int) -> None:
    """Whichever of its ranges is first in the file."""
    home = {"report": 0, "process": 7 << 24, "thread": 7 << 24 | 1, "payload": CALL_IDS[0]}
    slices = [
        (Range(**home, start=at, end=at + 5, op=""), f"a, sizes = [[{at}]]") for at in (10, 20, 30)
    ]
    joined = package.report.Report(training(slices[::order]).attributed())
    table = joined.by("shape", columns="calls,cpu_max").set_index("shape")
    assert table["calls"].to_dict() == {"[[10]]": 1, "[[20]]": 0, "[[30]]": 0}
    assert table["cpu_max_ns"].to_dict() == {"[[10]]": 15, "[[20]]": 0, "[[30]]": 0}
    calls = by_call(joined.attributed)[["start_ns", "shape"]]
    assert calls.records() == [{"start_ns": 10, "shape": "[[10]]"}]


# -- columns


@pytest.mark.slow
def test_what_names_a_row_is_no_figure(three_steps: Path) -> None:
    assert [*rows(three_steps, "--columns", "op")[0]] == ["op"]
    assert [*rows(three_steps, "--by", "geometry", "--columns", "grid,count")[0]] == ["grid", "block", "registers", "shared_bytes", "count"]  # fmt: skip
    assert [*rows(three_steps, "--by", "thread", "--columns", "calls,pid")[0]] == ["pid", "tid", "thread", "calls"]  # fmt: skip
    assert [*rows(three_steps, "--by", "memcpy", "--memory-kinds", "--columns", "source,count")[0]] == ["operation", "source", "target", "count"]  # fmt: skip
    for by, other in (("op", "kernel"), ("op", "stream"), ("kernel", "op"), ("memcpy", "kernel")):
        said = bridge("report", three_steps, "--by", by, "--columns", f"{other}")
        assert_misused(said, f"no column '{other}'")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "columns", "words", "there"),
    [
        ("op", "calls", ["--sort", "gpu"], ["op", "calls", "gpu_self_ns"]),
        ("op", "calls", ["--filter", "cpu>=0, gpu_p99>=0"], ["op", "calls", "cpu_self_ns", "gpu_p99_ns"]),
        ("api", "count", ["--sort", "gpu"], ["api", "count", "gpu_ns"]),
        ("stream", "count", ["--sort", "gpu"], ["device", "pid", "context", "stream", "count", "total_ns"]),
        ("wait", "total", ["--sort", "count", "--filter", "max>=0"], ["op", "wait", "total_ns", "max_ns", "count"]),
        ("phase", "wall", ["--filter", "gpu>=0"], ["phase", "wall_ns", "gpu_ns"]),
    ],
)  # fmt: skip
def test_what_is_sorted_or_filtered_by_is_there_by_whatever_name(
    by: str, columns: str, words: list[str], there: list[str], three_steps: Path
) -> None:
    found = rows(three_steps, "--by", by, "--columns", columns, *words)
    assert [*found[0]] == there


@pytest.mark.slow
def test_rows_that_tie_come_in_the_order_of_all_their_names(three_steps: Path) -> None:
    found = rows(three_steps, "--by", "step,thread,op", "--filter", "op=gemm")
    assert [(row["step"], row["pid"]) for row in found] == [(0, 100), (0, 101), (1, 100), (1, 101), (2, 100), (2, 101)]  # fmt: skip


def test_ranges_that_tie_come_in_the_order_of_time() -> None:
    table = Table({"name": ["a", "a", "a"], "gpu_busy_ns": [5, 5, 5], "start_ns": [3, 1, 2]})
    assert ordered(table, ["gpu_busy_ns"])["start_ns"].tolist() == [1, 2, 3]
    assert ordered(table, ["start_ns"])["start_ns"].tolist() == [3, 2, 1]


@pytest.mark.slow
def test_a_running_sum_stands_beside_its_column(three_steps: Path) -> None:
    [row, *_] = rows(
        three_steps, "--columns", "calls,gpu,cpu_self", "--running", "--sort", "cpu_self"
    )
    after = [*row][[*row].index("cpu_self_ns") + 1]
    assert after == "running_cpu_self_ns"


def test_large_times_are_compared_to_the_nanosecond() -> None:
    at = 1_755_000_000_123_456_789
    table = Table({"start_ns": [at - 1, at, at + 1], "share": [0.1, 0.015, 0.2]})
    assert filter_rows(table, f"start={at}")["start_ns"].tolist() == [at]
    assert filter_rows(table, f"start={at}..{at + 1}")["start_ns"].tolist() == [at, at + 1]
    assert not len(filter_rows(table, f"start>{10**30}"))
    assert len(filter_rows(table, f"start<{10**30}")) == 3
    assert filter_rows(table, "share=1.5%")["share"].tolist() == [0.015]
    assert filter_rows(table, "share>0.1")["share"].tolist() == [0.2]


def test_names_are_filtered_as_recorded_and_as_tables_show_them() -> None:
    names = ["Optimizer.step#AdamW.step", "autograd::engine::evaluate_function: MulBackward0", "mm"]
    table = Table({"op": names})
    for conditions in ("op=AdamW.step", f"op={names[0]}", "op=Adam*", "op~^AdamW"):
        assert filter_rows(table, conditions)["op"].tolist() == names[:1]
    assert filter_rows(table, "op=autograd: *")["op"].tolist() == names[1:2]
    assert filter_rows(table, "op!=AdamW.step")["op"].tolist() == names[1:]


def test_times_are_read_to_the_nearest_nanosecond() -> None:
    assert [parse_time_ns(text) for text in ("0", "0.6ns", "1.0007us", " 2 ms")] == [
        0,
        1,
        1001,
        2_000_000,
    ]
    with pytest.raises(ValueError, match="has no unit: write 7s, 7ms, 7us or 7ns"):
        parse_time_ns("7")
    for text in ("-3", "5%", "1.5h", ""):
        with pytest.raises(ValueError, match="is no time"):
            parse_time_ns(text)


@pytest.mark.slow
def test_the_median_of_kernels_has_one_name(three_steps: Path) -> None:
    every = [*rows(three_steps, "--by", "kernel", "--columns", "all")[0]]
    assert ("median_ns" in every, "p50_ns" in every) == (True, False)
    assert "p50_ns" in rows(three_steps, "--by", "op-kernel", "--columns", "all")[0]


@pytest.mark.slow
@pytest.mark.parametrize(("by", "figure"), [("wait", "total"), ("api", "count"), ("op", "calls"), ("kind", "count")])  # fmt: skip
def test_times_that_go_together_are_what_both_have(by: str, figure: str, three_steps: Path) -> None:
    """In either order: the last two steps, as far as the clock says."""
    joined = package.load(three_steps)
    cut = {"last_ns": 1_600}  # in the second step, after it waited
    one, other = joined.within(steps=(1, 2)), joined.within(**cut)
    both = one.within(**cut).by(by, columns=figure)
    pd.testing.assert_frame_equal(both, other.within(steps=(1, 2)).by(by, columns=figure))
    sums = [table.iloc[:, -1].sum() for table in (both, one.by(by, columns=figure), other.by(by, columns=figure))]  # fmt: skip
    assert 0 < sums[0] < min(sums[1:])


# -- work outside of ranges, and directions


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/gtls-no-nvtx.sqlite"))
def test_rows_of_work_outside_ranges_have_its_causes_too(path: Path) -> None:
    joined = package.load(path)
    [row] = joined.by("process", columns="launch_gap,starved,queue,bound").to_dict("records")
    [gpu] = joined.by("device").to_dict("records")  # idle before its first work is of no op
    between = gpu["span_ns"] - gpu["busy_ns"]
    assert 0 < row["launch_gap_ns"] + row["starved_ns"] == between < gpu["idle_ns"]
    assert row["queue_ns"] > 0
    assert row["bound"] == "GPU"


@pytest.mark.slow
def test_communication_outside_ranges_is_in_their_rows_too(tmp_path: Path) -> None:
    made = Made()
    made.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 10, 100, 20, 50)
    made.kernel("gemm", 15, 100, 40, 60)
    [row] = rows(
        made.written(tmp_path / "r.sqlite"), "--by", "process", "--columns", "communication"
    )
    assert (row["gpu_self_ns"], row["communication_ns"], row["exposed_ns"]) == (50, 30, 20)


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/pytorch-backward.sqlite"))
def test_shares_and_calls_of_two_directions_are_the_whole(path: Path) -> None:
    joined = package.load(path)
    both = [joined.attributed.only(way) for way in ("forward", "backward")]
    shares = [breakdown(one, ["report"], ["cpu_share"])["cpu_share"].sum() for one in both]
    assert sum(shares) == pytest.approx(1)
    assert min(shares) > 0
    calls = [breakdown(one, ["api"], ["count"])["count"].sum() for one in both]
    inside = (joined.attributed.launch_node >= 0).sum()
    assert sum(calls) == inside
    assert min(calls) > 0


@pytest.mark.slow
def test_a_range_of_no_length_has_a_direction_by_its_name(tmp_path: Path) -> None:
    made = Made()
    for at, name in ((100, "loss.backward"), (200, "relu")):
        made.annotation(PUSH_POP, at, at, text=name, thread=thread(100))
    path = made.written(tmp_path / "r.sqlite")
    told = {row["op"]: row["direction"] for row in rows(path, "--by", "op,direction")}
    assert told == {"loss.backward": "backward", "relu": "forward"}
    [row] = rows(path, "--by", "path", "--direction", "backward")
    assert (row["path"], row["calls"]) == ("loss.backward", 1)


@pytest.mark.slow
def test_a_direction_goes_with_what_it_is_said_to(three_steps: Path) -> None:
    said = bridge(
        "report", three_steps, "--by", "step", "--direction", "forward"
    ).stderr.splitlines()[-1]
    named = said.partition("--by ")[2].partition(", or several")[0].split(", ")
    for by in [*VIEWS, *DIMENSIONS]:
        assert (bridge("report", three_steps, "--by", by, "--direction", "forward").exit_code == 0) == (by in named)  # fmt: skip
    assert rows(three_steps, "--by", "op,step", "--direction", "forward")


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/vector-add.sqlite"))
def test_gaps_know_the_steps_that_are_found_by_repetition(path: Path) -> None:
    every = rows(path, "--by", "gap", "--idle-over", "0")
    told = [row for row in every if row["step"] == 2]
    assert told
    assert rows(path, "--by", "gap", "--idle-over", "0", "--filter", "step=2") == told


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports("nsys/vector-add.sqlite"))
def test_gaps_of_a_step_are_those_while_its_host_and_its_work_ran(path: Path) -> None:
    """The host is ahead of the GPU: that has gaps of the steps before while the host is in this step."""
    first, last = 1_453_642_074, 1_507_631_583  # the step begins on the host, its last work ends
    every = rows(path, "--by", "gap", "--idle-over", "0")
    within = [row for row in every if first <= row["start_ns"] < last]
    assert {row["step"] for row in within} == {0, 1, 2}
    assert rows(path, "--by", "gap", "--idle-over", "0", "--step", "2") == within


@pytest.mark.slow
def test_kernels_go_by_the_names_that_are_asked_for(three_steps: Path) -> None:
    for words in (["--by", "kernel"], ["--by", "stream,kernel"], ["--by", "op,kernel"]):
        found = {row["kernel"] for row in rows(three_steps, *words, "--kernel-names", "demangled")}
        assert "void gemm_kernel<float>(float *)" in found
        found = {row["kernel"] for row in rows(three_steps, *words, "--kernel-names", "mangled")}
        assert "_Z11gemm_kernelPfE" in found


# -- in terminals


SHOWN = [(by, "") for by in (*VIEWS, *DIMENSIONS)]
SHOWN += [("op", "all"), ("stream", "all"), ("op,shape", "causes"), ("api", "all"), ("thread", "all")]  # fmt: skip
SHOWN += [("kernel,geometry", ""), ("op,path,module,shape,dtype", ""), ("thread,stream", "")]


@pytest.mark.slow
@pytest.mark.parametrize(("by", "columns"), SHOWN)
def test_no_figure_is_cut(by: str, columns: str, three_steps: Path) -> None:
    joined = package.load(three_steps)
    table = Table.of(joined.by(by, columns=columns))
    by, every = joined.layout(by), bool(columns)
    for width in (60, 80, 200):
        look = Look(width)
        cells = tables._cells(displayed(by, table, every=every), table, look)
        whole = {column: tables._width(column, texts) for column, texts in cells.items()}
        figures = [s for s in tables._fitting_columns(whole, width) if not s.is_name]
        first, _, *lines = tables.for_terminal(by, table, look, every=every).splitlines()
        assert cell_len(first) <= width
        for nth in range(len(table)):
            assert cell_len(lines[nth]) <= width
            assert all(cells[s][nth] in lines[nth] for s in figures), (width, lines[nth])
        assert all(s.heading in first for s in figures), (width, first)


def test_figures_that_a_narrow_terminal_has_no_room_for_are_said_to_be_left_out() -> None:
    names = {name: ["n" * 30] * 2 for name in ("op", "shape", "dtype")}
    figures = dict.fromkeys(COLUMNS["op"].default[1:], [10**9 - 1] * 2)
    table = Table(names | figures | {"share": [0.1, 0.2]})
    narrow = tables.for_terminal("ranges", table, Look(60)).splitlines()
    assert "GPU self" in narrow[0]
    assert "GPU total" not in narrow[0]
    assert re.match(r"\d+ more columns: wider window$", narrow[-1])
    assert "more" not in tables.for_terminal("ranges", table, Look(300))


def test_a_row_of_very_many_names_is_longer_than_a_narrow_terminal() -> None:
    table = Table({f"name {n}": ["x" * 40] for n in range(14)} | {"total_ns": [123_456]})
    _, _, line, *_ = tables.for_terminal("", table, Look(60)).splitlines()
    assert "123.456 µs" in line
    assert line.count("…") == 14


def test_what_is_not_known_is_shown_in_no_unit() -> None:
    table = Table({"collective": ["a", "b"], "wait_ns": [-1, 2_000], "shared_bytes": [-1, 8]})
    for form in (lambda: tables.for_terminal("", table, Look(80, unit="us")), lambda: tables.as_markdown("", table, "us")):  # fmt: skip
        assert "2.000 us" in form()
        assert "-" not in form().replace("---", "")
