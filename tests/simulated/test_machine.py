"""The simulator keeps CUDA's rules: a few lines of program each, and the instants that the documentation demands.

In the laboratory a launch takes 10 ns on the host and its kernel begins 5 ns after it returned; other calls take
2 ns, copies 4 ns, a synchronization returns 3 ns after its work; nothing is drawn by chance. The gap between two
pieces of work of a stream is 1000 ns, that between work and what waits for it in another stream 1500 ns.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from simulated import device
from simulated.calls import D2H, H2D, NAMES, NOT_READY, PEER, Costs, Cuda, Event
from simulated.device import Blocking, Collective, Kind, Work
from simulated.host import Cause, Flag, Lock, Process, Steps, Thread
from simulated.loading import BatchLoader
from simulated.machine import Machine
from simulated.plan import Loader

GAP, CROSS = 1_000, 1_500
ENTER = 800  # the beginning of a synchronization, before it waits


class Lab:
    """A machine without chance, with a process whose first context exists and whose kernels are loaded."""

    def __init__(self, gpus: int = 1, *, crowding: bool = False) -> None:
        costs = Costs(launch_ns=10, latency_ns=5, call_ns=2, copy_call_ns=4, sync_ns=3, malloc_ns=7)
        costs.context_ns = costs.load_ns = 0
        costs.bandwidths = dict.fromkeys(costs.bandwidths, 1.0)  # a byte per ns
        self.machine = Machine(0, gpus, costs=costs, crowding=crowding)
        self.machine.spread = 0.0
        self.process = self.machine.process("program")

    def cuda(self, gpu: int = 0, process: Process | None = None) -> Cuda:
        process = process or self.process
        thread = process.thread(f"thread {len(process.threads)}")
        return Cuda(thread, self.machine.context(process, gpu))

    def run(self, *programs: tuple[Thread, Steps]) -> dict[str, tuple[int, int]]:
        """Run threads; return begin and end of all work by its name."""
        for thread, program in programs:
            thread.run(program)
        self.machine.run()
        return {work.name: (work.start, work.end) for work in self.machine.works()}

    def calls(self, name: str) -> list[tuple[int, int]]:
        return [(row[0], row[1]) for row in self.machine.calls if row[2] == NAMES[name]]


@pytest.fixture
def lab() -> Lab:
    return Lab()


# -- Streams


def test_a_kernel_begins_when_its_launch_has_returned_and_the_latency_has_passed(lab):
    cuda = lab.cuda()
    assert lab.run((cuda.thread, cuda.launch(cuda.context.default, "k", 100))) == {"k": (15, 115)}


def test_work_of_a_stream_runs_in_order_with_a_gap(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        stream = cuda.context.stream()
        yield from cuda.launch(stream, "first", 5_000)
        yield from cuda.launch(stream, "second", 10)

    assert lab.run((cuda.thread, program())) == {
        "first": (15, 5_015),
        "second": (5_015 + GAP, 5_025 + GAP),
    }


def test_work_of_two_streams_overlaps(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        yield from cuda.launch(cuda.context.stream(), "a", 5_000)
        yield from cuda.launch(cuda.context.stream(), "b", 5_000)

    assert lab.run((cuda.thread, program())) == {"a": (15, 5_015), "b": (25, 5_025)}


def test_the_legacy_default_stream_waits_for_blocking_streams_and_they_for_it(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        context = cuda.context
        blocking = context.stream(Blocking.BLOCKING)
        yield from cuda.launch(blocking, "before", 10_000)
        yield from cuda.launch(context.default, "default", 10_000)
        yield from cuda.launch(blocking, "behind", 10_000)
        yield from cuda.launch(context.stream(Blocking.NON_BLOCKING), "free", 10_000)

    result = lab.run((cuda.thread, program()))
    assert result["before"] == (15, 10_015)
    assert result["default"] == (10_015 + CROSS, 20_015 + CROSS)
    assert result["behind"] == (20_015 + 2 * CROSS, 30_015 + 2 * CROSS)
    assert result["free"] == (45, 10_045)


def test_a_per_thread_default_stream_waits_for_the_legacy_one_and_bears_other_names(lab):
    lab.machine.context(lab.process, 0).per_thread = True
    cuda = lab.cuda()

    def program() -> Steps:
        own = cuda.context.stream(Blocking.BLOCKING)
        yield from cuda.launch(cuda.context.default, "legacy", 1_000)
        yield from cuda.launch(own, "own", 1_000)

    assert lab.run((cuda.thread, program()))["own"][0] == 1_015 + CROSS
    assert {row[2] for row in lab.machine.calls} == {"cudaLaunchKernel_ptsz_v7000"}


# -- Events and synchronizations


def test_a_stream_waits_for_what_an_event_holds_and_for_nothing_behind_it(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        first, second = cuda.context.stream(), cuda.context.stream()
        event = Event(1)
        yield from cuda.launch(first, "held", 10_000)
        yield from cuda.event_record(first, event)
        yield from cuda.launch(first, "later", 50_000)
        yield from cuda.stream_wait(second, event)
        yield from cuda.launch(second, "waiting", 10)

    result = lab.run((cuda.thread, program()))
    assert result["held"] == (15, 10_015)
    assert result["waiting"] == (10_015 + CROSS, 10_025 + CROSS)


def test_a_wait_for_a_stream_returns_after_the_work_of_this_stream_alone(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        short, long = cuda.context.stream(), cuda.context.stream()
        yield from cuda.launch(long, "long", 90_000)
        yield from cuda.launch(short, "short", 10_000)
        yield from cuda.stream_sync(short)

    lab.run((cuda.thread, program()))
    assert lab.calls("stream_sync") == [(20, 10_025 + 3)]
    assert [row[:2] for row in lab.machine.syncs] == [(20 + ENTER, 10_028)]


def test_a_wait_for_the_legacy_default_stream_waits_for_blocking_streams_too(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        yield from cuda.launch(cuda.context.stream(Blocking.BLOCKING), "blocking", 20_000)
        yield from cuda.launch(cuda.context.stream(Blocking.NON_BLOCKING), "free", 90_000)
        yield from cuda.stream_sync(cuda.context.default)

    lab.run((cuda.thread, program()))
    assert lab.calls("stream_sync")[0][1] == 20_015 + 3


def test_a_wait_for_the_device_waits_for_the_work_of_all_threads(lab):
    one, two = lab.cuda(), lab.cuda()

    def waits() -> Steps:
        one.thread.host(100)
        yield from one.device_sync()

    lab.run((two.thread, two.launch(two.context.stream(), "other", 30_000)), (one.thread, waits()))
    assert lab.calls("device_sync") == [(100, 30_015 + 3)]


def test_a_wait_for_nothing_costs_the_call_alone(lab):
    cuda = lab.cuda()
    lab.run((cuda.thread, cuda.stream_sync(cuda.context.default)))
    assert lab.calls("stream_sync") == [(0, ENTER + 3)]


def test_a_wait_for_an_event_ends_with_the_work_before_it(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        event = Event(1)
        yield from cuda.launch(cuda.context.default, "k", 5_000)
        yield from cuda.event_record(cuda.context.default, event)
        yield from cuda.launch(cuda.context.default, "later", 90_000)
        yield from cuda.event_sync(event)

    lab.run((cuda.thread, program()))
    assert lab.calls("event_sync") == [(22, 5_015 + 3)]


def test_an_event_is_asked_for_until_it_has_come(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        event = Event(1)
        yield from cuda.launch(cuda.context.default, "k", 300)
        yield from cuda.event_record(cuda.context.default, event)
        yield from cuda.poll(event, 100)

    lab.run((cuda.thread, program()))
    assert lab.calls("event_query") == [(12, 14), (114, 116), (216, 218), (318, 320)]
    results = [row[5] for row in lab.machine.calls if row[2] == NAMES["event_query"]]
    assert results == [NOT_READY, NOT_READY, NOT_READY, 0]


def test_a_launch_waits_while_the_queue_is_full(lab, monkeypatch):
    monkeypatch.setattr("simulated.calls.QUEUE_DEPTH", 2)
    cuda = lab.cuda()

    def program() -> Steps:
        for number in range(5):
            yield from cuda.launch(cuda.context.default, f"k{number}", 10_000)

    result = lab.run((cuda.thread, program()))
    starts = [result[f"k{number}"][0] for number in range(5)]
    assert starts == [15 + number * (10_000 + GAP) for number in range(5)]
    # k0 has begun at 15, so that k2 finds one pending; k3 waits until k1 has begun, k4 for k2.
    ends = [end for _, end in lab.calls("launch")]
    assert ends == [10, 20, 30, starts[1] + 10, starts[2] + 10]


def test_the_queue_is_that_of_a_stream(lab, monkeypatch):
    monkeypatch.setattr("simulated.calls.QUEUE_DEPTH", 1)
    cuda = lab.cuda()

    def program() -> Steps:
        one, two = cuda.context.stream(), cuda.context.stream()
        yield from cuda.launch(one, "a", 50_000)
        yield from cuda.launch(two, "b", 50_000)

    lab.run((cuda.thread, program()))
    assert lab.calls("launch") == [(0, 10), (10, 20)]


def test_a_graph_is_one_launch_of_the_queue_and_copies_wait_for_it_too(lab, monkeypatch):
    monkeypatch.setattr("simulated.calls.QUEUE_DEPTH", 2)
    cuda = lab.cuda()
    nodes = [("a", 10_000.0, 1), ("b", 10_000.0, 2), ("c", 10_000.0, 3)]

    def program() -> Steps:
        stream = cuda.context.default
        yield from cuda.graph(stream, 7, nodes)
        yield from cuda.launch(stream, "pending", 10)
        yield from cuda.launch(stream, "pending too", 10)
        yield from cuda.copy(stream, H2D, 100)

    result = lab.run((cuda.thread, program()))
    assert max(end for _, end in lab.calls("launch")) < result["c"][1]
    assert lab.calls("memcpy_async")[0][1] == result["pending"][0] + 4


# -- Copies


def test_copies_of_one_direction_take_turns_and_the_other_direction_runs_beside(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        for kind in (H2D, H2D, D2H):
            yield from cuda.copy(cuda.context.stream(), kind, 10_000)

    lab.run((cuda.thread, program()))
    one, two, back = lab.machine.gpus[0].works
    length = 1_200 + 10_000
    assert (one.start, one.end) == (4 + 5, 9 + length)
    assert (two.start, two.end) == (9 + length, 9 + 2 * length)
    assert (back.start, back.end) == (12 + 5, 17 + length)
    assert two.release is not None
    assert two.release.work is one


def test_a_copy_runs_beside_kernels(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        yield from cuda.launch(cuda.context.stream(), "k", 50_000)
        yield from cuda.copy(cuda.context.stream(), H2D, 1_000)

    lab.run((cuda.thread, program()))
    assert lab.machine.gpus[0].works[1].start == 14 + 5


def test_an_asynchronous_copy_of_pinned_memory_returns_at_once(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        yield from cuda.copy(cuda.context.default, H2D, 50_000)
        yield from cuda.copy(cuda.context.default, D2H, 50_000)

    lab.run((cuda.thread, program()))
    assert lab.calls("memcpy_async") == [(0, 4), (4, 8)]


def test_a_copy_from_pageable_memory_returns_when_it_is_staged_and_goes_then(lab):
    cuda = lab.cuda()
    lab.run((cuda.thread, cuda.copy(cuda.context.default, H2D, 50_000, pinned=False)))
    copy = lab.machine.gpus[0].works[0]
    assert lab.calls("memcpy_async") == [(0, 4 + 51_200)]
    assert (copy.start, copy.end) == (51_204 + 5, 51_209 + 51_200)


def test_a_copy_to_pageable_memory_returns_when_it_is_done(lab):
    cuda = lab.cuda()
    lab.run((cuda.thread, cuda.copy(cuda.context.default, D2H, 50_000, pinned=False)))
    assert lab.calls("memcpy_async") == [(0, 9 + 51_200 + 3)]


def test_a_synchronous_copy_waits_for_the_work_before_it_and_for_itself(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        yield from cuda.launch(cuda.context.default, "k", 20_000)
        yield from cuda.copy(cuda.context.default, H2D, 1_000, blocking=True)

    lab.run((cuda.thread, program()))
    copy = lab.machine.gpus[0].works[1]
    assert copy.start == 20_015 + GAP
    assert lab.calls("memcpy") == [(10, copy.end + 3)]


def test_a_peer_copy_is_work_of_its_source_and_the_target_waits_by_an_event():
    lab = Lab(2)
    cuda = lab.cuda()
    there = Cuda(cuda.thread, lab.machine.context(lab.process, 1))

    def program() -> Steps:
        event = Event(1)
        source, target = cuda.context.default, there.context.default
        yield from cuda.copy(source, PEER, 8_000, peer=1)
        yield from cuda.event_record(source, event)
        yield from there.stream_wait(target, event)
        yield from there.launch(target, "k", 10)

    result = lab.run((cuda.thread, program()))
    copy = lab.machine.gpus[0].works[0]
    assert (copy.start, copy.end, copy.peer) == (9, 9 + 9_200, 1)
    assert result["k"][0] == copy.end + CROSS


# -- Memory, first calls, graphs


def test_a_release_of_memory_waits_for_the_device_and_an_allocation_does_not(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        yield from cuda.launch(cuda.context.stream(), "k", 20_000)
        yield from cuda.malloc()
        yield from cuda.free()

    lab.run((cuda.thread, program()))
    assert lab.calls("malloc") == [(10, 17)]
    assert lab.calls("free") == [(17, 20_015 + 3 + 7)]


def test_the_first_call_creates_the_context_and_the_first_launch_loads_the_kernel(lab):
    lab.machine.costs.context_ns, lab.machine.costs.load_ns = 1_000, 100
    cuda = lab.cuda()

    def program() -> Steps:
        yield from cuda.malloc()
        for kernel in ("k", "k", "other"):
            yield from cuda.launch(cuda.context.default, kernel, 1)

    lab.run((cuda.thread, program()))
    assert lab.calls("malloc") == [(0, 1_007)]
    assert [end - start for start, end in lab.calls("launch")] == [110, 10, 110]


def test_a_graph_is_one_launch_and_its_nodes_follow_closely(lab):
    cuda = lab.cuda()
    nodes = [("a", 1_000.0, 1), ("b", 1_000.0, 2), ("c", 1_000.0, 3)]
    result = lab.run((cuda.thread, cuda.graph(cuda.context.default, 7, nodes)))
    begin = 10 + 3 * 50 + 5
    assert lab.calls("graph_launch") == [(0, begin - 5)]
    assert [result[name][0] for name in "abc"] == [begin, begin + 1_300, begin + 2_600]
    assert len({work.correlation for work in lab.machine.works()}) == 1
    assert device.NODE_GAP_NS == 300


def test_a_call_that_fails_says_so(lab):
    cuda = lab.cuda()
    lab.run((cuda.thread, cuda.malloc(fails=True)))
    assert [row[5] for row in lab.machine.calls] == [2]


def test_page_faults_make_a_kernel_longer_and_a_prefetch_copies_before_it(lab):
    lab.machine.costs.fault_bandwidth = 0.5
    cuda = lab.cuda()

    def program() -> Steps:
        stream = cuda.context.default
        yield from cuda.managed_kernel(stream, "faulting", 100, faulting=10_000, prefetched=0)
        yield from cuda.managed_kernel(stream, "ready", 100, faulting=0, prefetched=10_000)

    result = lab.run((cuda.thread, program()))
    assert result["faulting"] == (15, 15 + 100 + 20_000)
    pages = [work for work in lab.machine.works() if work.name == "[page fault]"]
    assert all(15 <= page.start < page.end <= 20_115 for page in pages)
    start, end = result["[prefetch]"]
    assert (start, end) == (20_115 + GAP, 20_115 + GAP + 10_000)
    assert result["ready"] == (end + GAP, end + GAP + 100)


# -- Several processes and ranks


def test_a_collective_ends_on_all_ranks_a_transfer_after_the_last_has_begun():
    lab = Lab(2)
    ranks = [lab.cuda(gpu) for gpu in (0, 1)]
    collective = Collective(2, 7_000)

    def program(cuda: Cuda, late: int) -> Steps:
        cuda.thread.host(late)
        stream = cuda.context.default
        yield from cuda.launch(stream, f"reduce {late}", 1, collective=collective)
        yield from cuda.launch(stream, f"next {late}", 1)
        yield from cuda.stream_sync(stream)

    result = lab.run(
        *((cuda.thread, program(cuda, late)) for cuda, late in zip(ranks, (0, 40_000), strict=True))
    )
    end = 40_015 + 7_000
    assert result["reduce 0"] == (15, end)
    assert result["reduce 40000"] == (40_015, end)
    assert result["next 0"] == result["next 40000"] == (end + GAP, end + GAP + 1)
    assert {call[1] for call in lab.calls("stream_sync")} == {end + GAP + 1 + 3}
    assert collective.late.stream.context.gpu.number == 1


def test_kernels_of_two_processes_on_one_gpu_never_run_at_once(lab):
    other = lab.machine.process("other")
    here, there = lab.cuda(), lab.cuda(0, other)

    def program(cuda: Cuda, name: str) -> Steps:
        for number in range(4):
            yield from cuda.launch(cuda.context.default, f"{name}{number}", 30_000)

    lab.run((here.thread, program(here, "a")), (there.thread, program(there, "b")))
    works = lab.machine.works()
    assert len(works) == 8
    switch = lab.machine.gpus[0].switch_ns
    for before, after in pairwise(works):
        same = before.stream is after.stream
        assert after.start >= before.end + (GAP if same else switch)


def test_crowded_kernels_take_longer_and_only_where_that_is_asked_for():
    def lengths(crowding: bool) -> list[int]:
        lab = Lab(crowding=crowding)
        cuda = lab.cuda()
        cuda.share = 0.75

        def program() -> Steps:
            for _ in range(2):
                yield from cuda.launch(cuda.context.stream(), "k", 10_000)

        lab.run((cuda.thread, program()))
        return [work.end - work.start for work in lab.machine.works()]

    assert lengths(False) == [10_000, 10_000]
    assert lengths(True) == [10_000, 15_000]


# -- Threads


def test_a_lock_goes_to_who_has_waited_longest_and_waits_are_calls_of_the_system(lab):
    lock = Lock()
    threads = [lab.process.thread(f"t{number}") for number in range(3)]
    taken: list[tuple[int, int]] = []

    def program(thread: Thread, late: int) -> Steps:
        thread.host(late)
        yield from thread.acquire(lock, "futex", Cause.OS)
        taken.append((late, thread.now))
        thread.host(10_000)
        yield from thread.release(lock)

    lab.run(
        *(
            (thread, program(thread, late))
            for thread, late in zip(threads, (0, 200, 100), strict=True)
        )
    )
    wake = 3_000
    assert taken == [(0, 0), (100, 10_000 + wake), (200, 20_000 + 2 * wake)]
    assert lab.machine.os_calls == [
        (100, 13_000, "futex", threads[2]),
        (200, 26_000, "futex", threads[1]),
    ]


def test_pythons_lock_is_waited_for_in_slices_of_the_switch_interval(lab):
    holder, waiter = lab.process.thread("holder"), lab.process.thread("waiter")

    def holds() -> Steps:
        yield from holder.take_python_lock()
        holder.host(12_000_000)
        yield from holder.release(lab.process.python_lock)

    def waits() -> Steps:
        waiter.host(1_000)
        yield from waiter.take_python_lock()

    lab.run((holder, holds()), (waiter, waits()))
    assert [row[:3] for row in lab.machine.os_calls] == [
        (1_000, 5_001_000, "pthread_cond_timedwait"),
        (5_001_000, 10_001_000, "pthread_cond_timedwait"),
        (10_001_000, 12_003_000, "pthread_cond_timedwait"),
    ]
    assert [segment.cause for segment in waiter.timeline] == [Cause.HOST, Cause.PYTHON_LOCK]


def test_loaders_fill_a_bounded_queue_and_the_consumer_waits_for_them(lab):
    main = lab.process.thread("main")
    fetched: list[int] = []

    def program(loader: Loader) -> Steps:
        batches = BatchLoader(loader, 6, main, pytorch=False)
        for batch in range(6):
            main.host(1_000_000 if batch == 3 else 1_000, "compute")
            yield from batches.next(main, batch)
            fetched.append(main.now)

    loader = Loader(workers=1, prefetch=2, load_ns=100_000, processes=False)
    lab.run((main, program(loader)))
    # The worker's range and load, the consumer's waking, unpickling and the end of its range.
    assert fetched[0] == (150 + 100_000 + 100) + 3_000 + 40_000 + 100
    # While the consumer computes for 1 ms the worker fills two places and stops.
    assert fetched[4] - fetched[3] < 50_000
    waits = [row for row in lab.machine.os_calls if row[2] == "sem_wait"]
    assert len(waits) >= 1


def test_a_flag_that_is_set_before_is_not_waited_for(lab):
    one, two = lab.process.thread("one"), lab.process.thread("two")
    flag = Flag()

    def sets() -> Steps:
        one.host(10)
        flag.set(one)
        yield None

    def waits() -> Steps:
        two.host(50)
        yield from two.wait_flag(flag, "poll")
        two.host(5)

    lab.run((one, sets()), (two, waits()))
    assert two.now == 55
    assert lab.machine.os_calls == []


def test_a_flush_of_the_profiler_stops_a_launch_and_is_recorded(lab):
    cuda = lab.cuda()
    cuda.flush_ns = 5_000
    result = lab.run((cuda.thread, cuda.launch(cuda.context.default, "k", 10)))
    assert lab.machine.overhead == [(0, 5_000, "CUPTI: Buffer flush", cuda.thread)]
    assert lab.calls("launch") == [(0, 5_010)]
    assert result["k"] == (5_015, 5_025)


def test_ranges_nest_and_name_the_op_of_what_is_issued_in_them(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        with cuda.thread.range("outer"), cuda.thread.range("inner", ", seq = 1"):
            yield from cuda.launch(cuda.context.default, "k", 10)

    lab.run((cuda.thread, program()))
    inner, outer = lab.machine.ranges
    assert inner[:3] == (150, 150 + 150 + 10 + 100, "inner, seq = 1")
    assert outer[:3] == (0, 510, "outer")
    work: Work = lab.machine.gpus[0].works[0]
    assert (work.op, work.kind) == ("inner", Kind.COMPUTE)


def test_the_timeline_of_a_thread_has_no_holes(lab):
    cuda = lab.cuda()

    def program() -> Steps:
        cuda.thread.os_call("read", 500)
        yield from cuda.launch(cuda.context.default, "k", 9_000)
        cuda.thread.host(70)
        yield from cuda.device_sync()

    lab.run((cuda.thread, program()))
    assert all(a.end == b.start for a, b in pairwise(cuda.thread.timeline))
    assert cuda.thread.timeline[-1].end == cuda.thread.now
