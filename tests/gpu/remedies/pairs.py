"""The pairs: each is one program in two settings, with a trouble and without.

A program is a generator. What is above its first `yield` is set-up, which is not timed; what is between that and the
second is timed, up to the end of all work on the GPU; what it gives there is its result, which must be the same with the
trouble and without; what is below releases what the set-up made. Kernels turn for the time that they are told
(`kernels.ptx`), so that work on the GPU takes equally long in both settings, wherever it is not itself the trouble.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from cuda.bindings import driver
from program import BYTES, HERE, NON_BLOCKING, US, Gpu, ask

from bridge import nvtx_op

MS = 1_000 * US
STEPS = 40
BLOCKING = 0  # flag of a stream: it waits for the legacy default stream, and that for it
LEGACY = 0  # the legacy default stream
SPIN = "while True: sum(range(1000))"  # Python code without an end

Program = Iterator[Any]


@dataclass(frozen=True)
class Pair:
    """A program with a trouble and without, and the rules of advice that would be right; none: no advice would be.

    ``simulated`` names the kind of trouble of `tests.simulated` that stands for the pair without a GPU, where the stand-in
    for the driver has no times that depend on the trouble.
    """

    name: str
    trouble: Callable[[Gpu], Program]
    remedied: Callable[[Gpu], Program]
    rules: tuple[str, ...]
    simulated: str = ""


def of(
    program: Callable[..., Program], name: str, trouble: dict[str, Any], remedied: dict[str, Any],
    *rules: str, simulated: str = "",
) -> Pair:  # fmt: skip
    """Return the pair of a program and its two settings."""
    return Pair(name, partial(program, **trouble), partial(program, **remedied), rules, simulated)


# --- parts ---------------------------------------------------------------------------------------


def steps(number: int = STEPS) -> Iterator[int]:
    """Count iterations, each in a range of its own."""
    for step in range(number):
        with nvtx_op(f"step {step}"):
            yield step


def host(ns: int) -> None:
    """Keep the host busy."""
    end = time.perf_counter_ns() + ns
    while time.perf_counter_ns() < end:
        pass


def prepare(ns: int) -> None:
    """Keep the host busy in an op."""
    with nvtx_op("prepare"):
        host(ns)


def forward(gpu: Gpu, kernels: int = 4, ns: int = 400 * US, stream: Any = None) -> None:
    """Launch kernels."""
    with nvtx_op("forward"):
        for _ in range(kernels):
            gpu.launch("k_forward", stream, ns)


def device(size: int) -> Any:
    """Return memory of the device."""
    return ask(driver.cuMemAlloc(size))


def pinned(size: int) -> int:
    """Return the address of pinned memory of the host."""
    return int(ask(driver.cuMemAllocHost(size)))


def first_byte(gpu: Gpu, place: Any) -> int:
    """Read back a byte of the device, after all work."""
    gpu.wait()
    byte = ctypes.c_uint8()
    ask(driver.cuMemcpyDtoH(ctypes.addressof(byte), place, 1))
    return byte.value


def event() -> Any:
    """Return an event that takes no time stamps."""
    return ask(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING.value))


def joined(gpu: Gpu, meeting: Any) -> None:
    """Have each of the two streams wait for the other."""
    for first, second in ((gpu.a, gpu.b), (gpu.b, gpu.a)):
        ask(driver.cuEventRecord(meeting, first))
        ask(driver.cuStreamWaitEvent(second, meeting, 0))


def batches(load: Callable[[int], int], workers: int, ahead: int) -> Iterator[int]:
    """Give a batch per step: loaded here, or by threads that are so many batches ahead."""
    if not workers:
        for step in steps():
            with nvtx_op("load"):
                batch = load(step)
            yield batch
        return
    with ThreadPoolExecutor(workers, "loader") as pool:
        numbers = count()
        jobs = deque(pool.submit(load, next(numbers)) for _ in range(ahead))
        for _ in steps():
            with nvtx_op("next batch"):
                batch = jobs.popleft().result()
            jobs.append(pool.submit(load, next(numbers)))
            yield batch


# --- waits ---------------------------------------------------------------------------------------


def waiting(gpu: Gpu, *, waits: bool) -> Program:
    """Wait for the GPU at the end of each iteration."""
    yield
    for _ in steps():
        prepare(1 * MS)
        forward(gpu)
        if waits:
            with nvtx_op("wait"):
                gpu.wait(gpu.a)
    yield


def waiting_after_kernels(gpu: Gpu, *, waits: bool) -> Program:
    """Wait for the stream after each kernel."""
    yield
    for _ in steps(20):
        for _ in range(8):
            with nvtx_op("layer"):
                host(200 * US)
                gpu.launch("k_forward", ns=300 * US)
                if waits:
                    gpu.wait(gpu.a)
    yield


def polling(gpu: Gpu, *, polls: bool) -> Program:
    """Ask for an event until the work before it is done."""
    done = event()
    yield
    for _ in steps():
        prepare(1 * MS)
        forward(gpu)
        ask(driver.cuEventRecord(done, gpu.a))
        with nvtx_op("poll"):
            while polls and int(driver.cuEventQuery(done)[0]):
                pass
    yield


def value(gpu: Gpu, *, every: int) -> Program:
    """Read a number of the GPU back in each iteration, or in some."""
    number = ctypes.c_uint32()
    yield
    for step in steps():
        prepare(800 * US)
        forward(gpu, ns=300 * US)
        if step % every == every - 1:
            with nvtx_op("item"):
                ask(driver.cuMemcpyDtoHAsync(ctypes.addressof(number), gpu.counter, 4, gpu.a))
                gpu.wait(gpu.a)
    yield bool(number.value)


# --- copies and memory ---------------------------------------------------------------------------


def copying(gpu: Gpu, *, is_pinned: bool) -> Program:
    """Copy inputs from pageable memory, or from pinned memory."""
    size = 16 * BYTES
    pageable = (ctypes.c_uint8 * size)()
    source = pinned(size) if is_pinned else ctypes.addressof(pageable)
    target = device(size)
    ctypes.memset(source, 7, size)
    yield
    for _ in steps(20):
        with nvtx_op("copy"):
            ask(driver.cuMemcpyHtoDAsync(target, source, size, gpu.a))
        forward(gpu, 2)
    yield first_byte(gpu, target)
    ask(driver.cuMemFree(target))
    if is_pinned:
        ask(driver.cuMemFreeHost(source))


def copying_blocked(gpu: Gpu, *, blocks: bool) -> Program:
    """Copy inputs with the call that waits for the work before and for the copy, or beside the kernels."""
    size = 16 * BYTES
    source, targets = pinned(size), [device(size), device(size)]
    arrived, used = [event(), event()], [event(), event()]
    ctypes.memset(source, 7, size)
    yield
    for step in steps(30):
        which = step % 2
        prepare(500 * US)
        with nvtx_op("copy"):
            if blocks:
                ask(driver.cuMemcpyHtoD(targets[which], source, size))
            else:
                ask(driver.cuStreamWaitEvent(gpu.b, used[which], 0))
                ask(driver.cuMemcpyHtoDAsync(targets[which], source, size, gpu.b))
                ask(driver.cuEventRecord(arrived[which], gpu.b))
                ask(driver.cuStreamWaitEvent(LEGACY, arrived[which], 0))
        forward(gpu, stream=LEGACY)
        if not blocks:
            ask(driver.cuEventRecord(used[which], LEGACY))
    yield [first_byte(gpu, target) for target in targets]
    for target in targets:
        ask(driver.cuMemFree(target))
    ask(driver.cuMemFreeHost(source))


def copying_in_pieces(gpu: Gpu, *, pieces: int) -> Program:
    """Copy an input in many small pieces, or at once."""
    size = BYTES // pieces
    source, target = pinned(BYTES), device(BYTES)
    ctypes.memset(source, 7, BYTES)
    yield
    for _ in steps():
        with nvtx_op("copy"):
            for piece in range(pieces):
                at = piece * size
                ask(driver.cuMemcpyHtoDAsync(int(target) + at, source + at, size, gpu.a))
        forward(gpu, 2, 200 * US)
    yield first_byte(gpu, int(target) + BYTES - 1)
    ask(driver.cuMemFree(target))
    ask(driver.cuMemFreeHost(source))


def allocating(gpu: Gpu, *, in_loop: bool) -> Program:
    """Allocate and release memory of the device in each iteration, or once."""
    size = 64 * BYTES
    kept = None if in_loop else device(size)
    yield
    for _ in steps():
        prepare(500 * US)
        place = device(size) if in_loop else kept
        ask(driver.cuMemsetD8Async(place, 1, BYTES, gpu.a))
        forward(gpu)
        if in_loop:
            ask(driver.cuMemFree(place))
    yield
    if kept is not None:
        ask(driver.cuMemFree(kept))


# --- launches and streams ------------------------------------------------------------------------


def small_kernels(gpu: Gpu, *, as_graph: bool) -> Program:
    """Launch many small kernels one by one, or as a CUDA graph."""

    def launch() -> None:
        for _ in range(30):
            gpu.launch("k_graph_a", ns=2 * US)
            gpu.launch("k_graph_b", ns=2 * US)

    mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
    ask(driver.cuStreamBeginCapture(gpu.a, mode))
    launch()
    graph = ask(driver.cuGraphInstantiate(ask(driver.cuStreamEndCapture(gpu.a)), 0))
    yield
    for _ in steps(100):
        with nvtx_op("forward"):
            if as_graph:
                ask(driver.cuGraphLaunch(graph, gpu.a))
            else:
                launch()
    yield


def default_stream(gpu: Gpu, *, is_legacy: bool) -> Program:
    """Work in two streams, and fill in the legacy default stream, for which both wait, or in one of its own."""
    flag = BLOCKING if is_legacy else NON_BLOCKING
    one, other = (ask(driver.cuStreamCreate(flag)) for _ in range(2))
    filling = LEGACY if is_legacy else ask(driver.cuStreamCreate(NON_BLOCKING))
    place = device(BYTES)
    yield
    for _ in steps():
        for stream in (one, other):
            with nvtx_op("fill"):
                ask(driver.cuMemsetD8Async(place, 1, BYTES, filling))
            forward(gpu, 3, 300 * US, stream)
    yield
    ask(driver.cuMemFree(place))


def one_stream(gpu: Gpu, *, is_one: bool) -> Program:
    """Work in one stream that could run in two."""
    yield
    for _ in steps():
        forward(gpu, 3, 300 * US)
        forward(gpu, 3, 300 * US, gpu.a if is_one else gpu.b)
    yield


def uneven_streams(gpu: Gpu, *, first: int) -> Program:
    """Share six kernels between two streams that wait for one another after each iteration."""
    meeting = event()
    yield
    for _ in steps():
        forward(gpu, first, 300 * US, gpu.a)
        forward(gpu, 6 - first, 300 * US, gpu.b)
        joined(gpu, meeting)
    yield


def slow_kernel(gpu: Gpu, *, ns: int) -> Program:
    """Run one long kernel."""
    yield
    for _ in steps(20):
        prepare(200 * US)
        forward(gpu, 1, 500 * US)
        with nvtx_op("solve"):
            gpu.launch("k_inner", ns=ns)
    yield


# --- the host ------------------------------------------------------------------------------------


def host_code(gpu: Gpu, *, ns: int) -> Program:
    """Run code of the host between launches."""
    yield
    for _ in steps():
        prepare(ns)
        forward(gpu, ns=250 * US)
    yield


def loading(gpu: Gpu, *, workers: int) -> Program:
    """Load batches slowly in the main thread, or in others."""

    def load(number: int) -> int:
        time.sleep(0.003)
        return number

    total = 0
    yield
    for batch in batches(load, workers, 2 * workers):
        total += batch
        forward(gpu, ns=250 * US)
    yield total


def prefetching(gpu: Gpu, *, ahead: int) -> Program:
    """Load every eighth batch very slowly, with few batches ready or with many."""

    def load(number: int) -> int:
        time.sleep(0.0004 if number % 8 != 7 else 0.008)
        return number

    total = 0
    yield
    for batch in batches(load, 1, ahead):
        total += batch
        forward(gpu)
        gpu.wait(gpu.a)
    yield total


def libraries(gpu: Gpu, *, is_ready: bool) -> Program:
    """Load code for the GPU at the first use, as text that the driver has never compiled, or before."""
    text = (HERE / "kernels.ptx").read_bytes()

    def load() -> None:
        for number in range(8):
            new = f"\n// {time.time_ns()} {number}\n\0".encode()
            ask(driver.cuModuleLoadData(text + new))

    if is_ready:
        load()
    yield
    for step in steps():
        if not (step or is_ready):
            with nvtx_op("load libraries"):
                load()
        forward(gpu)
    yield


def checkpoints(gpu: Gpu, *, in_thread: bool) -> Program:
    """Fetch and write the weights every ten iterations, or have a thread do that with a copy on the device."""
    size = 16 * BYTES
    weights, copy, done = device(size), device(size), event()
    fetched = (ctypes.c_uint8 * size)()
    ask(driver.cuMemsetD8Async(weights, 5, size, gpu.a))
    gpu.wait(gpu.a)
    path = Path(tempfile.mkstemp(prefix="weights")[1])

    def save(place: Any) -> None:
        gpu.enter()
        ask(driver.cuEventSynchronize(done))
        ask(driver.cuMemcpyDtoH(ctypes.addressof(fetched), place, size))
        with path.open("wb") as file:
            file.write(memoryview(fetched))

    yield
    with ThreadPoolExecutor(1, "writer") as pool:
        for step in steps():
            forward(gpu)
            if step % 10 != 9:
                continue
            with nvtx_op("checkpoint"):
                if in_thread:
                    ask(driver.cuMemcpyDtoDAsync(copy, weights, size, gpu.a))
                ask(driver.cuEventRecord(done, gpu.a))
                if in_thread:
                    job = pool.submit(save, copy)
                else:
                    save(weights)
        if in_thread:
            job.result()
    yield path.read_bytes() == b"\5" * size
    path.unlink()
    ask(driver.cuMemFree(weights))
    ask(driver.cuMemFree(copy))


def python_lock(gpu: Gpu, *, in_thread: bool) -> Program:
    """Have Python code run beside the launches, in a thread, which holds Python's lock, or in a process.

    The program needs its waits for the GPU in both; in each the thread takes the lock.
    """
    ended, child = threading.Event(), None

    def spin() -> None:
        while not ended.is_set():
            sum(range(1000))

    other = threading.Thread(target=spin, name="spinning")
    if in_thread:
        other.start()
    else:
        child = subprocess.Popen([sys.executable, "-S", "-c", SPIN], env={**os.environ})
    try:
        yield
        for _ in steps(15):
            forward(gpu, ns=250 * US)
            with nvtx_op("wait"):
                gpu.wait(gpu.a)
        yield
    finally:
        ended.set()
        if child is None:
            other.join()
        else:
            child.kill()
            child.wait()


def logging(gpu: Gpu, *, every: int) -> Program:
    """Format and write many numbers in each iteration, or in some."""
    numbers = {f"weight {number}": number / 7 for number in range(3_000)}
    with tempfile.TemporaryFile("w", encoding="utf-8") as file:
        yield
        for step in steps():
            forward(gpu, ns=250 * US)
            if step % every == every - 1:
                with nvtx_op("log"):
                    print(json.dumps({"step": step, **numbers}), file=file, flush=True)
        yield


PAIRS = (
    of(waiting, "wait-each-step", {"waits": True}, {"waits": False}, "synchronization"),
    of(waiting_after_kernels, "wait-after-kernels", {"waits": True}, {"waits": False}, "synchronization"),
    of(polling, "polling", {"polls": True}, {"polls": False}, "synchronization", "host-bound"),
    of(value, "value-each-step", {"every": 1}, {"every": 20}, "numbers-read-back"),
    of(
        copying, "pageable-copies", {"is_pinned": False}, {"is_pinned": True}, "pageable-memcpys",
        simulated="pageable_copies",
    ),
    of(
        copying_blocked, "blocking-copies", {"blocks": True}, {"blocks": False}, "synchronous-memcpys",
        simulated="blocking_copies",
    ),
    of(
        copying_in_pieces, "small-copies", {"pieces": 256}, {"pieces": 1}, "small-memcpys",
        simulated="small_copies",
    ),
    of(
        allocating, "allocation-in-loop", {"in_loop": True}, {"in_loop": False}, "allocation",
        simulated="allocation_in_loop",
    ),
    of(small_kernels, "small-kernels", {"as_graph": False}, {"as_graph": True}, "launch-bound"),
    of(
        default_stream, "default-stream", {"is_legacy": True}, {"is_legacy": False}, "default-stream",
        simulated="default_stream",
    ),
    of(one_stream, "one-stream", {"is_one": True}, {"is_one": False}, "small-grids"),
    of(uneven_streams, "uneven-streams", {"first": 5}, {"first": 3}),
    of(slow_kernel, "slow-kernel", {"ns": 6 * MS}, {"ns": 3 * MS}, "kernel-hotspot"),
    of(host_code, "host-code", {"ns": 2 * MS}, {"ns": MS // 5}, "host-bound"),
    of(loading, "loader-in-main", {"workers": 0}, {"workers": 4}, "single-process-loader", "data-loading", "host-bound"),
    of(prefetching, "small-prefetch", {"ahead": 1}, {"ahead": 16}, "data-loading"),
    of(
        libraries, "first-calls", {"is_ready": False}, {"is_ready": True}, "paid-once", "recompilation",
        simulated="first_calls",
    ),
    of(
        checkpoints, "checkpoints", {"in_thread": False}, {"in_thread": True},
        "checkpoint", "host-bound", "pageable-memcpys", simulated="checkpoint",
    ),
    of(python_lock, "python-lock", {"in_thread": True}, {"in_thread": False}, "python-lock", "host-bound", "launch-bound"),
    of(logging, "logging", {"every": 1}, {"every": 10}, "host-bound"),
)  # fmt: skip
