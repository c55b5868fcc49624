"""For every rule a program that it must fire on, and one as near to it as can be on which it must not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from made_reports import process, thread

from advice.story import PAGEABLE, PINNED, TO_DEVICE, TO_HOST, Story
from bridge.annotate.stack import CALL_ID_BASE
from bridge.importers.ncu.metrics import Kernel, Rule, metrics_of
from bridge.report import Report

Telling = Callable[[], Story]
CATEGORY = 33  # kind of annotations that name one


def steady(kernels: int = 200, us: int = 50) -> Story:
    """A GPU that is always busy."""
    story = Story()
    with story.op("work"):
        for _ in range(kernels):
            story.kernel(us=us)
    return story


def failing(result: int) -> Story:
    """A program of five kernels, after which a launch returns a value, and nothing is tried again."""
    story = used(0.6)
    with story.op("work"):
        story.call("cudaLaunchKernel_v7000", result=result)
    return story


def launched_unseen(*, recorded: bool) -> Story:
    """A program whose kernels are launched with success, and recorded or not."""
    story = Story()
    for _ in range(300):
        story.kernel(us=50)
    if not recorded:
        story.tables["kernels"].clear()
    return story


def started(*, runs: bool) -> Story:
    """A program that makes a context and fills a little memory, and ends there or runs one kernel."""
    story = Story()
    story.call("cudaFree_v3020", us=2_000)
    story.fill(us=1)
    if runs:
        story.kernel(us=50)
    return story


def used(share: float) -> Story:
    """A GPU that is busy for a share of the time, evenly."""
    story = Story()
    with story.op("work"):
        for _ in range(300):
            story.kernel(us=100)
            story.now = story.done + round(100 / share) - 100
    return story


def gap(us: int) -> Story:
    """10 ms of work, a gap, 10 ms of work."""
    story = steady()
    story.now = story.done + us
    for _ in range(200):
        story.kernel(us=50)
    return story


def annotated(us: int) -> Story:
    """Four iterations of 992 µs in a range of a module that cost so much, a kernel of 100 µs, and a wait for it."""
    story = Story()
    story.range_us = us
    story.annotation(CATEGORY, 1, None, text="module", category=7, thread=thread(story.pid))
    for number in range(4):
        with story.op("slow", payload=CALL_ID_BASE + 1 + number, category=7):
            story.rest(990)
        story.kernel(us=100)
        story.wait()
    return story


def resting(us: int, profiled: int = 0) -> Story:
    """10 ms of work, a rest of the host that begins with it, in part because of the profiler, and 10 ms of work."""
    story = steady()
    if profiled:
        story.profiled(profiled)
    story.rest(us)
    for _ in range(200):
        story.kernel(us=50)
    return story


WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


def loading(us: int, name: str = WORKERS, *, waits: bool = True) -> Story:
    """Ten steps, each of which loads data, or waits for those that do, and then computes for 1000."""
    story = Story()
    for number in range(10):
        with story.op(f"step {number}"):
            with story.op(name):
                if waits:
                    story.system("poll", us)
                else:
                    story.rest(us)
            with story.op("train"):
                for _ in range(10):
                    story.kernel(us=100)
            story.now = story.done
    return story


def in_steps(*extra: Callable[[Story, int], None], steps: int = 6) -> Story:
    story = Story()
    for number in range(steps):
        with story.op(f"step {number}"):
            for one in extra:
                one(story, number)
            for _ in range(10):
                story.kernel(us=100)
        story.now = story.done
    return story


def locked(asked: int, op: str = "train") -> Callable[[Story, int], None]:
    """Wait for a lock twice, so long and then for 1000 at once, while another thread runs Python code."""

    def waits(story: Story, _number: int) -> None:
        with story.beside(2, story.now), story.op("tokenize"):
            story.rest(asked + 1_000)
        with story.op(op):
            story.system("pthread_cond_timedwait", asked)
            story.system("pthread_cond_timedwait", 1_000)

    return waits


def late(us: int) -> Story:
    """Forty kernels of 100, launched at once, of which each fourth begins so long after the one before has ended."""
    story = Story()
    with story.op("train"):
        for number in range(40):
            story.done += us if number % 4 == 3 else 0
            story.kernel(us=100)
    return story


def checkpoint(*, size: int = 8_000_000, ahead: bool = False, writes: str = "write") -> Story:
    """Six steps: a kernel of 1000, whose result is copied for 400 and written to a file for 600, and a small kernel.

    With ``ahead`` that one is launched before the file is written.
    """
    story = Story()
    for number in range(6):
        with story.op(f"step {number}"):
            story.kernel(us=1_000)
            with story.op("save"):
                ends = story.done + 400
                held = ends + 10 - story.now
                story.copy(400, way=TO_HOST, size=size, api="cudaMemcpy_v3020", held=held)
                if ahead:
                    story.kernel("check", us=10)
                story.rest(50)
                story.system(writes, 600)
            if not ahead:
                story.kernel("check", us=10)
        story.now = max(story.now, story.done)
    return story


def handed_on(gpus: int, *, begun: bool = True, steps: int = 4, tensors: int = 1) -> Story:
    """Steps of four kernels of 100, for which a stream waits that then runs four others, of another GPU if there are two.

    The host waits for each step. With ``begun`` the second stream has run a kernel before, for which the host waited.
    """
    story = Story(gpus=gpus)
    if begun:
        story.device = gpus - 1
        story.kernel(us=10, stream=8)
        story.wait("cudaDeviceSynchronize_v3020")
    for number in range(steps):
        with story.op(f"step {number}"):
            story.device = 0
            for _ in range(4):
                story.kernel("first", us=100)
            for tensor in range(tensors):
                story.event_wait(8, 10 * tensor + number + 1, 7)
            story.device = gpus - 1
            for _ in range(4):
                story.kernel("second", us=100, stream=8)
            story.wait("cudaDeviceSynchronize_v3020")
    return story


def compiling(first: int, last: int) -> Callable[[Story, int], None]:
    def compiled(story: Story, number: int) -> None:
        if first <= number <= last:
            with story.op("torch.compile"):
                story.rest(500)

    return compiled


def claiming(first: int, last: int) -> Callable[[Story, int], None]:
    def claims(story: Story, number: int) -> None:
        if first <= number <= last:
            story.call("cudaMalloc_v3020", 200)

    return claims


def out_of_memory(story: Story, _number: int) -> None:
    """Fail to allocate, release what is cached behind a wait, and try again; other memory is no part of it."""
    with story.op("aten::empty"):
        story.call("cudaMalloc_v3020", 50, result=2)
        story.call("cudaDeviceSynchronize_v3020", 5)
        story.call("cudaFree_v3020", 300)
        story.call("cudaMalloc_v3020", 100)
        story.call("cudaHostAlloc_v3020", 60)
    with story.op("allocate"):
        story.call("cudaMalloc_v3020", 70)


def launching(idle: int, us: int) -> Story:
    story = Story()
    with story.op("many"):
        for _ in range(200):
            story.kernel(us=us)
            story.now = max(story.now, story.done + idle)
    return story


def staged(host: int, us: int = 1_000) -> Story:
    """Ten copies, each of which ends with its call, before a kernel of 200."""
    story = Story()
    for _ in range(10):
        held = max(story.done, story.now + 2) + us - story.now
        story.copy(us, host=host, held=held)
        story.kernel(us=200)
    return story


def pieces(count: int, size: int = 4_096) -> Story:
    """Five kernels of 100, each after copies of small pieces."""
    story = Story()
    for _ in range(5):
        with story.op("pack"):
            for _ in range(count):
                story.copy(2, size=size)
        story.kernel(us=100)
    return story


def faulting(before: int) -> Story:
    """Three kernels of 1000, and ten pages of 60 KB each, which move within 500, so long before their end."""
    story = Story()
    for _ in range(3):
        story.kernel(us=1_000)
        for number in range(10):
            story.page(story.done - before + 50 * number, 50, 60_000)
        story.done += max(0, 500 - before)  # the next kernel begins behind the pages
    return story


def blocking(api: str) -> Story:
    story = Story()
    with story.op("read"):
        for _ in range(20):
            story.kernel(us=100)
            story.copy(50, way=TO_DEVICE, api=api, held=160)
            story.rest(40)
    return story


def filling(api: str) -> Story:
    story = Story()
    with story.op("clear"):
        for _ in range(20):
            story.kernel(us=100)
            story.fill(5, api, held=110)
            story.rest(20)
    return story


def in_two_streams(kind: int) -> Story:
    """Kernels of 100 by turns in the legacy default stream and in one of a kind: 1 blocks, 2 does not."""
    story = Story()
    for stream, known in ((7, 3), (13, kind)):
        listed = {"pid": story.pid, "context": 1, "stream": stream, "kind": known}
        story.tables["cuda_streams"].append(listed)
    for number in range(20):
        story.kernel(us=100, stream=(7, 13)[number % 2])
    return story


def building(us: int, op: str = "build") -> Story:
    """A program that builds for a while, and then computes for 1000."""
    story = Story()
    with story.op(op):
        story.rest(us)
    with story.op("work"):
        for _ in range(20):
            story.kernel(us=50)
    return story


def hot(*names: str) -> Story:
    story = Story()
    for _ in range(20):
        for name in names:
            story.kernel(name, us=100)
        story.kernel("small", us=20)
    return story


def copying(us: int, computing: int) -> Story:
    story = Story()
    for _ in range(20):
        story.copy(us, host=PINNED)
        story.kernel(us=computing)
    return story


def waiting(*, waits: bool) -> Story:
    story = Story()
    with story.op("loop"):
        for _ in range(50):
            story.kernel(us=100)
            if waits:
                story.wait()
                story.rest(40)
    return story


def reading(size: int) -> Story:
    story = Story()
    with story.op("loop"):
        for _ in range(50):
            story.kernel(us=100)
            with story.op("aten::item"):
                story.copy(2, way=TO_HOST, size=size)
                story.wait()
            story.rest(40)
    return story


def grids(blocks: int) -> Story:
    story = Story()
    with story.op("small"):
        for _ in range(20):
            story.kernel(us=100, blocks=blocks)
    return story


FP32, FP16 = "ampere_sgemm_128x64_tn", "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_tn"


def products(*names: str, op: str = "aten::mm", **gpu: int) -> Story:
    story = Story(**gpu)
    for name in names * 10:
        with story.op(op):
            story.kernel(name, 100)
    return story


def casting(us: int) -> Story:
    story = Story()
    for _ in range(20):
        with story.op("aten::mm"):
            story.kernel(FP16, 100)
        with story.op("aten::to"), story.op("aten::_to_copy"), story.op("aten::copy_"):
            story.kernel("unrolled_elementwise_kernel", us)
    return story


def two_gpus(op: str, *, gpus: int = 2) -> Story:
    story = Story(gpus=2)
    for number in range(20):
        with story.op(op):
            story.device = number % gpus
            story.kernel(us=100)
    return story


def ddp(op: str, **gpu: int) -> Story:
    story = Story(**gpu)
    for _ in range(20):
        with story.op(op):
            story.rest(100)
        story.kernel(us=100)
    return story


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def communicating(us: int, *, hidden: bool = False) -> Story:
    """Kernels of 100 µs and two collectives after each, these alone or while a kernel runs in another stream."""
    story = Story()
    with story.op("train"):
        for _ in range(20):
            story.kernel(us=100)
            before = story.done
            if hidden:
                story.done -= 2 * us
            for _ in range(2):
                story.kernel(NCCL, us, stream=20 if hidden else 7)
            story.done = max(story.done, before)
    return story


def ranks(us: int, late: int = 0) -> Story:
    """Two GPUs that reduce together after kernels, of 100 on the first; the second one is slower, or later on the host."""
    story = Story(gpus=2)
    done = [0, 0]
    for _ in range(20):
        for device, computing in ((0, 100), (1, us)):
            story.device, story.done = device, done[device]
            story.rest(device * late)
            story.kernel(us=computing)
            done[device] = story.done
        met = max(done)
        for device in (0, 1):
            story.device, story.done = device, done[device]
            story.kernel(NCCL, met - done[device] + 20)
            done[device] = story.done
    return story


def augmenting(us: int) -> Story:
    """Two threads with a GPU each, which reduce together after a kernel and wait; before, the second one does something."""
    story = Story(gpus=2)
    at = [(story.now, story.done)] * 2
    for _ in range(20):
        for device in (0, 1):
            story.device, story.number, (story.now, story.done) = device, device + 1, at[device]
            with story.op("augment" if device else "read"):
                story.rest(us * device + 10)
            story.kernel(us=100)
            at[device] = story.now, story.done
        met = max(done for _, done in at)
        for device in (0, 1):
            story.device, story.number, (story.now, story.done) = device, device + 1, at[device]
            story.kernel(NCCL, met - story.done + 20)
            story.wait()
            at[device] = story.now, story.done
    return story


def uneven(us: int) -> Story:
    """Twenty kernels on each of two GPUs of a process, of 100 on the first."""
    story = Story(gpus=2)
    done = [0, 0]
    for _ in range(20):
        for device, computing in ((0, 100), (1, us)):
            story.device, story.done = device, done[device]
            story.kernel(us=computing)
            done[device] = story.done
    return story


def shared(*others: str) -> Story:
    """A process with two kinds of kernels of 50, and a second one with others of 100 on the same GPU, in turn."""
    story = Story()
    story.tables["processes"].append({"process": process(200), "name": "other"})
    for number in range(20):
        story.pid = 100
        story.kernel("relu", us=50)
        story.kernel("gemm", us=50)
        story.pid = 200
        story.kernel(others[number % len(others)], us=100)
    return story


def on_the_host(first: str, *, on_gpu: bool) -> Story:
    story = Story()
    for _ in range(20):
        with story.op(first):
            if on_gpu:
                story.kernel("vectorized_elementwise_kernel", 5)
        with story.op("aten::to"), story.op("aten::_to_copy"), story.op("aten::copy_"):
            story.copy(50, host=PAGEABLE)
        story.kernel(us=100)
    return story


def zeroing(op: str) -> Story:
    story = Story()
    for _ in range(10):
        with story.op(op):
            for _ in range(10):
                with story.op("aten::zero_"):
                    story.fill(20)
        story.kernel(us=500)
    return story


def stepping(name: str, kernels: int = 40) -> Story:
    story = Story()
    for _ in range(10):
        with story.op("Optimizer.step#Adam.step"):
            for _ in range(kernels):
                with story.op("aten::mul_"):
                    story.kernel(name, 3)
                    story.now = max(story.now, story.done)
    return story


def normalised(shapes: str, second: str = "aten::batch_norm") -> Story:
    story = Story()
    for number in range(10):
        with story.op(f"aten::conv2d, op_id = {number + 1}, sizes = {shapes}"):
            story.kernel("cudnn_conv", 100)
        with story.op(f"{second}, op_id = {number + 100}, sizes = [[8, 64, 32, 32], [64]]"):
            story.kernel("bn_fw_tr_1C11_singleread", 50)
    return story


def aligned(shapes: str, name: str = FP16) -> Story:
    story = Story()
    for number in range(10):
        with story.op(f"aten::mm, op_id = {number + 1}, sizes = {shapes}"):
            story.kernel(name, 100)
    return story


def indexing(times: int, op: str = "aten::select") -> Story:
    story = Story()
    with story.op("loop"):
        for number in range(times):
            with story.op(f"{op}, op_id = {number + 1}"):
                story.kernel("index_kernel", 5)
                story.rest(20)
    return story


def allocating(share: float) -> Story:
    story = steady()
    story.tables["gpus"][0]["memory_bytes"] = 80 << 30
    for number in range(10):
        value = int(share * (80 << 30) * (number + 1) / 10)
        story.annotation(
            34, number * 1_000, None, text="counter:memory_allocated", payload=value, domain=9,
            thread=100 << 24 | 1,
        )  # fmt: skip
    story.annotation(75, 1, None, text="memory", domain=9, thread=100 << 24 | 1)
    return story


def with_graphs(graphs: int) -> Story:
    story = steady()
    with story.op("replay"):
        for _ in range(graphs):
            story.graph()
    return story


def outside(kernels: int) -> Story:
    story = steady()
    for _ in range(kernels):
        story.kernel(us=50)
    return story


class Measured(Story):
    """A GPU whose kernels Nsight Compute looked at: it estimates so much of a scope."""

    def __init__(self, scope: str, speedup: float, kind: str) -> None:
        super().__init__()
        self.rule = Rule("Launch", "LaunchConfiguration", kind, "Too few blocks.", scope, speedup)

    def load(self, folder: Path) -> Report:
        """Give the report with what was measured."""
        joined = super().load(folder)
        kernels = [
            Kernel("relu", "relu", rules=[self.rule]) for _ in joined.capture.activities.start
        ]
        report = replace(joined.capture, metrics=metrics_of(kernels))
        return Report(replace(joined.attributed, capture=report))


def measured(scope: str, speedup: float, kind: str = "OPT") -> Story:
    story = Measured(scope, speedup, kind)
    with story.op("work"):
        for _ in range(20):
            story.kernel(us=50)
    return story


BATCHES = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
FIRES: Mapping[str, Telling] = {
    "allocation": lambda: in_steps(claiming(0, 5)),
    "memory-ran-out": lambda: in_steps(out_of_memory),
    "late-work": lambda: late(200),
    "python-lock": lambda: in_steps(locked(5_000)),
    "checkpoint": checkpoint,
    "pipeline-bubble": lambda: handed_on(2),
    "small-memcpys": lambda: pieces(10),
    "page-faults": lambda: faulting(900),
    "default-stream": lambda: in_two_streams(1),
    "profiler-overhead": lambda: resting(15_000, profiled=5_000),
    "annotations": lambda: annotated(40),
    "shared-gpu": lambda: shared("other"),
    "uneven-gpus": lambda: uneven(150),
    "paid-once": lambda: building(30_000),
    "kernel-hotspot": lambda: hot("big"),
    "memcpy-bound": lambda: copying(100, 10),
    "low-gpu-use": lambda: used(0.4),
    "data-loading": lambda: loading(2_000),
    "single-process-loader": lambda: loading(2_000, BATCHES, waits=False),
    "launch-bound": lambda: launching(20, 5),
    "host-bound": lambda: resting(15_000),
    "short-kernels": lambda: launching(5, 4),
    "recompilation": lambda: in_steps(compiling(3, 5)),
    "pageable-memcpys": lambda: staged(PAGEABLE),
    "synchronous-memcpys": lambda: blocking("cudaMemcpy_v3020"),
    "synchronous-memsets": lambda: filling("cudaMemset_v3020"),
    "synchronization": lambda: waiting(waits=True),
    "numbers-read-back": lambda: reading(4),
    "small-grids": lambda: grids(20),
    "no-tensor-cores": lambda: products(FP32),
    "tensor-cores-left": lambda: products(FP32, FP16),
    "single-precision": lambda: products(FP32),
    "casts": lambda: casting(20),
    "data-parallel": lambda: two_gpus("DataParallel.forward"),
    "slow-backend": lambda: ddp("gloo:all_reduce"),
    "exposed-communication": lambda: communicating(30),
    "stragglers": lambda: ranks(150),
    "late-rank": lambda: augmenting(50),
    "made-on-host": lambda: on_the_host("aten::zeros", on_gpu=False),
    "gradients-set-to-zero": lambda: zeroing("Optimizer.zero_grad#SGD.zero_grad"),
    "single-tensor-optimizer": lambda: stepping("vectorized_elementwise_kernel"),
    "bias-before-norm": lambda: normalised("[[8, 3, 32, 32], [64, 3, 3, 3], [64]]"),
    "misaligned-products": lambda: aligned("[[128, 100], [100, 257]]"),
    "indexing-in-a-loop": lambda: indexing(10),
    "memory-nearly-full": lambda: allocating(0.95),
    "failed-calls": lambda: failing(222),
    "not-recorded": lambda: launched_unseen(recorded=False),
    "no-device-work": lambda: started(runs=False),
    "opaque-graphs": lambda: with_graphs(3),
    "nsight-compute": lambda: measured("global", 40),
    "outside-ops": lambda: outside(100),
}
QUIET: Mapping[str, Telling] = {
    "allocation": lambda: in_steps(claiming(0, 0)),
    "memory-ran-out": lambda: in_steps(claiming(0, 5)),
    "late-work": lambda: late(100),
    "python-lock": lambda: in_steps(locked(4_700, "load batch")),
    "checkpoint": lambda: checkpoint(ahead=True),
    "pipeline-bubble": lambda: handed_on(1),
    "small-memcpys": lambda: pieces(9),
    "page-faults": lambda: faulting(-10),
    "default-stream": lambda: in_two_streams(2),
    "profiler-overhead": lambda: resting(9_000, profiled=5_000),
    "annotations": lambda: annotated(4),
    "shared-gpu": lambda: shared("relu", "gemm"),
    "uneven-gpus": lambda: uneven(110),
    "paid-once": lambda: building(2),
    "kernel-hotspot": lambda: hot("one", "two", "three", "four"),
    "memcpy-bound": lambda: copying(10, 100),
    "failed-calls": lambda: failing(0),
    "not-recorded": lambda: launched_unseen(recorded=True),
    "no-device-work": lambda: started(runs=True),
    "low-gpu-use": lambda: used(0.6),
    "data-loading": lambda: loading(2),
    "single-process-loader": lambda: loading(2_000),
    "launch-bound": lambda: launching(20, 100),
    "host-bound": lambda: resting(9_000),
    "short-kernels": lambda: launching(5, 15),
    "recompilation": lambda: in_steps(compiling(0, 0)),
    "pageable-memcpys": lambda: staged(PINNED),
    "synchronous-memcpys": lambda: blocking("cudaMemcpyAsync_v3020"),
    "synchronous-memsets": lambda: filling("cudaMemsetAsync_v3020"),
    "synchronization": lambda: waiting(waits=False),
    "numbers-read-back": lambda: reading(4_000),
    "small-grids": lambda: grids(108),
    "no-tensor-cores": lambda: products(FP32, compute_major=6, compute_minor=1),
    "tensor-cores-left": lambda: products(FP16),
    "single-precision": lambda: products(FP32, compute_major=7, compute_minor=5),
    "casts": lambda: casting(4),
    "data-parallel": lambda: two_gpus("DistributedDataParallel.forward"),
    "slow-backend": lambda: ddp("nccl:all_reduce"),
    "exposed-communication": lambda: communicating(30, hidden=True),
    "stragglers": lambda: ranks(100, late=50),
    "late-rank": lambda: augmenting(0),
    "made-on-host": lambda: on_the_host("aten::zeros", on_gpu=True),
    "gradients-set-to-zero": lambda: zeroing("forward"),
    "single-tensor-optimizer": lambda: stepping("multi_tensor_apply_kernel"),
    "bias-before-norm": lambda: normalised("[[8, 3, 32, 32], [64, 3, 3, 3], []]"),
    "misaligned-products": lambda: aligned("[[128, 104], [104, 256]]"),
    "indexing-in-a-loop": lambda: indexing(9),
    "memory-nearly-full": lambda: allocating(0.85),
    "opaque-graphs": steady,
    "nsight-compute": lambda: measured("global", 40, "INF"),
    "outside-ops": lambda: outside(10),
}
