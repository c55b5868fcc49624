"""Causes that were worked out by hand: of a few calls and kernels, and of a gap in a real profile."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from join.programs import Program
from witness.attribution import Activity, Call, Range

import bridge.report
from bridge.analyze.core.time_range import select_by_clock
from bridge.analyze.run.account import runs
from bridge.analyze.run.causes import causes, queue_times
from bridge.analyze.run.causes.gaps import gaps_between_work
from bridge.analyze.run.causes.host_timeline import WORDS, bound
from bridge.analyze.run.idle.causes import WORDS as CAUSES
from bridge.analyze.run.idle.causes import causes_of, find_causes
from bridge.analyze.run.idle.tables import by_gap, by_idle, gap_table
from bridge.analyze.tables.host import by_launch
from causes.histories import Made, made

P = 7 << 24
MAIN, OTHER = P | 1, P | 2
WAYS = {"copy to device": 1, "copy to host": 2}


def opened(start, end, op, thread=MAIN):
    return Range(0, P, thread, start, end, op)


class Scene:
    """A program in the making, on one GPU unless told otherwise."""

    def __init__(self, *ranges):
        self.ranges, self.calls, self.ran = list(ranges), [], []
        self.named, self.devices, self.ways = [], [], []

    def call(self, name, start, end, *times, thread=MAIN, kind="kernel", device=0):
        """Add an API call and what it launched, from when to when."""
        number = len(self.calls) + 1
        self.calls.append(Call(0, P, thread, number, start, end))
        self.named.append(name)
        for begin, done in times:
            what = "memcpy" if kind in WAYS else kind
            self.ran.append(Activity(0, P, number, begin, done, what, f"{kind} of {name}", 8))
            self.devices.append(device)
            self.ways.append(WAYS.get(kind, -1))

    def launch(self, start, end, *times, **more):
        self.call("cudaLaunchKernel", start, end, *times, **more)

    @property
    def joined(self):
        return self.made.attributed()

    @property
    def adopting(self):
        return self.made.attributed(adopt=True)

    @property
    def made(self):
        program = Program(self.ranges, self.calls, self.ran, [one.op for one in self.ranges])
        made_of = tuple(self.named), tuple(self.devices), tuple(self.ways)
        return Made(program, *made_of)

    @property
    def ops(self):
        joined = self.joined
        table = causes(joined, joined.node_op, len(joined.ops))
        return {
            op: {c: column[code] for c, column in table.items()}
            for code, op in enumerate(joined.ops)
        }

    def parts(self, over=0):
        return parts_of(self.joined, over)


def between_work(joined, over=0):
    """Return the gaps between two activities, as `by_gap` lists all."""
    return gap_table(joined, gaps_between_work(joined, over))


def parts_of(joined, over):
    """Return what each gap consists of: cause, op and ns."""
    found = causes_of(joined, gaps_between_work(joined, over))
    names = [*joined.ops, ""]
    told = zip(found.gap, found.cause, found.op, found.length, strict=True)
    parts = [[] for _ in range(len(found.gaps))]
    for gap, cause, op, ns in told:
        parts[gap].append((CAUSES[cause], names[op], int(ns)))
    return parts


@pytest.mark.slow
def test_own_time_is_parted_by_calls():
    """Nested calls count once, waits before all; what lies in an inner range is not the outer one's."""
    scene = Scene(opened(0, 100, "outer"), opened(50, 80, "inner"))
    scene.launch(10, 20)
    scene.call("cudaMemcpy", 30, 45)
    scene.call("cuMemcpyHtoD_v2", 32, 40)
    scene.call("cudaMalloc", 48, 60)
    scene.call("cudaStreamSynchronize", 75, 90)
    outer, inner = (scene.ops[op] for op in ("outer", "inner"))
    assert [outer[c] for c in ("host_ns", "api_ns", "sync_ns")] == [33, 12, 25]
    assert [inner[c] for c in ("host_ns", "api_ns", "sync_ns")] == [15, 10, 5]


@pytest.mark.slow
def test_a_copy_to_the_host_that_blocks_is_a_wait():
    """An asynchronous one whose call returned only after it had ended: of one to the device that says nothing."""
    for name, way, done, waits in (
        ("cudaMemcpyAsync", "copy to host", 30, True),
        ("cudaMemcpyAsync", "copy to host", 31, False),
        ("cudaMemcpyAsync", "copy to device", 20, False),
        ("cudaGraphLaunch", "copy to host", 20, False),
    ):
        scene = Scene(opened(0, 100, "op"))
        scene.call(name, 10, 30, (15, done), kind=way)
        assert scene.ops["op"]["sync_ns"] == (20 if waits else 0)


@pytest.mark.slow
def test_a_gap_is_parted_by_what_the_host_did():
    scene = Scene(
        opened(0, 95, "step"),
        opened(12, 30, "data loading"),
        opened(14, 20, "decode"),
        opened(50, 60, "aten::mm"),
    )
    scene.launch(0, 5, (5, 10))
    scene.call("cudaStreamSynchronize", 32, 36)
    scene.call("cudaMalloc", 40, 43)
    scene.launch(52, 56, (60, 70))
    assert scene.parts() == [
        [
            ("host code", "step", 2 + 2 + 4 + 7),
            ("host code", "aten::mm", 2 + 4),
            ("other CUDA calls", "step", 3),
            ("launch latency", "aten::mm", 4),
            ("data loading", "data loading", 18),
            ("synchronization", "step", 4),
        ]
    ]
    [row] = between_work(scene.joined).to_dict("records")
    assert (row["cause"], row["cause_ns"]) == ("host code", 21)
    assert (row["start_ns"], row["gap_ns"], row["op"]) == (10, 50, "step")
    assert (row["ended_by"], row["kernel"]) == ("aten::mm", "kernel of cudaLaunchKernel")
    assert scene.ops["aten::mm"]["launch_gap_ns"] == 28
    assert scene.ops["aten::mm"]["starved_ns"] == 22


def test_another_thread_is_asked_only_where_the_first_has_nothing_open():
    scene = Scene(opened(0, 40, "main"), opened(30, 60, "other", OTHER))
    scene.launch(0, 5, (5, 10))
    scene.launch(46, 48, (50, 60), thread=OTHER)
    assert scene.parts() == [
        [("host code", "main", 20), ("host code", "other", 18), ("launch latency", "other", 2)]
    ]


@pytest.mark.slow
def test_a_range_of_another_thread_that_adopts_has_neither_time_nor_gap_of_what_it_adopts():
    """Which thread was in what is told by what was open on that thread alone."""
    scene = Scene(opened(0, 90, "waits"), opened(10, 30, "works", OTHER))
    scene.launch(1, 3, (4, 6))
    scene.launch(12, 14, (15, 16), thread=OTHER)
    scene.call("cudaMalloc", 40, 44, thread=OTHER)
    scene.launch(50, 54, (56, 60), thread=OTHER)
    scene.launch(92, 93, (94, 95))
    alone, adopted = scene.joined, scene.adopting
    assert adopted.attribution.nesting.parent.tolist() == [-1, 0]
    assert adopted.activity_op.tolist() == [0, 1, 0, -1]
    for joined in (alone, adopted):
        table = causes(joined, joined.node_op, 2)
        assert [table[c].tolist() for c in ("host_ns", "api_ns")] == [[88, 18], [2, 2]]
    assert parts_of(adopted, 0)[1] == [
        ("host code", "works", 14),
        ("launch calls", "", 4),
        ("other CUDA calls", "", 4),
        ("launch latency", "waits", 2),
        ("host code outside ops", "", 16),
    ]
    table = causes(adopted, adopted.node_op, 2)
    assert [table[c].tolist() for c in ("launch_gap_ns", "starved_ns")] == [
        [14 + 4 + 4 + 2, 9],
        [16, 0],
    ]


def test_data_is_loaded_by_the_thread_that_loads():
    """Not by one that waits for it, whose range may load data too."""
    scene = Scene(opened(0, 90, "data loading"), opened(10, 30, "data loader", OTHER))
    scene.launch(1, 3, (4, 6))
    scene.launch(12, 14, (15, 16), thread=OTHER)
    scene.launch(26, 28, (28, 29), thread=OTHER)
    scene.launch(92, 93, (94, 95))
    joined = scene.adopting
    assert joined.attribution.nesting.parent.tolist() == [-1, 0]
    assert parts_of(joined, 0)[1] == [("data loading", "data loader", 12)]


def test_of_ops_that_took_as_long_the_first_is_named():
    scene = Scene(opened(10, 15, "b"), opened(15, 20, "a"), opened(20, 25, "c"))
    scene.launch(0, 5, (5, 10))
    scene.call("cudaMalloc", 25, 30)
    scene.launch(29, 30, (30, 31))
    [row] = between_work(scene.joined).to_dict("records")
    assert (row["cause"], row["cause_ns"], row["op"]) == ("host code", 15, "b")


def test_of_causes_that_took_as_long_the_first_listed_counts():
    scene = Scene(opened(20, 30, "a"))
    scene.launch(0, 5, (5, 10))
    scene.launch(29, 30, (30, 31))
    [row] = between_work(scene.joined).to_dict("records")
    assert (row["cause"], row["cause_ns"]) == ("host code", 10)


def test_a_kernel_that_began_as_its_call_returned_was_queued_for_no_time():
    scene = Scene()
    scene.launch(0, 5, (4, 6), (5, 6), (9, 12))
    [row] = by_launch(scene.joined).to_dict("records")
    assert [row[c] for c in ("count", "queue_count", "queue_ns", "queue_min_ns")] == [3, 2, 4, 0]
    assert queue_times(scene.joined).tolist() == [0, 0, 4]


def test_what_ends_before_it_starts_has_no_queue_and_ends_no_gap():
    scene = Scene(opened(0, 50, "a"))
    scene.launch(0, 5, (5, 10), (20, 15), (30, 0), (40, 41))
    assert between_work(scene.joined)["gap_ns"].tolist() == [30]
    assert queue_times(scene.joined).tolist() == [0, 0, 0, 35]
    assert scene.ops["a"]["queue_ns"] == 35


def test_where_nothing_is_open_the_gap_is_of_no_op():
    scene = Scene()
    scene.launch(0, 5, (5, 10))
    scene.launch(20, 24, (30, 40))
    scene.ran.append(Activity(0, P, 99, 45, 50, "kernel", "lost", 8))
    scene.devices.append(0)
    scene.ways.append(-1)
    assert scene.parts() == [
        [("launch calls", "", 4), ("launch latency", "", 6), ("host code outside ops", "", 10)],
        [("unknown", "", 5)],
    ]
    assert between_work(scene.joined)["ended_by"].tolist() == ["kernel of cudaLaunchKernel", "lost"]


def test_work_that_was_launched_before_the_gap_is_late():
    """It waited for something on the device, or for the device itself."""
    scene = Scene(opened(0, 50, "op"))
    scene.launch(0, 2, (5, 10))
    scene.launch(2, 4, (18, 20))
    assert scene.parts() == [[("launch latency", "op", 8)]]


def test_gpus_are_idle_apart():
    scene = Scene(opened(0, 100, "op"))
    scene.launch(0, 5, (5, 10), (20, 30))
    scene.launch(6, 8, (12, 18), (40, 41), device=1)
    assert sorted(between_work(scene.joined)["gap_ns"]) == [10, 22]
    assert between_work(scene.joined, 10)["gap_ns"].tolist() == [22]  # longer than, not as long as
    assert by_idle(scene.joined, 10)["share"].sum() == pytest.approx(1)


def test_overlapping_work_ends_no_gap_and_the_longest_begins_it():
    scene = Scene(opened(0, 10, "a"), opened(20, 40, "b"))
    scene.launch(0, 5, (5, 30))
    scene.launch(5, 6, (8, 20), thread=OTHER)
    scene.launch(31, 33, (36, 40), (36, 50))
    joined = scene.joined
    assert [joined.ops[op] for op in joined.activity_op.tolist() if op >= 0].count("b") == 2
    [gap] = between_work(joined).to_dict("records")
    assert (gap["start_ns"], gap["gap_ns"]) == (30, 6)
    found = gaps_between_work(joined)
    assert (found.ended_by.tolist(), found.before.tolist()) == ([2], [0])


FIGURES = dict.fromkeys("host_ns api_ns sync_ns launch_gap_ns starved_ns".split(), 0)


@pytest.mark.parametrize(
    ("word", "kernels", "copies", "times"),
    [
        ("GPU", 100, 0, {"host_ns": 900, "launch_gap_ns": 99, "starved_ns": 99}),
        ("GPU", 100, 100, {"launch_gap_ns": 100, "starved_ns": 100}),
        ("GPU", 100, 5, {"sync_ns": 110, "host_ns": 9}),  # it waits for its own kernels
        ("sync", 100, 5, {"sync_ns": 206, "host_ns": 9}),  # and for others'
        ("GPU", 100, 5, {"sync_ns": 206, "host_ns": 200, "api_ns": 6}),
        ("sync", 100, 5, {"sync_ns": 206, "host_ns": 200, "api_ns": 5}),
        ("memcpy", 4, 5, {"sync_ns": 6}),
        ("memcpy", 0, 100, {"sync_ns": 110}),  # as a copy that blocks
        ("launch", 4, 5, {"launch_gap_ns": 6, "starved_ns": 6}),
        ("launch", 0, 0, {"launch_gap_ns": 6, "sync_ns": 6, "starved_ns": 6}),
        ("sync", 0, 0, {"sync_ns": 6, "starved_ns": 6}),
        ("starved", 4, 5, {"launch_gap_ns": 6, "starved_ns": 7}),
        ("sync", 0, 0, {"sync_ns": 7, "host_ns": 4, "api_ns": 2}),
        ("host", 0, 0, {"sync_ns": 7, "host_ns": 4, "api_ns": 3}),
        ("host", 0, 0, {}),
    ],
)
def test_what_an_op_is_bound_by(word, kernels, copies, times):
    columns = {c: np.array([ns]) for c, ns in (FIGURES | times).items()}
    said = bound(np.array([kernels]), np.array([copies]), columns)
    assert said.tolist() == [word]
    assert word in WORDS


@pytest.mark.slow
@given(made())
def test_groups_may_be_any(of):
    """Two groups of all ranges have what all of them have; what has no group is left out."""
    joined = of.attributed()
    nodes = len(joined.attribution.nesting)
    whole = causes(joined, np.zeros(nodes, np.int64), 1)
    parted = causes(joined, np.arange(nodes) % 2, 2)
    nothing = causes(joined, np.full(nodes, -1), 1)
    directions = [
        causes(joined.only(way), np.zeros(nodes, np.int64), 1) for way in ("forward", "backward")
    ]
    for column in whole:
        if column != "bound":
            assert whole[column][0] == parted[column].sum() == sum(d[column][0] for d in directions)
            assert nothing[column].tolist() == [0]
    assert nothing["bound"].tolist() == ["host"]


@pytest.mark.slow
@given(made(), st.integers(1, 60))
def test_windows_of_time_share_the_idle_time_and_the_launches(of, cut):
    joined = of.attributed()
    cut = cut * max(1, runs(joined)[0].length_ns) // 60 if runs(joined) else cut
    parts = [joined.within(select_by_clock(joined, *edges)) for edges in ((None, cut), (cut, None))]
    whole, *idle = (by_gap(one, 0).groupby("device")["gap_ns"].sum() for one in (joined, *parts))
    used = [set(texts_of_gpus(part)) for part in parts]
    for gpu in used[0] & used[1]:
        assert idle[0].get(gpu, 0) + idle[1].get(gpu, 0) == whole.get(gpu, 0)
    assert sum(by_launch(part)["count"].sum() for part in parts) >= by_launch(joined)["count"].sum()


def texts_of_gpus(joined):
    return [gpu.device for run in runs(joined) for gpu in run.gpus]


def test_the_run_before_the_first_work_and_behind_the_last_is_idle_time():
    scene = Scene(opened(0, 100, "setup"), opened(100, 130, "step"), opened(130, 200, "teardown"))
    scene.call("cudaMalloc", 20, 90)
    scene.launch(101, 105, (104, 120))
    scene.call("cudaFree", 140, 190)
    table = by_idle(scene.joined).set_index(["cause", "op"])["total_ns"].to_dict()
    assert table == {
        ("host code", "setup"): 30,
        ("other CUDA calls", "setup"): 70,
        ("host code", "step"): 4 + 10,
        ("host code", "teardown"): 20,
        ("other CUDA calls", "teardown"): 50,
    }
    [run] = runs(scene.joined)
    assert run.gpus[0].idle_ns == 200 - 16 == sum(table.values())
    first, last = by_gap(scene.joined, 0).to_dict("records")
    assert (first["ended_by"], last["ended_by"]) == ("step", "")


def test_reports_share_no_clock():
    scene = Scene(opened(0, 100, "op"))
    scene.launch(0, 5, (5, 10), (20, 30))
    scene.ran[1] = replace(scene.ran[1], report=1)
    assert scene.parts() == []


@pytest.mark.slow
def test_a_gap_of_a_real_training(corpus):
    """Worked out with `sqlite3`."""
    joined = bridge.report.load(corpus / "nsys" / "mnist-training.sqlite")
    found = find_causes(joined.attributed)
    at = np.flatnonzero(found.gaps.start == 6217566194)
    assert found.gaps.length[at].tolist() == [151102830]
    parts = found.gap == at[0]
    names = [*joined.attributed.ops, ""]
    columns = (column[parts].tolist() for column in (found.cause, found.op, found.length))
    assert {(CAUSES[cause], names[op]): ns for cause, op, ns in zip(*columns, strict=True)} == {
        ("data loading", "Data loading"): 6368432834 - 6217566194,
        ("host code", "Train"): 6368438326 - 6368432834,
        ("host code", "Batch 23"): 6368439909 - 6368438326,
        ("host code", "Copy to device"): 6368445521 - 6368439909,
        ("host code", "aten::to"): 6368462366 - 6368445521,
        ("host code", "aten::_to_copy"): 6368465783 - 6368462366 + 6368485524 - 6368483861,
        ("host code", "aten::empty_strided"): 6368483861 - 6368465783,
        ("host code", "aten::copy_"): 6368494914 - 6368485524,
        ("memcpy calls", "aten::copy_"): 6368669024 - 6368494914,
    }
    table = joined.by("gap").set_index("start_ns").loc[6217566194]
    assert table[["cause", "cause_ns", "op", "step"]].tolist() == [
        "data loading",
        150866640,
        "Data loading",
        23,
    ]
