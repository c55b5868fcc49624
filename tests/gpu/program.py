"""A CUDA program of which it is known to the last kernel which op launches what: the truth that captures are held against.

    python program.py [--only SCENE,…] [--skip SCENE,…] [--expect FILE] [--code kernels.sm_90.cubin]

Through the driver API of cuda-bindings alone: neither NVRTC nor a CUDA runtime nor PyTorch is needed. The kernels are
`kernels.ptx`, which the driver compiles; each turns for the time it is told and then adds one to a counter, so that the
program itself can check that all of them ran. Every scene adds to `truth` what it launched, where it launches it;
`--expect` writes that, with a line per (op, what, count) and the scene it is of.

A scene that the driver cannot do says so in `skipped` and adds nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from bridge import nvtx_op

HERE = Path(__file__).parent
US = 1_000
SHORT, LONG = 20 * US, 2_000 * US  # ns that a kernel turns
BYTES = 1 << 20
NON_BLOCKING, GLOBAL, DEFAULT_STREAM = 1, 1, 1  # flags, the same in every version
truth: Counter[tuple[str, str, str]] = (
    Counter()
)  # (scene, op or "", kernel or direction): activities
skipped: dict[str, str] = {}
scene = ""


class Refused(RuntimeError):
    """The driver refused a call."""


def ask(answer: tuple[Any, ...]) -> Any:
    """Return what a call of the driver answers beside its status."""
    status, *rest = answer
    if int(status):
        raise Refused(status.name)
    return rest[0] if len(rest) == 1 else tuple(rest)


class Gpu:
    """Device 0 with the primary context, the kernels, a counter and two streams that wait for no other."""

    def __init__(self, code: Path) -> None:
        ask(driver.cuInit(0))
        self.device = ask(driver.cuDeviceGet(0))
        self.context = ask(driver.cuDevicePrimaryCtxRetain(self.device))
        self.enter()
        image = code.read_bytes() + b"\0"
        self.module = ask(driver.cuModuleLoadData(image))
        self._functions: dict[str, Any] = {}
        self.counter = ask(driver.cuMemAlloc(4))
        self.a, self.b = (ask(driver.cuStreamCreate(NON_BLOCKING)) for _ in range(2))
        ask(driver.cuMemsetD8Async(self.counter, 0, 4, self.a))
        truth["setup", "", "[memset]"] += 1
        self.wait(self.a)
        self.launched = 0

    def enter(self) -> None:
        """Have this thread use the context."""
        ask(driver.cuCtxSetCurrent(self.context))

    def function(self, name: str) -> Any:
        """Return a kernel."""
        if name not in self._functions:
            self._functions[name] = ask(driver.cuModuleGetFunction(self.module, name.encode()))
        return self._functions[name]

    def launch(self, name: str, stream: Any = None, ns: int = SHORT) -> None:
        """Launch a kernel of one thread; who calls this says in `truth` whose it is."""
        arguments = ((int(self.counter), ns), (ctypes.c_uint64, ctypes.c_uint64))
        stream = self.a if stream is None else stream
        ask(driver.cuLaunchKernel(self.function(name), 1, 1, 1, 1, 1, 1, 0, stream, arguments, 0))

    def wait(self, stream: Any = None) -> None:
        """Wait for a stream, or for all."""
        ask(driver.cuCtxSynchronize() if stream is None else driver.cuStreamSynchronize(stream))


gpu: Gpu


def ran(op: str, what: str, count: int = 1) -> None:
    """Say what was launched in an op."""
    truth[scene, op, what] += count
    if what.startswith("k_"):
        gpu.launched += count


# --- scenes --------------------------------------------------------------------------------------


def nested() -> None:
    """Ops in ops: the innermost has the kernel; a call in none has none."""

    @nvtx_op
    def inner() -> None:
        gpu.launch("k_inner")
        ran("inner", "k_inner")

    @nvtx_op
    def forward() -> None:
        gpu.launch("k_forward")
        ran("forward", "k_forward")
        inner()
        gpu.launch("k_forward")
        ran("forward", "k_forward")

    for _ in range(3):
        forward()
    for _ in range(2):
        gpu.launch("k_outside")
        ran("", "k_outside")


def after_the_end() -> None:
    """Kernels that run long after their op has returned, on two streams at once, belong to who launched them."""

    @nvtx_op("left")
    def left() -> None:
        for _ in range(4):
            gpu.launch("k_left", gpu.a, LONG)
            ran("left", "k_left")

    @nvtx_op("right")
    def right() -> None:
        for _ in range(4):
            gpu.launch("k_right", gpu.b, LONG)
            ran("right", "k_right")

    left()
    right()
    with nvtx_op("waiting"):
        gpu.wait()


def threads() -> None:
    """Two threads at once, each in an op of its own."""
    gate = threading.Barrier(2)

    def work(number: int) -> None:
        gpu.enter()
        gate.wait()
        for _ in range(10):
            with nvtx_op(f"worker {number}"):
                gpu.launch("k_thread", gpu.a if number else gpu.b)

    both = [
        threading.Thread(target=work, args=(number,), name=f"worker-{number}")
        for number in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    for number in range(2):
        ran(f"worker {number}", "k_thread", 10)


def coroutines() -> None:
    """Two coroutines interleaved on one thread, whose ranges never nest in one another."""

    @nvtx_op("job")
    async def job(name: str) -> None:
        for _ in range(5):
            with nvtx_op(name):
                gpu.launch("k_async")
                ran(name, "k_async")
            await asyncio.sleep(0)
            gpu.launch("k_async")
            ran("job", "k_async")
            await asyncio.sleep(0)

    async def both() -> None:
        await asyncio.gather(job("job one"), job("job two"))

    asyncio.run(both())


def generators() -> None:
    """A generator's launches are its own, its consumer's are not."""

    @nvtx_op("produce")
    def produce() -> Iterator[None]:
        for _ in range(4):
            gpu.launch("k_generator")
            ran("produce", "k_generator")
            yield

    for _ in produce():
        gpu.launch("k_outside")
        ran("", "k_outside")


def copies() -> None:
    """Copies each way, and memsets."""
    host = (ctypes.c_uint8 * BYTES)()
    one, other = ask(driver.cuMemAlloc(BYTES)), ask(driver.cuMemAlloc(BYTES))
    with nvtx_op("copies"):
        address = ctypes.addressof(host)
        ask(driver.cuMemcpyHtoDAsync(one, address, BYTES, gpu.a))
        ask(driver.cuMemcpyDtoDAsync(other, one, BYTES, gpu.a))
        ask(driver.cuMemcpyDtoHAsync(address, other, BYTES, gpu.a))
        ask(driver.cuMemsetD8Async(one, 1, BYTES, gpu.a))
        ask(driver.cuMemsetD8Async(other, 2, BYTES, gpu.a))
        gpu.wait(gpu.a)
    for what in ("Host-to-Device", "Device-to-Device", "Device-to-Host"):
        ran("copies", what)
    ran("copies", "[memset]", 2)
    ask(driver.cuMemFree(one))
    ask(driver.cuMemFree(other))


def graphs() -> None:
    """A graph captured in two ops and replayed in a third: nodes belong to the op that they were captured in."""
    ask(
        driver.cuStreamBeginCapture(
            gpu.a, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        )
    )
    with nvtx_op("captured a"):
        gpu.launch("k_graph_a")
        gpu.launch("k_graph_a")
    with nvtx_op("captured b"):
        gpu.launch("k_graph_b")
    graph = ask(driver.cuStreamEndCapture(gpu.a))
    ready = ask(driver.cuGraphInstantiate(graph, 0))
    with nvtx_op("replay"):
        for _ in range(4):
            ask(driver.cuGraphLaunch(ready, gpu.a))
        gpu.wait(gpu.a)
    ran("captured a", "k_graph_a", 8)
    ran("captured b", "k_graph_b", 4)


def built() -> None:
    """A graph of nodes added by hand."""
    graph = ask(driver.cuGraphCreate(0))
    node = driver.CUDA_KERNEL_NODE_PARAMS()
    node.func = gpu.function("k_node")
    node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = (
        node.blockDimZ
    ) = 1
    node.kernelParams = ((int(gpu.counter), SHORT), (ctypes.c_uint64, ctypes.c_uint64))
    with nvtx_op("built"):
        ask(driver.cuGraphAddKernelNode(graph, None, 0, node))
    ready = ask(driver.cuGraphInstantiate(graph, 0))
    with nvtx_op("replay of built"):
        for _ in range(3):
            ask(driver.cuGraphLaunch(ready, gpu.a))
        gpu.wait(gpu.a)
    ran("built", "k_node", 3)


def pool() -> None:
    """Memory of a pool, in the order of a stream."""
    with nvtx_op("pool"):
        place = ask(driver.cuMemAllocAsync(BYTES, gpu.a))
        ask(driver.cuMemsetD8Async(place, 0, BYTES, gpu.a))
        gpu.launch("k_pool")
        ask(driver.cuMemFreeAsync(place, gpu.a))
        gpu.wait(gpu.a)
    ran("pool", "[memset]")
    ran("pool", "k_pool")


def events() -> None:
    """A stream that waits for an event of the other."""
    with nvtx_op("events"):
        event = ask(driver.cuEventCreate(0))
        gpu.launch("k_left", gpu.a, LONG)
        ask(driver.cuEventRecord(event, gpu.a))
        ask(driver.cuStreamWaitEvent(gpu.b, event, 0))
        gpu.launch("k_right", gpu.b)
        ask(driver.cuEventSynchronize(event))
        gpu.wait(gpu.b)
    ran("events", "k_left")
    ran("events", "k_right")


def managed() -> None:
    """A little managed memory (1 MiB): touched by the host, then by the GPU. Migrations are not counted."""
    place = ask(driver.cuMemAllocManaged(BYTES, GLOBAL))
    ctypes.memset(int(place), 0, BYTES)
    arguments = ((int(place), SHORT), (ctypes.c_uint64, ctypes.c_uint64))
    with nvtx_op("managed"):
        function = gpu.function("k_managed")
        ask(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, gpu.a, arguments, 0))
        gpu.wait(gpu.a)
    truth[scene, "managed", "k_managed"] += 1  # it counts in its own memory
    if ctypes.c_uint32.from_address(int(place)).value != 1:
        raise SystemExit("managed: the kernel did not run")
    ask(driver.cuMemFree(place))


def green() -> None:
    """A stream of a green context, on 8 of the SMs."""
    kind = driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    whole = ask(driver.cuDeviceGetDevResource(gpu.device, kind))
    groups, _, _ = ask(driver.cuDevSmResourceSplitByCount(1, whole, 0, 8))
    described = ask(driver.cuDevResourceGenerateDesc(groups, 1))
    context = ask(driver.cuGreenCtxCreate(described, gpu.device, DEFAULT_STREAM))
    stream = ask(driver.cuGreenCtxStreamCreate(context, NON_BLOCKING, 0))
    with nvtx_op("green"):
        gpu.launch("k_green", stream)
        gpu.wait(stream)
    ran("green", "k_green")


def child() -> None:
    """A process of its own, which a tool follows."""
    command = [sys.executable, str(Path(__file__)), "--child", "--code", str(options.code)]
    subprocess.run(command, check=True)
    truth[scene, "child", "k_child"] += 3
    truth[scene, "", "[memset]"] += 1  # its own setup, and what it counted
    truth[scene, "", "Device-to-Host"] += 1


def in_child() -> None:
    """What the child does."""
    for _ in range(3):
        with nvtx_op("child"):
            gpu.launch("k_child")
            gpu.launched += 1


def steps() -> None:
    """Steps of a session; `--session` says that a capture hears two of six (see check.sh)."""
    import bridge

    schedule = bridge.schedule(wait=2, warmup=1, active=2, repeat=1)
    with bridge.profile(schedule=schedule, capture="cudaProfilerApi") as session:
        for number in range(6):
            with nvtx_op("step op"):
                gpu.launch("k_step")
                gpu.wait(gpu.a)
            gpu.launched += 1
            truth[scene if number in (3, 4) else "not captured", "step op", "k_step"] += 1
            session.step()


SCENES: dict[str, Callable[[], None]] = {
    made.__name__: made
    for made in (
        nested, after_the_end, threads, coroutines, generators, copies, graphs, built, pool, events, managed, green, child,
    )
}  # fmt: skip


def main() -> None:
    """Run the scenes, check that every kernel ran, write the truth."""
    global gpu, scene
    gpu = Gpu(options.code)
    if options.child:
        in_child()
    elif options.session:
        scene = "steps"
        steps()
    else:
        for name in options.only or [name for name in SCENES if name not in options.skip]:
            scene = name
            before = truth.copy()
            launched = gpu.launched
            try:
                SCENES[name]()
            except (Refused, AttributeError, RuntimeError) as problem:
                skipped[name] = repr(problem)
                truth.clear()
                truth.update(before)
                if gpu.launched != launched:
                    raise
    gpu.wait()
    counted = ctypes.c_uint32()
    ask(driver.cuMemcpyDtoH(ctypes.addressof(counted), gpu.counter, 4))
    truth["setup", "", "Device-to-Host"] += 1
    if counted.value != gpu.launched:
        raise SystemExit(f"{counted.value} kernels ran, {gpu.launched} were launched")
    if not options.child:
        rows = [[*key, count] for key, count in sorted(truth.items())]
        said = {"truth": rows, "skipped": skipped, "kernels": gpu.launched, "pid": os.getpid()}
        if options.expect:
            options.expect.write_text(json.dumps(said, indent=1), encoding="utf-8")
        print(f"{gpu.launched} kernels launched and run; skipped: {skipped or 'nothing'}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    names = {"type": lambda text: text.split(",")}
    parser.add_argument("--only", default=[], **names)
    parser.add_argument("--skip", default=[], **names)
    parser.add_argument("--expect", type=Path)
    parser.add_argument("--code", type=Path, default=HERE / "kernels.ptx")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--session", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    main()
