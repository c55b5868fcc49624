"""What a program does, in numbers: the knobs that troubles and their remedies turn."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Self

from simulated.engine import MS, US


@dataclass
class Op:
    """An op: its name, its host code, and its kernels with their durations."""

    name: str
    host_ns: int
    kernels: list[tuple[str, int]]


@dataclass
class Loader:
    """How batches come: 0 workers load in the main thread."""

    workers: int = 4
    prefetch: int = 4  # batches per worker
    load_ns: float = 2 * MS
    spike_every: int = 0  # every so many batches one takes `spike` times as long
    spike: float = 1.0
    processes: bool = True  # workers are processes, else threads
    recorded: bool = False  # the workers' processes are in the report


@dataclass
class Plan:
    """A program without chance in it: everything is drawn before."""

    base: str = "training"
    iterations: int = 20
    ranks: int = 1
    one_process: bool = False  # the ranks are threads of one process
    annotated: bool = True
    pytorch: bool = True
    step_ranges: str = "step {}"  # "" for none
    sequence_numbers: bool = False  # texts as PyTorch's emit_nvtx writes them
    autograd_thread: bool = False
    visible_devices: bool = False  # every process calls its GPU 0
    stages: int = 1  # GPUs that one thread drives
    micro_batches: int = 8  # of a pipeline
    shares: tuple[float, ...] = ()  # of the work of one thread's GPUs, each beside an equal part
    latency_ns: int = 3 * US  # from the return of a launch to the begin of its kernel
    stream: str = "default"  # default, blocking, non_blocking, per_thread
    forward: list[Op] = field(default_factory=list)
    backward: list[Op] = field(default_factory=list)
    optimizer: list[Op] = field(default_factory=list)
    loader: Loader | None = field(default_factory=Loader)
    input_bytes: int = 4 << 20
    input_pinned: bool = True
    input_blocking: bool = False
    input_beside: bool = False  # in a stream of its own
    crowding: bool = False  # kernels that overlap slow one another down; never drawn
    graph: bool = False  # an iteration is one CUDA graph
    validate_every: int = 0  # iterations between validations
    log_every: int = 10  # iterations between values that are fetched to be printed
    keep: int = 1  # of so many values that are fetched one is
    start_ns: int = 60 * MS  # imports and the like, before the first CUDA call
    read_ns: int = 5 * MS  # reading files before the first iteration
    weights_bytes: int = 32 << 20
    weights_pinned: bool = False
    end_ns: int = 2 * MS  # after the last iteration
    bucket_ns: int = 0  # transfer of the gradients of an iteration
    overlap: bool = True  # communication beside the backward pass
    buckets: int = 4
    extra: dict[str, dict[str, float]] = field(default_factory=dict)  # troubles' fragments

    def gpu_ns(self) -> int:
        """Return what an iteration's kernels take on one rank."""
        ops = (*self.forward, *self.backward, *self.optimizer)
        return sum(ns for op in ops for _, ns in op.kernels)

    @property
    def plain_copies(self) -> bool:
        """Whether the program copies with cudaMemcpy, which works in the default stream."""
        return not self.pytorch and self.stream in {"default", "per_thread"} and self.stages == 1

    @classmethod
    def draw(cls, seed: int) -> Self:
        """Return a healthy program."""
        chance = random.Random(f"plan {seed}")
        plan = cls()
        plan.base = chance.choices(("training", "solver", "serving", "pipeline"), (7, 4, 2, 2))[0]
        if plan.base == "training":
            plan.ranks = chance.choices((1, 2, 4), (5, 3, 1))[0]
            plan.bucket_ns = chance.randrange(1, 4) * MS if plan.ranks > 1 else 0
        plan.iterations = chance.randrange(10, 61)
        plan.annotated = chance.random() < 0.8
        plan.pytorch = plan.base in {"training", "serving"} and chance.random() < 0.7
        plan.step_ranges = chance.choice(("", "step {}", "ProfilerStep#{}"))
        plan.sequence_numbers = plan.pytorch and chance.random() < 0.4
        plan.autograd_thread = plan.pytorch and chance.random() < 0.5
        plan.stream = chance.choices(("default", "non_blocking", "per_thread"), (6, 4, 1))[0]
        plan.one_process = plan.ranks > 1 and chance.random() < 0.25
        plan.visible_devices = chance.random() < 0.5
        # A kernel may begin before its launch has returned.
        plan.latency_ns = chance.choice((3 * US, 2 * US, 6 * US, -1 * US))
        plan.log_every = chance.choice((0, 10, 20))
        plan.start_ns = chance.randrange(10, 80) * MS
        plan.read_ns = chance.randrange(1, 20) * MS
        plan.input_bytes = chance.randrange(1, 17) << 20
        _draw_ops(plan, chance)
        _draw_loader(plan, chance)
        _draw_base(plan, chance)
        return plan


FORWARD_OPS = (
    ("aten::linear", "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn"),
    ("aten::scaled_dot_product_attention", "flash_fwd_kernel"),
    ("aten::layer_norm", "vectorized_layer_norm_kernel"),
    ("aten::gelu", "vectorized_elementwise_kernel"),
    ("aten::conv2d", "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc"),
    ("aten::softmax", "softmax_warp_forward"),
)
PLAIN_OPS = (
    ("stencil", "jacobi_kernel"),
    ("reduce", "norm_kernel"),
    ("smooth", "smooth_kernel"),
    ("exchange", "pack_kernel"),
    ("update", "axpy_kernel"),
)


def _draw_ops(plan: Plan, chance: random.Random) -> None:
    """Draw ops whose kernels keep the GPU busier than their host code keeps the host."""
    passes = 3 if plan.base == "training" else 1
    launches = chance.randrange(400, 3_000) // (plan.iterations * plan.ranks * passes)
    layers = max(4, min(launches, 60))
    kernel_ns = chance.randrange(60, 300) * US
    host_ns = chance.randrange(4, 16) * US
    names = FORWARD_OPS if plan.pytorch else PLAIN_OPS
    if plan.base == "pipeline":
        layers, kernel_ns = 8, chance.randrange(800, 3_000) * US
    for layer in range(layers):
        name, kernel = names[layer % len(names)]
        ns = round(kernel_ns * chance.uniform(0.5, 1.8))
        plan.forward.append(Op(name, host_ns, [(kernel, ns)]))
        if plan.base in {"training", "pipeline"}:
            back = name.removeprefix("aten::") + "_backward"
            plan.backward.insert(0, Op(back, host_ns, [(f"{kernel}_bwd", 2 * ns)]))
    # What each iteration begins with, and nothing else is: without it layers could not be told from iterations.
    name, kernel = (
        ("aten::embedding", "index_select_kernel") if plan.pytorch else ("begin", "reset_kernel")
    )
    plan.forward.insert(0, Op(name, host_ns, [(kernel, kernel_ns // 2)]))
    if plan.backward:
        plan.backward.append(Op("embedding_backward", host_ns, [(f"{kernel}_bwd", kernel_ns)]))
    if plan.base == "training":
        plan.optimizer = [Op("adam", host_ns, [("multi_tensor_apply_kernel", kernel_ns)])] * 3


def _draw_loader(plan: Plan, chance: random.Random) -> None:
    if plan.base != "training":
        plan.loader = None
        return
    workers = chance.choice((2, 4, 8))
    # All workers together load in a third of an iteration what one needs.
    load_ns = round(plan.gpu_ns() * workers * chance.uniform(0.1, 0.35))
    plan.loader = Loader(workers=workers, prefetch=2, load_ns=load_ns)
    plan.loader.processes = chance.random() < 0.7
    plan.loader.recorded = chance.random() < 0.3


def _draw_base(plan: Plan, chance: random.Random) -> None:
    """Draw what only some base programs have."""
    if plan.base == "pipeline":
        plan.stages = chance.choice((2, 2, 4))
        plan.iterations = min(plan.iterations, 20)
    elif plan.base == "solver" and chance.random() < 0.4:
        plan.base, plan.stages = "multi", 2
    elif plan.ranks == 1 and chance.random() < 0.12:
        plan.graph = True
    elif plan.base == "training" and plan.iterations >= 16 and chance.random() < 0.2:
        plan.validate_every = chance.randrange(5, 9)
    if plan.stages > 1:
        plan.shares = (1.0,) * plan.stages
        plan.one_process = plan.visible_devices = False
        plan.stream = "non_blocking"
