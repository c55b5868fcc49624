"""What troubles add to a program, by the place where it runs.

A fragment gets the rank, its numbers (as `Plan.extra` has them) and the number of the step or of the op. Its name is
the key in `Plan.extra`. The places: ``begin`` (before everything), ``threads`` (where threads are made), ``first step``, ``before
step``, ``after input``, ``after forward op``, ``after forward``, ``before optimizer``, ``in step`` (at its end), ``between steps``, ``end`` (behind the last step).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from simulated.calls import D2D, D2H, H2D, NAMES, Cuda, Event
from simulated.device import Blocking
from simulated.engine import US
from simulated.host import Cause, Flag, Lock, Steps, Thread

if TYPE_CHECKING:
    from simulated.ranks import Rank

Numbers = Mapping[str, float]
MUTEX = "pthread_mutex_lock"
WAITS = ("stream_sync", "device_sync", "event_sync")
AT: dict[tuple[str, str], Callable[..., Steps]] = {}


def at(place: str) -> Callable[[Callable[..., Steps]], Callable[..., Steps]]:
    """Register a fragment under its own name at a place."""

    def register(function: Callable[..., Steps]) -> Callable[..., Steps]:
        AT[place, function.__name__] = function
        return function

    return register


def _due(numbers: Numbers, step: int) -> bool:
    """Return whether a step is one of every so many; the first is not."""
    every = int(numbers["every"])
    return step > 1 and step % every == 0


# -- Synchronizations and polling


@at("after forward op")
def needless_sync(rank: Rank, numbers: Numbers, index: int) -> Steps:
    if index % int(numbers["every"]):
        return
    if numbers["waits_for"] == WAITS.index("device_sync"):
        yield from rank.cuda.device_sync()
    elif numbers["waits_for"] == WAITS.index("stream_sync"):
        yield from rank.cuda.stream_sync(rank.stream)
    else:
        event = rank.event()
        yield from rank.cuda.event_record(rank.stream, event)
        yield from rank.cuda.event_sync(event)


@at("after forward op")
def polling(rank: Rank, numbers: Numbers, index: int) -> Steps:
    if index % int(numbers["every"]) == 0:
        event = rank.event()
        yield from rank.cuda.event_record(rank.stream, event)
        yield from rank.cuda.poll(event, round(numbers["pause_ns"]))


@at("in step")
def value_each_step(rank: Rank, numbers: Numbers, step: int) -> Steps:
    if step % int(numbers["every"]) == 0:
        yield from rank.fetch("aten::item" if rank.plan.pytorch else "print residual")
        rank.thread.host(15 * US, "print")


@at("after forward")
def needed_sync(rank: Rank, numbers: Numbers, step: int) -> Steps:
    yield from rank.fetch("aten::is_nonzero" if rank.plan.pytorch else "converged")
    rank.thread.host(numbers["host_ns"], "decide")


@at("in step")
def late_value(rank: Rank, numbers: Numbers, step: int) -> Steps:
    """Wait for the value of the step before, while the GPU has the work of this one."""
    before, rank.value = rank.value, rank.event()
    with rank.thread.range("print loss"):
        yield from rank.cuda.copy(rank.stream, D2H, 4)
        yield from rank.cuda.event_record(rank.stream, rank.value)
        if before is not None:
            yield from rank.cuda.event_sync(before)
        rank.thread.host(15 * US, "print")


# -- Kernels and launches


@at("after forward")
def slow_kernel(rank: Rank, numbers: Numbers, step: int) -> Steps:
    with rank.thread.range("transpose"):
        rank.thread.host(6 * US)
        yield from rank.cuda.launch(rank.stream, "naive_transpose_kernel", numbers["kernel_ns"])


@at("in step")
def small_kernels(rank: Rank, numbers: Numbers, step: int) -> Steps:
    thread, count = rank.thread, int(numbers["count"])
    with thread.range("update state"):
        thread.host(10 * US)
        if numbers["fused"]:
            total = numbers["kernel_ns"] * count * 0.3
            yield from rank.cuda.launch(rank.stream, "fused_update_kernel", total)
            return
        for _ in range(count):
            thread.host(1 * US, "element")
            yield from rank.cuda.launch(rank.stream, "small_update_kernel", numbers["kernel_ns"])


@at("in step")
def default_stream(rank: Rank, numbers: Numbers, step: int) -> Steps:
    """Run pairs of kernels in two streams, with fills between them: in the default stream, or in one of their own."""
    kind = Blocking.BLOCKING if numbers["blocking"] else Blocking.NON_BLOCKING
    if len(rank.pair) == 0:
        rank.pair = [rank.context.stream(kind) for _ in range(2)]
        rank.pair.append(rank.context.default if numbers["blocking"] else rank.context.stream(kind))
    first, second, fills = rank.pair
    for stream in (first, second):
        yield from rank.order(rank.stream, stream)
    with rank.thread.range("two branches"):
        for _ in range(int(numbers["pairs"])):
            rank.thread.host(6 * US)
            yield from rank.cuda.launch(first, "branch_a_kernel", numbers["kernel_ns"])
            yield from rank.cuda.fill(fills, 4_096)
            yield from rank.cuda.launch(second, "branch_b_kernel", numbers["kernel_ns"])
            yield from rank.cuda.fill(fills, 4_096)
    for stream in (first, second):
        yield from rank.order(stream, rank.stream)


# -- Memory


@at("before step")
def small_copies(rank: Rank, numbers: Numbers, step: int) -> Steps:
    """Copy many small pieces of an input, or all of them at once."""
    count = int(numbers["count"])
    with rank.thread.range("upload pieces"):
        for _ in range(1 if numbers["packed"] else count):
            rank.thread.host(2 * US)
            size = 4_096 * (count if numbers["packed"] else 1)
            yield from rank.cuda.copy(rank.stream, H2D, size)


@at("before step")
def pinned_in_loop(rank: Rank, numbers: Numbers, step: int) -> Steps:
    """Allocate pinned memory and release it in each step."""
    with rank.thread.range("staging buffer"):
        yield from rank.cuda.call(NAMES["host_alloc"], numbers["alloc_ns"])
        rank.thread.host(10 * US)
        yield from rank.cuda.call(NAMES["free_host"], numbers["alloc_ns"] * 0.4)


@at("before step")
def allocation_in_loop(rank: Rank, numbers: Numbers, step: int) -> Steps:
    with rank.thread.range("allocate"):
        for _ in range(int(numbers["count"])):
            yield from rank.cuda.malloc()


@at("in step")
def release_in_loop(rank: Rank, numbers: Numbers, step: int) -> Steps:
    with rank.thread.range("release"):
        for _ in range(int(numbers["count"])):
            yield from rank.cuda.free()


@at("before step")
def failing_calls(rank: Rank, numbers: Numbers, step: int) -> Steps:
    """Fail to allocate; release what is cached, and try again."""
    if not _due(numbers, step):
        return
    with rank.thread.range("aten::empty" if rank.plan.pytorch else "reserve"):
        yield from rank.cuda.malloc(fails=True)
        for _ in range(int(numbers["releases"])):
            yield from rank.cuda.free()
        yield from rank.cuda.malloc(fails=not numbers["answered"])


@at("in step")
def page_faults(rank: Rank, numbers: Numbers, step: int) -> Steps:
    size = int(numbers["bytes"])
    with rank.thread.range("gather"):
        rank.thread.host(8 * US)
        faulting, prefetched = (0, size) if numbers["prefetch"] else (size, 0)
        yield from rank.cuda.managed_kernel(
            rank.stream,
            "gather_kernel",
            numbers["kernel_ns"],
            faulting=faulting,
            prefetched=prefetched,
        )


# -- The host


@at("first step")
def first_calls(rank: Rank, numbers: Numbers) -> Steps:
    with rank.thread.range("create handles"):
        for _ in range(int(numbers["count"])):
            yield from rank.cuda.call("cuLibraryLoadData", numbers["load_ns"])
        yield from rank.cuda.call("cuModuleLoadData", numbers["load_ns"])


@at("before step")
def jit(rank: Rank, numbers: Numbers, step: int) -> Steps:
    """Compile in the first step and, where shapes change, in some later ones."""
    last = numbers["first"] + numbers["every"] * (numbers["count"] - 1)
    later = numbers["first"] <= step <= last and not (step - numbers["first"]) % numbers["every"]
    if step == 1 or (numbers["recompiles"] and later):
        op = "torch.compile" if rank.plan.pytorch else "compile kernel"
        with rank.thread.range(op):
            rank.thread.host(numbers["compile_ns"], "compile")
            rank.thread.os_call("read", 40 * US)
            yield from rank.cuda.call("cuModuleLoadData", 400 * US)


@at("threads")
def python_lock(rank: Rank, numbers: Numbers) -> Steps:
    """Start a thread that holds Python's lock again and again."""
    holder = rank.process.thread("statistics", creator=rank.thread)
    take = holder.take_python_lock
    lock = rank.process.python_lock
    holder.run(_hold_lock(holder, take, lock, rank.thread.finished, numbers))
    yield from ()


@at("threads")
def lock_contention(rank: Rank, numbers: Numbers) -> Steps:
    """Start a thread that holds a lock of the program again and again."""
    holder = rank.process.thread("statistics", creator=rank.thread)
    take = partial(holder.acquire, rank.mutex, MUTEX, Cause.OS)
    holder.run(_hold_lock(holder, take, rank.mutex, rank.thread.finished, numbers))
    yield from ()


@at("before step")
def lock_taken(rank: Rank, numbers: Numbers, step: int) -> Steps:
    with rank.thread.range("update statistics"):
        yield from rank.thread.acquire(rank.mutex, MUTEX, Cause.OS)
        rank.thread.host(20 * US)
        yield from rank.thread.release(rank.mutex)


def _hold_lock(
    thread: Thread, take: Callable[[], Steps], lock: Lock, finished: Flag, numbers: Numbers
) -> Steps:
    for turn in range(100_000):
        thread.begin_step(turn)
        thread.os_call("nanosleep", numbers["pause_ns"])
        yield from take()
        with thread.range("statistics"):
            thread.host(numbers["hold_ns"])
        yield from thread.release(lock)
        if finished.release is not None:
            return


@at("after forward op")
def python_lock_taken(rank: Rank, numbers: Numbers, index: int) -> Steps:
    yield from rank.thread.take_python_lock()
    rank.thread.host(3 * US, "python")
    yield from rank.thread.release(rank.process.python_lock)


@at("before step")
def slow_host_op(rank: Rank, numbers: Numbers, step: int) -> Steps:
    with rank.thread.range("tokenize"):
        rank.thread.host(numbers["host_ns"])
    yield from ()


@at("before step")
def file_in_step(rank: Rank, numbers: Numbers, step: int) -> Steps:
    with rank.thread.range("read sample"):
        rank.thread.os_call("open64", 8 * US)
        rank.thread.os_call("pread64", numbers["read_ns"])
    yield from ()


@at("before step")
def sleep_in_step(rank: Rank, numbers: Numbers, step: int) -> Steps:
    rank.thread.os_call("clock_nanosleep", numbers["sleep_ns"])
    yield from ()


@at("between steps")
def garbage_collection(rank: Rank, numbers: Numbers, step: int) -> Steps:
    """Stop now and then, outside of all ranges."""
    if _due(numbers, step):
        rank.thread.host(numbers["host_ns"], "garbage collection")
    yield from ()


@at("before step")
def late_rank_host(rank: Rank, numbers: Numbers, step: int) -> Steps:
    """Let one rank do more on its host; with ``barrier`` the others wait for it on theirs."""
    if numbers["rank"] == rank.rank and numbers["host_ns"]:
        with rank.thread.range("augment"):
            rank.thread.host(numbers["host_ns"])
    if numbers["barrier"]:
        flags = rank.world.barrier(step)
        flags[rank.rank].set(rank.thread)
        with rank.thread.range("barrier"):
            for other, flag in enumerate(flags):
                if other != rank.rank:
                    yield from rank.thread.wait_flag(flag, "poll", cause=Cause.LATE_RANK)


@at("in step")
def checkpoint(rank: Rank, numbers: Numbers, step: int) -> Steps:
    """Save the weights now and then: the host copies and writes, or a thread does so from a snapshot."""
    if step % int(numbers["every"]) or rank.rank:
        return
    size = int(numbers["bytes"])
    with rank.thread.range("save checkpoint"):
        rank.thread.host(30 * US)
        if not numbers["beside"]:
            yield from rank.cuda.copy(rank.stream, D2H, size, pinned=False)
            rank.thread.host(numbers["write_ns"] * 0.2, "serialize")
            rank.thread.os_call("write", numbers["write_ns"])
            return
        yield from rank.cuda.copy(rank.stream, D2D, size)
        yield from rank.order(rank.stream, rank.inputs)
        yield from rank.cuda.copy(rank.inputs, D2H, size)
        event = rank.event()
        yield from rank.cuda.event_record(rank.inputs, event)
        writer = rank.process.thread(f"writer {step}", creator=rank.thread)
        writer.run(_write(Cuda(writer, rank.context), event, numbers))


def _write(cuda: Cuda, event: Event, numbers: Numbers) -> Steps:
    yield from cuda.event_sync(event)
    with cuda.thread.range("write checkpoint"):
        cuda.thread.host(numbers["write_ns"] * 0.2, "serialize")
        cuda.thread.os_call("write", numbers["write_ns"])


@at("in step")
def profiler_overhead(rank: Rank, numbers: Numbers, step: int) -> Steps:
    if _due(numbers, step):
        rank.cuda.flush_ns = numbers["flush_ns"]
    yield from ()


# -- Other programs, and what is paid once


@at("threads")
def time_slicing(rank: Rank, numbers: Numbers) -> Steps:
    """Start another process that computes on the GPU of rank 0 all the time."""
    if rank.rank == 0:
        name, recorded = "other program", bool(numbers["recorded"])
        process = rank.machine.process(name, recorded=recorded)
        thread = process.thread("main", creator=rank.thread)
        context = rank.machine.context(process, 0)
        thread.run(_compute(Cuda(thread, context), rank.thread.finished, numbers))
    yield from ()


def _compute(cuda: Cuda, finished: Flag, numbers: Numbers) -> Steps:
    for turn in range(100_000):
        cuda.thread.begin_step(turn)
        cuda.thread.host(numbers["pause_ns"])
        yield from cuda.launch(cuda.context.default, "other_kernel", numbers["kernel_ns"])
        yield from cuda.stream_sync(cuda.context.default)
        if finished.release is not None:
            return


@at("begin")
def start_up(rank: Rank, numbers: Numbers) -> Steps:
    with rank.thread.range("read files"):
        for _ in range(int(numbers["files"])):
            rank.thread.os_call("read", numbers["read_ns"])
            rank.thread.host(numbers["read_ns"] * 0.5, "parse file")
    yield from ()


@at("begin")
def terminal(rank: Rank, numbers: Numbers) -> Steps:
    if rank.rank == 0:
        rank.thread.os_call("getc", numbers["wait_ns"], cause=Cause.INPUT)
    yield from ()


@at("end")
def end_cost(rank: Rank, numbers: Numbers) -> Steps:
    if rank.rank == 0:
        with rank.thread.range("save results"):
            yield from rank.cuda.copy(rank.stream, D2H, 8 << 20, pinned=False)
            rank.thread.host(numbers["write_ns"] * 0.5, "format")
            rank.thread.os_call("write", numbers["write_ns"])
