"""Causes that were worked out by hand: of a few calls and kernels, and of a gap in a real profile."""

from collections import Counter

import numpy as np
import pytest
from critical.records import Records, thread
from hypothesis import given
from hypothesis import strategies as st
from join.programs import Program
from witness.attribution import Activity, Call

import bridge.report
from bridge.analyze.core.time_range import select_by_clock
from bridge.analyze.run.account import runs
from bridge.analyze.run.causes import causes, queue_times
from bridge.analyze.run.causes.gaps import gaps_between_work, idle_gaps
from bridge.analyze.run.causes.host_timeline import WORDS, bound
from bridge.analyze.run.idle.causes import WORDS as CAUSES
from bridge.analyze.run.idle.causes import causes_of
from bridge.analyze.run.idle.tables import by_gap, by_idle, gap_table
from bridge.analyze.tables.host import by_launch
from bridge.importers import frames
from causes.histories import Made, made

MAIN, OTHER, RANK_1 = thread(0), thread(0, 2), thread(1)
US, MS = 1_000, 1_000_000
WAYS = {"copy to device": 1, "copy to host": 2}


def opened(start, end, op, on=MAIN):
    return on, start, end, op


class Scene:
    """A program in the making, on one thread and GPU unless told otherwise."""

    def __init__(self, *ranges):
        self.records = Records()
        for one in ranges:
            self.records.range(*one)

    def call(self, name, start, end, *times, on=MAIN, kind="kernel", device=0):
        """Add an API call and what it launched, from when to when."""
        number = self.records.call(on, start, end, name)
        for begin, done in times:
            what = {"kind": "memcpy" if kind in WAYS else kind, "copy_kind": WAYS.get(kind, -1)}
            where = {"process": on & ~frames.ID_BITS, "device": device, "context": device + 1}
            self.records.activity(number, begin, done, name=f"{kind} of {name}", **what, **where)

    def launch(self, start, end, *times, **more):
        self.call("cudaLaunchKernel", start, end, *times, **more)

    def system(self, name, start, end, on=MAIN):
        self.records.system.append({"thread": on, "start": start, "end": end, "name": name})

    @property
    def joined(self):
        return self.records.attributed()

    @property
    def adopting(self):
        return self.records.attributed(adopt=True)

    @property
    def ops(self):
        joined = self.joined
        table = causes(joined, joined.node_op, len(joined.ops))
        return {
            op: {c: column[code] for c, column in table.items()}
            for code, op in enumerate(joined.ops)
        }

    @property
    def parts(self):
        return parts_of(self.joined, gaps_between_work(self.joined))

    def idle(self, gpu=0):
        """Return the idle time of one GPU in the run by its causes; that of all GPUs is that of the account."""
        joined = self.joined
        gaps = idle_gaps(joined)
        assert gaps.length.sum() == sum(one.idle_ns for run in runs(joined) for one in run.gpus)
        assert by_idle(joined)["total_ns"].sum() == gaps.length.sum()
        parts = parts_of(joined, gaps.take(gaps.device == gpu))
        return dict(sum(map(Counter, parts), Counter()))


def between_work(joined, over=0):
    """Return the gaps between two activities, as `by_gap` lists all."""
    return gap_table(joined, gaps_between_work(joined, over))


def parts_of(joined, gaps):
    """Return the time of each cause in each gap, with the op and the call."""
    found = causes_of(joined, gaps)
    ops, calls = [*joined.ops, ""], [*found.callees, ""]
    parts = [{} for _ in range(len(gaps))]
    columns = (c.tolist() for c in (found.gap, found.cause, found.op, found.callee, found.length))
    for gap, cause, op, call, ns in zip(*columns, strict=True):
        parts[gap][", ".join(filter(None, (CAUSES[cause], ops[op], calls[call])))] = ns
    assert [sum(part.values()) for part in parts] == gaps.length.tolist()
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
    assert scene.parts == [
        {
            "data loading, data loading": 18,
            "synchronization, step, cudaStreamSynchronize": 4,
            "launch calls, aten::mm, cudaLaunchKernel": 4,
            "other CUDA calls, step, cudaMalloc": 3,
            "host code, step": 2 + 2 + 4 + 7,
            "host code, aten::mm": 2,
            "launch latency, aten::mm": 4,
        }
    ]
    [row] = between_work(scene.joined).records()
    assert (row["cause"], row["cause_ns"], row["call"]) == ("data loading", 18, "")
    assert (row["start_ns"], row["gap_ns"], row["op"]) == (10, 50, "data loading")
    assert (row["ended_by"], row["kernel"]) == ("aten::mm", "kernel of cudaLaunchKernel")
    assert scene.ops["aten::mm"]["launch_gap_ns"] == 28
    assert scene.ops["aten::mm"]["starved_ns"] == 22


CALL = frames.CALL_ID << frames.CALL_ID_SHIFT


def test_what_annotations_cost_is_no_host_code():
    """A range of a module that cost 8 ns took 2 of them on both sides of each of its ends, from host code alone."""
    scene = Scene(opened(0, 95, "step"))
    scene.records.range(MAIN, 50, 60, "aten::mm", payload=CALL + 1, category="module")
    scene.records.range(MAIN, 20, 30, "by hand", payload=CALL + 2)
    scene.launch(0, 5, (5, 10))
    scene.launch(52, 56, (60, 70))
    parts = {
        "launch calls, aten::mm, cudaLaunchKernel": 4,
        "host code, by hand": 10,
        "launch latency, aten::mm": 4,
    }
    assert scene.parts == [{"host code, step": 10 + 20, "host code, aten::mm": 2} | parts]
    scene.records.metadata["annotation_costs"] = {"7": 8, "8": 4}
    costs = {"annotations, step": 2, "annotations, aten::mm": 2}
    assert scene.parts == [{"host code, step": 10 + 18} | costs | parts]
    scene.records.metadata["annotation_costs"] = {"8": 8, "7": True}
    assert "annotations, step" not in scene.parts[0]


def test_before_its_first_event_a_thread_was_made_by_the_first_of_its_process():
    scene = Scene(opened(0, 40, "main"), opened(30, 60, "other", OTHER))
    scene.launch(0, 5, (5, 10))
    scene.launch(46, 48, (50, 60), on=OTHER)
    assert scene.parts == [
        {
            "launch calls, other, cudaLaunchKernel": 2,
            "host code, other": 46 - 30,
            "host code outside ops": 30 - 10,
            "launch latency, other": 2,
        }
    ]


@pytest.mark.slow
def test_a_range_of_another_thread_that_adopts_has_neither_time_nor_gap_of_what_it_adopts():
    """Which thread was in what is told by what was open on that thread alone."""
    scene = Scene(opened(0, 90, "waits"), opened(10, 30, "works", OTHER))
    scene.launch(1, 3, (4, 6))
    scene.launch(12, 14, (15, 16), on=OTHER)
    scene.call("cudaMalloc", 40, 44, on=OTHER)
    scene.launch(50, 54, (56, 60), on=OTHER)
    scene.launch(92, 93, (94, 95))
    alone, adopted = scene.joined, scene.adopting
    assert adopted.attribution.nesting.parent.tolist() == [-1, 0]
    assert adopted.activity_op.tolist() == [0, 1, 0, -1]
    for joined in (alone, adopted):
        table = causes(joined, joined.node_op, 2)
        assert [table[c].tolist() for c in ("host_ns", "api_ns")] == [[88, 18], [2, 2]]
    assert parts_of(adopted, gaps_between_work(adopted))[1] == {
        "launch calls, cudaLaunchKernel": 4,
        "other CUDA calls, cudaMalloc": 4,
        "host code, works": 14,
        "host code outside ops": 16,
        "launch latency, waits": 2,
    }
    table = causes(adopted, adopted.node_op, 2)
    assert [table[c].tolist() for c in ("launch_gap_ns", "starved_ns")] == [
        [14 + 4 + 4 + 2, 9],
        [16, 0],
    ]


def test_data_is_loaded_by_the_thread_that_loads():
    """Not by one that waits for it, whose range may load data too."""
    scene = Scene(opened(0, 90, "data loading"), opened(10, 30, "data loader", OTHER))
    scene.launch(1, 3, (4, 6))
    scene.launch(12, 14, (15, 16), on=OTHER)
    scene.launch(26, 28, (28, 29), on=OTHER)
    scene.launch(92, 93, (94, 95))
    joined = scene.adopting
    assert joined.attribution.nesting.parent.tolist() == [-1, 0]
    assert parts_of(joined, gaps_between_work(joined))[1] == {"data loading, data loader": 12}


def test_of_ops_that_took_as_long_the_first_is_named():
    scene = Scene(opened(10, 15, "b"), opened(15, 20, "a"), opened(20, 25, "c"))
    scene.launch(0, 5, (5, 10))
    scene.call("cudaMalloc", 25, 30)
    scene.launch(29, 30, (30, 31))
    [row] = between_work(scene.joined).records()
    assert (row["cause"], row["cause_ns"], row["op"]) == ("host code", 15, "b")


def test_of_causes_that_took_as_long_the_first_listed_counts():
    scene = Scene(opened(20, 31, "a"))
    scene.launch(0, 5, (5, 10))
    scene.launch(30, 31, (31, 32))
    [row] = between_work(scene.joined).records()
    assert (row["cause"], row["cause_ns"]) == ("host code", 10)


def test_a_kernel_that_began_as_its_call_returned_was_queued_for_no_time():
    scene = Scene()
    scene.launch(0, 5, (4, 6), (5, 6), (9, 12))
    [row] = by_launch(scene.joined).records()
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
    scene.records.activity(99, 45, 50, name="lost")
    assert scene.parts == [
        {"launch calls, cudaLaunchKernel": 4, "host code outside ops": 10, "launch latency": 6},
        {"unknown": 5},
    ]
    assert between_work(scene.joined)["ended_by"].tolist() == ["kernel of cudaLaunchKernel", "lost"]


def test_work_that_was_launched_before_the_gap_is_late():
    """It waited for something on the device, or for the device itself."""
    scene = Scene(opened(0, 50, "op"))
    scene.launch(0, 2, (5, 10))
    scene.launch(2, 4, (18, 20))
    assert scene.parts == [{"launch latency, op": 8}]


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
    scene.launch(5, 6, (8, 20), on=OTHER)
    scene.launch(31, 33, (36, 40), (36, 50))
    joined = scene.joined
    assert [joined.ops[op] for op in joined.activity_op.tolist() if op >= 0].count("b") == 2
    [gap] = between_work(joined).records()
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
    tables = [by_gap(one, 0).to_pandas() for one in (joined, *parts)]
    whole, *idle = (table.groupby("device")["gap_ns"].sum() for table in tables)
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
    assert scene.idle() == {
        "launch calls, step, cudaLaunchKernel": 104 - 101,  # it began before the call returned
        "other CUDA calls, setup, cudaMalloc": 70,
        "other CUDA calls, teardown, cudaFree": 50,
        "host code, setup": 20 + 10,
        "host code, step": 1 + 10,
        "host code, teardown": 20,
    }
    first, last = by_gap(scene.joined, 0).records()
    assert (first["ended_by"], last["ended_by"]) == ("step", "")


def test_reports_share_no_clock():
    ran = [Activity(n, 7 << 24, 1, 20 * n, 20 * n + 9, "kernel", "k", 8) for n in (0, 1)]
    program = Program([], [Call(0, 7 << 24, 7 << 24 | 1, 1, 0, 5)], ran, [])
    assert not len(
        gaps_between_work(Made(program, ("cudaLaunchKernel",), (0, 0), (-1, -1)).attributed())
    )


# -- The rows of the table of causes


def test_work_of_another_gpu_for_which_the_host_waits():
    scene = Scene(opened(0, 70, "step"))
    scene.launch(0, 5, (10, 50), device=1)
    scene.call("cudaStreamSynchronize", 6, 52)
    scene.launch(54, 57, (58, 60))
    assert scene.idle() == {
        "work elsewhere, step, GPU 1": 40,
        "synchronization, step, cudaStreamSynchronize": 2,
        "launch calls, step, cudaLaunchKernel": 5 + 3,
        "host code, step": 2 + 10,
        "launch latency, step": 5 + 1,
    }


def test_a_wait_while_data_is_loaded_says_more_than_the_latency_for_which_it_waits():
    """Until the last of two streams ended: the first ended earlier."""
    scene = Scene(opened(10, 45, "data loading"))
    for start, end, stream in ((4, 12, 9), (25, 30, 8)):
        scene.launch(start % 21, 8, (start, end), device=1)
        scene.records.activities[-1]["stream"] = stream
    scene.call("cudaDeviceSynchronize", 10, 40)
    scene.launch(54, 57, (58, 60))
    assert scene.idle() == {
        "work elsewhere, GPU 1": 5,
        "data loading, data loading": 15 + 15,
        "launch calls, cudaLaunchKernel": 4 + 3,
        "host code outside ops": 9,
        "launch latency": 2 + 1,
    }


@pytest.mark.parametrize("cause", ["profiler", "Python's lock"])
def test_what_was_recorded_of_a_thread_counts_while_it_waits_for_work_that_has_not_begun(cause):
    scene = Scene(opened(0, 60, "step"))
    scene.launch(0, 5, (25, 30), device=1)
    scene.call("cudaStreamSynchronize", 10, 40)
    for start, end in ((12, 20), (35, 38)):
        if cause == "profiler":
            scene.records.overhead.append({"thread": MAIN, "start": start, "end": end, "name": "f"})
        else:
            scene.records.range(MAIN, start, end, "Waiting for GIL", "GIL Trace")
    scene.launch(54, 57, (57, 60))
    assert scene.idle() == {
        "work elsewhere, step, GPU 1": 5,
        f"{cause}, step": 8 + 3,
        "synchronization, step, cudaStreamSynchronize": 10 - 3,
        "launch calls, step, cudaLaunchKernel": 5 + 3,
        "host code, step": 14,
        "launch latency, step": 20 - 8,
    }


def test_a_wait_for_another_process_with_work_is_one_for_a_late_rank():
    scene = Scene(opened(600 * US, 601 * US, "end"))
    for t in range(0, 600 * US, 100 * US):
        scene.records.range(MAIN, t, t + 60 * US, "work")
        scene.launch(t, t + US, (t + US, t + 9 * US))
        scene.system("poll", t + 20 * US, t + 61 * US, on=RANK_1)
        scene.launch(t + 62 * US, t + 63 * US, (t + 63 * US, t + 100 * US), on=RANK_1, device=1)
    assert scene.idle(gpu=1) == {
        "late rank": 6 * 41 * US,
        "launch calls, cudaLaunchKernel": 6 * US,
        "launch calls, work, cudaLaunchKernel": 6 * US,
        "host code, work": 6 * 19 * US,  # before rank 1 waited
        "host code outside ops": 6 * US,
        "not running": US,
    }


@pytest.mark.parametrize("wait", ["pthread_mutex_lock", "pthread_cond_wait"])
def test_a_wait_for_another_thread_belongs_to_what_that_did(wait):
    scene = Scene(opened(600 * US, 601 * US, "end", OTHER))
    for t in range(0, 600 * US, 100 * US):
        scene.records.range(OTHER, t, t + 60 * US, "holder")
        scene.system(wait, t + 20 * US, t + 61 * US)
        scene.launch(t + 62 * US, t + 63 * US, (t + 63 * US, t + 100 * US))
    assert scene.idle() == {
        "host code, holder": 6 * 60 * US,
        "host code, end": US,
        f"OS calls, {wait}": 6 * US,  # until it runs again
        "launch calls, cudaLaunchKernel": 6 * US,
        "host code outside ops": 6 * US,
    }


@pytest.mark.parametrize(("polls", "cause"), [(4, "data loading"), (3, "OS calls, poll")])
def test_a_poll_outside_of_ops_that_recurs_between_launches_waits_for_data(polls, cause):
    scene = Scene()
    for t in range(0, 100 * polls, 100):
        scene.launch(t, t + 5, (t + 5, t + 20))
        scene.system("poll", t + 30, t + 90)
    scene.launch(100 * polls, 100 * polls + 5, (100 * polls + 5, 100 * polls + 6))
    usual = {"launch calls, cudaLaunchKernel": 5, "host code outside ops": 20}
    assert scene.parts == [usual | {cause: 60}] * polls


def test_pythons_lock_is_recorded_or_asked_for_every_5_ms():
    scene = Scene(opened(0, 12 * MS, "step"))
    scene.launch(0, US, (US, MS))
    scene.system("pthread_cond_timedwait", 2 * MS, 7 * MS)
    scene.system("pthread_cond_timedwait", 7 * MS + 5 * US, 9 * MS)
    scene.records.range(MAIN, 10 * MS, 11 * MS, "Waiting for GIL", "GIL Trace")
    scene.launch(12 * MS - US, 12 * MS, (12 * MS, 13 * MS))
    assert scene.parts == [
        {
            "Python's lock, step": 5 * MS + 2 * MS - 5 * US + MS,
            "launch calls, step, cudaLaunchKernel": US,
            "host code, step": 3 * MS + 4 * US,
        }
    ]


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("cudaStreamSynchronize", "synchronization"),
        ("cudaMemcpy", "blocking memcpy"),
        ("cudaMemcpyAsync", "memcpy calls"),
        ("cudaMemsetAsync", "memcpy calls"),
        ("cudaLaunchKernel", "launch calls"),
        ("cudaGraphLaunch", "launch calls"),
        ("cudaMalloc", "other CUDA calls"),
        ("cuModuleLoadData", "loading of code"),
        ("cuLibraryGetKernel", "loading of code"),
        ("read", "OS calls"),
        ("getc", "input"),
        ("", "profiler"),
    ],
)
@pytest.mark.parametrize(
    ("op", "otherwise"),
    [("step", "host code, step"), ("torch.compile", "compilation, torch.compile")],
)
def test_what_the_thread_is_in(call, cause, op, otherwise):
    scene = Scene(opened(0, 35, op))
    scene.launch(0, 5, (5, 10))
    if call.startswith("cu"):
        scene.call(call, 15, 25)
    elif call:
        scene.system(call, 15, 25)
    else:
        scene.records.overhead.append({"thread": MAIN, "start": 15, "end": 25, "name": "flush"})
    scene.launch(40, 44, (45, 50))
    assert scene.parts == [
        {
            ", ".join((cause, op, call) if call not in ("getc", "") else (cause, op)): 10,
            otherwise: 5 + 10,
            "host code outside ops": 5,
            "launch calls, cudaLaunchKernel": 4,
            "launch latency": 1,
        }
    ]


def test_all_that_an_op_does_is_loading_of_data_and_its_code_is_compilation():
    scene = Scene(
        *(opened(10, 30, "data loading"), opened(12, 29, "decode")),
        *(opened(30, 50, "torch.compile"), opened(32, 49, "lower")),
    )
    scene.launch(0, 5, (5, 10))
    for t in (13, 33):
        scene.system("read", t, t + 2)
        scene.call("cudaMalloc", t + 3, t + 6)
    scene.records.overhead.append({"thread": MAIN, "start": 41, "end": 43, "name": "flush"})
    scene.launch(50, 55, (55, 60))
    assert scene.parts == [
        {
            "data loading, data loading": 20,
            "profiler, lower": 2,
            "OS calls, lower, read": 2,
            "other CUDA calls, lower, cudaMalloc": 3,
            "compilation, torch.compile": 13,
            "launch calls, cudaLaunchKernel": 5,
        }
    ]


def test_a_copy_that_begins_before_its_call_has_returned_waits_for_what_the_thread_was_in():
    scene = Scene(opened(20, 30, "data loading"), opened(40, 50, "step"))
    scene.launch(0, 5, (5, 10))
    for start in (22, 42):
        scene.call(
            "cudaMemcpyAsync", start, start + 8, (start + 5, start + 15), kind="copy to device"
        )
    assert scene.parts == [
        {"data loading, data loading": 7, "host code outside ops": 10},
        {
            "memcpy calls, step, cudaMemcpyAsync": 5,
            "host code, step": 2,
            "host code outside ops": 3,
        },
    ]


@pytest.mark.parametrize(("ns", "cause"), [(100_000, "launch latency"), (100_001, "unknown")])
def test_latency_is_at_most_100_us(ns, cause):
    scene = Scene()
    scene.launch(0, 5, (5, 10))
    scene.launch(10, 15, (15 + ns, 20 + ns))
    assert scene.parts == [{"launch calls, cudaLaunchKernel": 5, cause: ns}]


def test_work_of_a_process_whose_calls_were_not_recorded():
    scene = Scene(opened(0, 100, "step"))
    scene.launch(0, 5, (5, 90))
    scene.records.activity(99, 20, 30, of=1)
    assert scene.idle(gpu=1) == {"unknown": 20 + 70}


def test_a_process_that_has_not_begun_or_has_ended():
    scene = Scene(opened(0, 100, "step"), opened(30, 70, "short", RANK_1))
    scene.launch(0, 5, (5, 90))
    scene.launch(40, 45, (45, 60), on=RANK_1, device=1)
    assert scene.idle(gpu=1) == {
        "not running": 30 + 30,
        "launch calls, short, cudaLaunchKernel": 5,
        "host code, short": 10 + 10,
    }


@pytest.mark.slow
def test_a_gap_of_a_real_training(corpus):
    """Worked out with `sqlite3`."""
    joined = bridge.report.load(corpus / "nsys" / "mnist-training.sqlite")
    gaps = idle_gaps(joined.attributed)
    [parts] = parts_of(joined.attributed, gaps.take(gaps.start == 6217566194))
    assert parts == {
        "data loading, Data loading": 6368432834 - 6217566194,
        "host code, Train": 6368438326 - 6368432834,
        "host code, Batch 23": 6368439909 - 6368438326,
        "host code, Copy to device": 6368445521 - 6368439909,
        "host code, aten::to": 6368462366 - 6368445521,
        "host code, aten::_to_copy": 6368465783 - 6368462366 + 6368485524 - 6368483861,
        "host code, aten::empty_strided": 6368483861 - 6368465783,
        "host code, aten::copy_": 6368494914 - 6368485524,
        "memcpy calls, aten::copy_, cudaMemcpyAsync": 6368669024 - 6368494914,
    }
    table = joined.by("gap").set_index("start_ns").loc[6217566194]
    assert table[["cause", "cause_ns", "op", "step"]].tolist() == [
        "data loading",
        150866640,
        "Data loading",
        23,
    ]
