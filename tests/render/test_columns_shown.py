"""Which columns people get: none that says nothing, none that tells no rows apart, and no -1."""

import pytest

from bridge.analyze.core.catalog import TABLES
from bridge.analyze.core.table import Table
from bridge.render import table
from bridge.render.table import Look
from bridge.render.table_columns import displayed as shown
from bridge.render.table_columns import figure, writer

ROLES = "kernel memcpy memset communication runtime dataloader cpu other".split()


def steps(**columns):
    """Two steps of one process, whose time went on kernels and calls alone."""
    rows = {
        "step": [0, 1],
        "pid": [7, 7],
        "wall_ns": [10, 20],
        **{f"{r}_ns": [0, 0] for r in ROLES},
    }
    rows |= {"kernel_ns": [8, 15], "runtime_ns": [2, 5], "between_ns": [0, 0]}
    return Table(rows | {"change": [-0.0002, 0.5], "state": ["", ""]} | columns)


def headed(by, rows):
    return [s.heading for s in shown(by, rows)]


def test_a_role_that_no_step_had_makes_room_for_those_that_some_had():
    assert headed(
        "step", steps()
    ) == "step,pid,wall,kernels,API calls,since last,change,state".split(",")
    heads = headed("step", steps(communication_ns=[0, 3], memset_ns=[0, 1]))
    assert "communication" in heads
    assert "memsets" in heads
    narrow = table.for_terminal("step", steps(runtime_ns=[0, 5]), Look(80)).splitlines()
    assert "API calls" in narrow[0]


def test_rows_of_several_processes_or_files_say_whose_they_are():
    heads = headed("step", steps(report=["a.sqlite", "b.sqlite"]))
    assert "report" in heads
    assert "a.sqlite" in table.for_terminal(
        "step", steps(report=["a.sqlite", "b.sqlite"]), Look(80)
    )


def launches(**columns):
    rows = {"kernel": ["k", "k"], "api": ["cudaLaunchKernel"] * 2, "pid": [7, 7], "tid": [7, 9],
            "device": [0, 0], "count": [5, 2], "total_ns": [9, 8], "api_mean_ns": [1.0, 1.0],
            "queue_count": [1, 0], "queue_mean_ns": [2.0, 0.0], "queue_max_ns": [2, -1],
            "kernel_mean_ns": [3.0, 3.0], "total_mean_ns": [6.0, 6.0]}  # fmt: skip
    return Table(rows | columns)


def test_launches_of_several_threads_and_gpus_are_told_apart():
    heads = headed("launch", launches())
    assert "thread" in heads
    assert not {"GPU", "pid"} & set(heads)
    assert {"GPU", "pid"} <= set(headed("launch", launches(pid=[7, 8], device=[0, 1])))


NARROW, WIDE = 50, 300
OF_A_DIFF = "calls activities before_ns after_ns diff_ns change step_ratio share p state"
OF_A_SUMMARY = "peak_bytes peak_ns end_bytes allocations releases allocated_bytes released_bytes"


def diff():
    texts = {name: ["1", "2"] for name in OF_A_DIFF.split()}
    return Table({"op": ["mm", "an op with a long name"], **texts})


def summaries():
    """Two processes that use the same GPU."""
    figures = {name: [5, 7] for name in OF_A_SUMMARY.split()}
    return Table({"pid": [7, 8], "device": [0, 0], "memory": ["device"] * 2, **figures})


def allocations():
    times = {"start_ns": [0, 1], "end_ns": [5, 6], "lifetime_ns": [5, 5], "address": [1 << 40] * 2}
    texts = {"state": ["released"] * 2, "released_by": ["free"] * 2, "name": ["a_variable", "b"]}
    return Table({"op": ["an op with a long name"] * 2, "bytes": [4, 8], **times, **texts})


@pytest.mark.parametrize(
    ("by", "rows", "heading"),
    [
        ("diff", diff(), "p"),
        ("launch", launches(kernel=["k" * 30, "l"], device=[0, 1]), "GPU"),
        ("memory summary", summaries(), "pid"),
        ("memory allocation", allocations(), "name"),
    ],
)
def test_what_tells_little_is_shown_only_where_there_is_room(by, rows, heading):
    narrow, wide = (
        table.for_terminal(by, rows, Look(width)).splitlines()[0].split()
        for width in (NARROW, WIDE)
    )
    assert heading not in narrow
    assert heading in wide


def test_figures_that_a_table_always_has_give_way_to_metrics_that_were_asked_for():
    rows = {"kernel": ["gemm"], "count": [2], "total_ns": [9], "share": [1.0], "mean_ns": [4.5]}
    rows |= {"median_ns": [4], "min_ns": [4], "max_ns": [5], "sm_busy": [62.5]}
    usual = Table(rows)
    asked = Table(rows)
    asked.attrs["units"] = {"sm_busy": "%"}
    always = [[s.name for s in shown("kernel", one) if not s.optional] for one in (usual, asked)]
    assert always == [
        ["kernel", "count", "total_ns", "share", "mean_ns", "sm_busy"],
        ["kernel", "total_ns", "sm_busy"],
    ]


@pytest.mark.parametrize("by", ["launch", ""])
def test_what_is_not_known_is_left_empty(by):
    text = table.for_terminal(by, launches(), Look(200))
    assert "2 ns" in text
    assert "-1" not in text


UNKNOWN = sorted({column.name for of in TABLES.values() for column in of.columns if column.missing})


@pytest.mark.parametrize("name", UNKNOWN)
def test_no_table_writes_what_is_not_known(name):
    assert figure(name, -1) == figure(name, -1.0) == ""
    assert figure(name, 0.25) not in ("", "-1")
    writers = [writer(of.by_name[name]) for of in TABLES.values() if name in of.by_name]
    asked = [write for write, of in zip(writers, (of for of in TABLES.values() if name in of.by_name), strict=True) if of.by_name[name].missing]  # fmt: skip
    assert asked
    assert all(write(-1) == "" for write in asked)


def test_columns_asked_for_by_name_have_the_units_of_their_table():
    rows = Table({"device": ["GPU 0"], "sm_efficiency": [0.5], "occupancy": [0.25],
                         "bus_gb_per_s": [3.0], "change": [0.125]})  # fmt: skip
    text = table.for_terminal("", rows, Look(200))
    assert all(said in text for said in ("50.0 %", "25.0 %", "3.0 GB/s", "+12.5 %"))


def test_next_to_no_change_has_no_sign_of_a_loss():
    assert "-0.0 %" not in table.for_terminal("step", steps(), Look(200))


def test_an_empty_table_keeps_its_columns():
    assert len(shown("step", steps().head(0))) == len(
        [s for s in TABLES["step"].displayed if s.name not in {"report", "loop"}]
    )


def test_a_number_that_no_row_knows_makes_room():
    rows = {"gap_ns": [5, 7], "cause": ["host", ""], "device": ["GPU 0"] * 2, "start_ns": [1, 9]}
    assert "step" in headed("gap", Table(rows | {"step": [-1, 3]}))
    assert "step" not in headed("gap", Table(rows | {"step": [-1, -1]}))
    assert "call" not in headed("gap", Table(rows | {"call": ["", ""], "step": [-1, 3]}))
