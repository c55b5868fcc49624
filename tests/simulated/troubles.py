"""Kinds of trouble: what makes a program slow, and the remedy that a performance engineer would apply.

A kind draws its numbers for a plan, changes the plan so that it has the trouble (`inject`), or so that it has had the
trouble and been remedied (`remedy`). Both see a plan that other troubles may have changed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from simulated.calls import NAMES, PER_THREAD_NAMES
from simulated.engine import MS, US
from simulated.fragments import MUTEX, WAITS
from simulated.loading import NEXT
from simulated.plan import Op, Plan
from simulated.training import ALL_REDUCE

Numbers = dict[str, float]
Change = Callable[[Plan, Numbers], None]


@dataclass(frozen=True)
class About:
    """What a trouble is about, by names as the export has them."""

    ops: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    os_calls: tuple[str, ...] = ()
    overhead: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()  # that are late, or shared
    outside_ops: bool = False  # host code in no range but those of steps
    once: bool = False  # paid once, not in each iteration


@dataclass(frozen=True)
class Kind:
    """A kind of trouble. ``healthy``: it looks like one and has no remedy that is safe, or needs none."""

    name: str
    text: str
    remedy_text: str
    fits: Callable[[Plan], bool]
    draw: Callable[[Plan, random.Random], Numbers]
    inject: Change
    remedy: Change
    about: Callable[[Plan], About]
    healthy: bool = False
    weight: float = 1.0  # of being drawn, for what fits few programs or very many


@dataclass(frozen=True)
class Trouble:
    """A trouble of a program, with its numbers."""

    kind: Kind
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the kind."""
        return self.kind.name


KINDS: dict[str, Kind] = {}
# Kinds that let something other than the GPUs' own work bound the run.
PACERS = ("time_slicing", "slow_host_op", "file_in_step", "sleep_in_step", "garbage_collection")
WRITTEN_BYTES_PER_NS = 10  # into the page cache at most
# Kinds that change the same part of a program: of each group a program has at most one.
EXCLUSIVE: tuple[frozenset[str], ...] = (
    frozenset(("slow_loader", "small_prefetch", "loader_in_main")),
    frozenset(("blocking_copies", "pageable_copies")),
    frozenset(("launch_bound", "back_pressure", "needless_sync", "polling", "python_lock")),
    frozenset(("exposed_communication", "hidden_communication")),
    frozenset(("late_rank_host", "late_rank_gpu")),
    frozenset(("back_pressure", "value_each_step", "needed_sync")),
    # Where the host bounds a pipeline, more micro-batches make it slower.
    frozenset(("pipeline_bubble", *PACERS)),
)


def _register(kind: Kind) -> None:
    KINDS[kind.name] = kind


def _fragment(*names: str, **fixed: float) -> Change:
    """Return the change that adds fragments with the trouble's numbers and some fixed ones."""

    def change(plan: Plan, numbers: Numbers) -> None:
        for name in names:
            plan.extra[name] = {**numbers, **fixed}

    return change


def _nothing(plan: Plan, numbers: Numbers) -> None:
    """Leave the healthy plan as it is."""


def _is(*bases: str) -> Callable[[Plan], bool]:
    return lambda plan: plan.base in bases


def _any(plan: Plan) -> bool:
    return True


def _call(plan: Plan, key: str) -> str:
    """Return the name of a call as this program makes it."""
    return (PER_THREAD_NAMES if plan.stream == "per_thread" else NAMES)[key]


def _by_ops(*bases: str) -> Callable[[Plan], bool]:
    """Return whether a program of these bases launches its ops one by one."""
    return lambda plan: plan.base in bases and not plan.graph


def _log(chance: random.Random, low: float, high: float) -> float:
    """Draw a size of which each order of magnitude is as likely."""
    return math.exp(chance.uniform(math.log(low), math.log(high)))


def _fetch_calls(plan: Plan) -> tuple[str, ...]:
    """Return the names of the calls that fetch a value."""
    keys = ("memcpy",) if plan.plain_copies else ("memcpy_async", "stream_sync")
    return tuple(_call(plan, key) for key in keys)


def _one_stream(plan: Plan) -> bool:
    """Return whether each rank drives one GPU."""
    return plan.stages == 1


# -- Data loading


def _about_loader(plan: Plan) -> About:
    wait = "poll" if plan.loader and plan.loader.processes else "pthread_cond_timedwait"
    workers = bool(plan.loader and plan.loader.workers)
    op = NEXT[workers] if plan.pytorch else "load batch"
    return About(ops=(op,), os_calls=(wait,) if workers else ("read",))


def _loader(**changes: Callable[[Plan, Numbers], float]) -> Change:
    """Return the change that sets fields of the loader."""

    def change(plan: Plan, numbers: Numbers) -> None:
        assert plan.loader
        values = {name: value(plan, numbers) for name, value in changes.items()}
        plan.loader = replace(plan.loader, **values)  # type: ignore[arg-type]

    return change


def _load_ns(plan: Plan, numbers: Numbers) -> int:
    return round(plan.gpu_ns() * numbers["workers"] * numbers["factor"])


_register(
    Kind(
        "slow_loader",
        "The workers of the loader need longer for a batch than the GPU.",
        "Four times as many workers.",
        fits=lambda plan: plan.loader is not None,
        draw=lambda plan, chance: {
            "workers": chance.choice((1, 2)),
            "factor": chance.uniform(1.3, 3),
        },
        inject=_loader(workers=lambda _, n: int(n["workers"]), load_ns=_load_ns),
        remedy=_loader(workers=lambda _, n: 4 * int(n["workers"]), load_ns=_load_ns),
        about=_about_loader,
    )
)
_register(
    Kind(
        "small_prefetch",
        "Every eighth batch takes several times as long, and too few batches are ready to bridge it.",
        "Eight batches per worker ahead.",
        fits=lambda plan: plan.loader is not None,
        draw=lambda plan, chance: {"workers": 2, "factor": 0.42, "spike": chance.uniform(8, 11)},
        inject=_loader(
            workers=lambda _, n: int(n["workers"]),
            load_ns=_load_ns,
            prefetch=lambda *_: 1,
            spike_every=lambda *_: 8,
            spike=lambda _, n: n["spike"],
        ),
        remedy=_loader(
            workers=lambda _, n: int(n["workers"]),
            load_ns=_load_ns,
            prefetch=lambda *_: 8,
            spike_every=lambda *_: 8,
            spike=lambda _, n: n["spike"],
        ),
        about=_about_loader,
    )
)
_register(
    Kind(
        "loader_in_main",
        "The main thread loads the batches itself.",
        "Four workers.",
        fits=lambda plan: plan.loader is not None,
        draw=lambda plan, chance: {"workers": 1, "factor": chance.uniform(0.4, 1.5)},
        inject=_loader(workers=lambda *_: 0, load_ns=_load_ns),
        remedy=_loader(workers=lambda *_: 4, load_ns=_load_ns),
        about=_about_loader,
    )
)


# -- Copies


def _input(**changes: bool) -> Change:
    def change(plan: Plan, numbers: Numbers) -> None:
        plan.input_bytes = int(numbers["bytes"])
        for name, value in changes.items():
            setattr(plan, name, value)

    return change


def _about_input(plan: Plan) -> About:
    synchronous = plan.input_blocking and plan.plain_copies
    calls = [_call(plan, "memcpy" if synchronous else "memcpy_async")]
    if plan.input_blocking and not synchronous:
        calls.append(_call(plan, "stream_sync"))
    return About(ops=("aten::to" if plan.pytorch else "upload",), calls=tuple(calls))


_register(
    Kind(
        "blocking_copies",
        "The host waits for each copy of an input, and the copy for the work before it.",
        "Asynchronous copies in a stream of their own.",
        fits=_is("training"),
        draw=lambda plan, chance: {"bytes": round(plan.gpu_ns() * 12 * chance.uniform(0.1, 0.5))},
        inject=_input(input_blocking=True),
        remedy=_input(input_beside=True),
        about=_about_input,
    )
)
_register(
    Kind(
        "pageable_copies",
        "Inputs are copied from pageable memory: the host stages them, and the copy is slow.",
        "Pinned memory and asynchronous copies.",
        fits=_is("training", "serving"),
        draw=lambda plan, chance: {"bytes": round(plan.gpu_ns() * 4 * chance.uniform(0.2, 0.8))},
        inject=_input(input_pinned=False),
        remedy=_input(),
        about=_about_input,
    )
)


# -- Synchronizations

_register(
    Kind(
        "needless_sync",
        "The host waits for the GPU after ops, and uses no value of it.",
        "No synchronization.",
        fits=_by_ops("training", "solver", "serving"),
        draw=lambda plan, chance: {
            "every": chance.choice((1, 2, 3)),
            "waits_for": chance.randrange(len(WAITS)),
        },
        inject=_fragment("needless_sync"),
        remedy=_nothing,
        about=lambda plan: About(
            calls=(_call(plan, WAITS[int(plan.extra["needless_sync"]["waits_for"])]),)
        ),
    )
)
_register(
    Kind(
        "value_each_step",
        "A value is fetched in each step and only printed.",
        "Fetched every twentieth step.",
        fits=_is("training", "solver"),
        draw=lambda plan, chance: {},
        inject=_fragment("value_each_step", every=1),
        remedy=_fragment("value_each_step", every=20),
        about=lambda plan: About(
            ops=("aten::item" if plan.pytorch else "print residual",),
            calls=_fetch_calls(plan),
        ),
    )
)
_register(
    Kind(
        "needed_sync",
        "A value of the GPU decides what the host does next: the wait is needed.",
        "None.",
        fits=_is("training", "solver"),
        draw=lambda plan, chance: {"host_ns": chance.randrange(20, 200) * US},
        inject=_fragment("needed_sync"),
        remedy=_fragment("needed_sync"),
        about=lambda plan: About(
            ops=("aten::is_nonzero" if plan.pytorch else "converged",),
            calls=_fetch_calls(plan),
        ),
        healthy=True,
    )
)
_register(
    Kind(
        "late_value",
        "Each step waits for the value of the step before, while the GPU has work.",
        "None.",
        fits=_is("training", "solver"),
        draw=lambda plan, chance: {},
        inject=_fragment("late_value"),
        remedy=_fragment("late_value"),
        about=lambda plan: About(ops=("print loss",), calls=(_call(plan, "event_sync"),)),
        healthy=True,
    )
)
_register(
    Kind(
        "polling",
        "The host asks for an event again and again before it goes on.",
        "Not to wait.",
        fits=_by_ops("training", "solver"),
        draw=lambda plan, chance: {
            "every": chance.choice((1, 2)),
            "pause_ns": max(30 * US, plan.gpu_ns() // len(plan.forward) // 5),
        },
        inject=_fragment("polling"),
        remedy=_nothing,
        about=lambda plan: About(calls=(_call(plan, "event_query"),)),
    )
)


# -- Launches


def _tiny(plan: Plan, numbers: Numbers) -> None:
    """Make all kernels short and their host code long."""

    def changed(ops: list[Op]) -> list[Op]:
        return [
            Op(
                op.name,
                round(numbers["host_ns"]),
                [(kernel, round(ns * numbers["factor"])) for kernel, ns in op.kernels],
            )
            for op in ops
        ]

    plan.input_bytes = 64 << 10
    if plan.loader:
        plan.loader = replace(plan.loader, load_ns=plan.loader.load_ns * numbers["factor"])
    plan.forward, plan.backward = changed(plan.forward), changed(plan.backward)
    plan.optimizer = changed(plan.optimizer)


def _tiny_graph(plan: Plan, numbers: Numbers) -> None:
    _tiny(plan, numbers)
    plan.graph = True


def _split_kernels(plan: Plan, numbers: Numbers) -> None:
    """Split kernels, so that the host runs ahead by more launches than the queue holds."""
    pieces = int(numbers["pieces"])
    plan.log_every = 0

    def changed(ops: list[Op]) -> list[Op]:
        return [
            Op(op.name, 3 * US, [(k, ns * 2 // pieces) for k, ns in op.kernels] * pieces)
            for op in ops
        ]

    plan.forward, plan.backward = changed(plan.forward), changed(plan.backward)


def _pieces(plan: Plan, chance: random.Random) -> Numbers:
    launches = plan.iterations * (len(plan.forward) + len(plan.backward))
    return {"pieces": max(2, -(-2_600 // launches))}


_register(
    Kind(
        "small_kernels",
        "Many small kernels of one kind update the state of each element by itself.",
        "One fused kernel.",
        fits=_is("training", "solver"),
        draw=lambda plan, chance: {
            "count": chance.randrange(
                20, max(21, min(200, 5_000 // (plan.iterations * plan.ranks)))
            ),
            "kernel_ns": _log(chance, 2 * US, 12 * US),
        },
        inject=_fragment("small_kernels", fused=0),
        remedy=_fragment("small_kernels", fused=1),
        about=lambda plan: About(ops=("update state",), kernels=("small_update_kernel",)),
    )
)
_register(
    Kind(
        "slow_kernel",
        "A kernel is written badly.",
        "One that is five times as fast.",
        fits=_is("training", "solver", "serving"),
        draw=lambda plan, chance: {"kernel_ns": plan.gpu_ns() * _log(chance, 0.03, 1)},
        inject=_fragment("slow_kernel"),
        remedy=lambda plan, n: _fragment("slow_kernel", kernel_ns=n["kernel_ns"] / 5)(plan, n),
        about=lambda plan: About(ops=("transpose",), kernels=("naive_transpose_kernel",)),
    )
)
_register(
    Kind(
        "launch_bound",
        "Kernels take less time than their launches.",
        "A CUDA graph per iteration.",
        fits=lambda plan: _by_ops("solver", "training")(plan) and plan.ranks == 1,
        draw=lambda plan, chance: {
            "host_ns": chance.randrange(15, 40) * US,
            "factor": chance.uniform(0.02, 0.06),
        },
        inject=_tiny,
        remedy=_tiny_graph,
        about=lambda plan: About(
            ops=tuple(dict.fromkeys(op.name for op in (*plan.forward, *plan.backward))),
            calls=(_call(plan, "launch"),),
        ),
    )
)
_register(
    Kind(
        "back_pressure",
        "The host is so far ahead that launches wait for the queue: the GPU is always busy.",
        "None.",
        fits=lambda plan: _by_ops("solver", "training")(plan) and plan.ranks == 1,
        draw=_pieces,
        inject=_split_kernels,
        remedy=_split_kernels,
        about=lambda plan: About(calls=(_call(plan, "launch"),)),
        healthy=True,
    )
)
_register(
    Kind(
        "default_stream",
        "Two streams work on two branches, and fills in the legacy default stream make them take turns.",
        "Non-blocking streams, and a stream for the fills.",
        fits=lambda plan: plan.base in {"training", "solver"} and plan.stream != "per_thread",
        draw=lambda plan, chance: {
            "pairs": chance.randrange(4, 12),
            "kernel_ns": chance.randrange(60, 300) * US,
        },
        inject=_fragment("default_stream", blocking=1),
        remedy=_fragment("default_stream", blocking=0),
        about=lambda plan: About(
            ops=("two branches",),
            calls=(_call(plan, "memset_async"),),
            kernels=("branch_a_kernel", "branch_b_kernel"),
        ),
    )
)


# -- Memory

_register(
    Kind(
        "small_copies",
        "An input is copied in many small pieces.",
        "The pieces are packed, and copied at once.",
        fits=_is("training", "solver", "serving"),
        draw=lambda plan, chance: {
            "count": chance.randrange(
                10, max(11, min(150, 4_000 // (plan.iterations * plan.ranks)))
            ),
        },
        inject=_fragment("small_copies", packed=0),
        remedy=_fragment("small_copies", packed=1),
        about=lambda plan: About(ops=("upload pieces",), calls=(_call(plan, "memcpy_async"),)),
    )
)
_register(
    Kind(
        "pinned_in_loop",
        "Pinned memory is allocated and released in each step.",
        "It is allocated once.",
        fits=_one_stream,
        draw=lambda plan, chance: {"alloc_ns": _log(chance, 150 * US, 8 * MS)},
        inject=_fragment("pinned_in_loop"),
        remedy=_nothing,
        about=lambda plan: About(
            ops=("staging buffer",), calls=(NAMES["host_alloc"], NAMES["free_host"])
        ),
    )
)
_register(
    Kind(
        "allocation_in_loop",
        "Memory is allocated and released in each step; a release waits for the device.",
        "Memory is allocated once.",
        fits=_one_stream,
        draw=lambda plan, chance: {"count": chance.randrange(1, 6)},
        inject=_fragment("allocation_in_loop", "release_in_loop"),
        remedy=_nothing,
        about=lambda plan: About(
            ops=("allocate", "release"), calls=(NAMES["malloc"], NAMES["free"])
        ),
    )
)
_register(
    Kind(
        "failing_calls",
        "Allocations fail now and then; cached memory is released before the next attempt.",
        "Enough memory.",
        fits=_one_stream,
        draw=lambda plan, chance: {
            "every": chance.choice((2, 3, 5)),
            "releases": chance.randrange(2, 8),
            "answered": chance.choice((0, 1, 1)),
        },
        inject=_fragment("failing_calls"),
        remedy=_nothing,
        about=lambda plan: About(
            ops=("aten::empty" if plan.pytorch else "reserve",),
            calls=(NAMES["malloc"], NAMES["free"]),
        ),
    )
)
_register(
    Kind(
        "page_faults",
        "A kernel reads managed memory of the host page by page.",
        "The memory is copied to the device before (cudaMemPrefetchAsync).",
        fits=_is("training", "solver"),
        draw=lambda plan, chance: {
            "bytes": round(plan.gpu_ns() * 2.5 * chance.uniform(0.1, 0.6)),
            "kernel_ns": chance.randrange(50, 300) * US,
        },
        inject=_fragment("page_faults", prefetch=0),
        remedy=_fragment("page_faults", prefetch=1),
        about=lambda plan: About(ops=("gather",), kernels=("gather_kernel",)),
    )
)


# -- The host

_register(
    Kind(
        "first_calls",
        "Libraries and modules are loaded at their first use.",
        "A tenth of them.",
        fits=_one_stream,
        draw=lambda plan, chance: {
            "count": chance.randrange(3, 12),
            "load_ns": _log(chance, 0.5 * MS, 40 * MS),
        },
        inject=_fragment("first_calls"),
        remedy=lambda plan, n: _fragment("first_calls", load_ns=n["load_ns"] / 10)(plan, n),
        about=lambda plan: About(
            ops=("create handles",), calls=("cuLibraryLoadData", "cuModuleLoadData"), once=True
        ),
    )
)
_register(
    Kind(
        "jit",
        "Kernels are compiled in the first step, and again where shapes change.",
        "Fixed shapes: compiled in the first step alone.",
        fits=_one_stream,
        draw=lambda plan, chance: {
            "compile_ns": _log(chance, 8 * MS, 300 * MS),
            "first": chance.randrange(3, 6),
            "every": chance.randrange(2, 5),
            "count": chance.randrange(1, 5),
        },
        inject=_fragment("jit", recompiles=1),
        remedy=_fragment("jit", recompiles=0),
        about=lambda plan: About(
            ops=("torch.compile" if plan.pytorch else "compile kernel",),
            calls=("cuModuleLoadData",),
        ),
    )
)
_register(
    Kind(
        "python_lock",
        "Another thread holds Python's lock for long whiles.",
        "It runs in another process.",
        fits=lambda plan: _by_ops("training")(plan) and plan.pytorch,
        draw=lambda plan, chance: {
            "hold_ns": chance.uniform(0.5, 1.5) * plan.gpu_ns(),
            "pause_ns": chance.uniform(0.05, 0.3) * plan.gpu_ns(),
        },
        inject=_fragment("python_lock", "python_lock_taken"),
        remedy=_fragment("python_lock_taken"),
        about=lambda plan: About(ops=("statistics",), os_calls=("pthread_cond_timedwait",)),
    )
)
_register(
    Kind(
        "lock_contention",
        "Another thread holds a lock of the program for long whiles.",
        "It has its own data, and needs no lock.",
        fits=_is("training", "solver", "serving"),
        draw=lambda plan, chance: {
            "hold_ns": plan.gpu_ns() * _log(chance, 0.5, 4),
            "pause_ns": chance.uniform(0.05, 0.5) * plan.gpu_ns(),
        },
        inject=_fragment("lock_contention", "lock_taken"),
        remedy=_fragment("lock_taken"),
        about=lambda plan: About(ops=("update statistics", "statistics"), os_calls=(MUTEX,)),
    )
)
_register(
    Kind(
        "file_in_step",
        "The main thread reads a file in each step.",
        "What it reads is kept in memory.",
        fits=_any,
        draw=lambda plan, chance: {"read_ns": plan.gpu_ns() * _log(chance, 0.2, 3)},
        inject=_fragment("file_in_step"),
        remedy=_nothing,
        about=lambda plan: About(ops=("read sample",), os_calls=("pread64",)),
        weight=0.6,
    )
)
_register(
    Kind(
        "sleep_in_step",
        "The main thread sleeps in each step.",
        "It does not.",
        fits=_any,
        draw=lambda plan, chance: {"sleep_ns": plan.gpu_ns() * _log(chance, 0.3, 3)},
        inject=_fragment("sleep_in_step"),
        remedy=_nothing,
        about=lambda plan: About(os_calls=("clock_nanosleep",)),
        weight=0.4,
    )
)
_register(
    Kind(
        "garbage_collection",
        "The main thread stops for a while between some steps, outside of ops.",
        "It does not.",
        fits=_any,
        draw=lambda plan, chance: {
            "every": chance.randrange(2, 8),
            "host_ns": plan.gpu_ns() * _log(chance, 1, 10),
        },
        inject=_fragment("garbage_collection"),
        remedy=_nothing,
        about=lambda plan: About(outside_ops=True),
        weight=0.6,
    )
)
_register(
    Kind(
        "slow_host_op",
        "An op of the host takes longer than the GPU's iteration.",
        "The op is made ten times as fast.",
        fits=_any,
        draw=lambda plan, chance: {"host_ns": plan.gpu_ns() * _log(chance, 0.5, 2.5)},
        inject=_fragment("slow_host_op"),
        remedy=lambda plan, n: _fragment("slow_host_op", host_ns=n["host_ns"] / 10)(plan, n),
        about=lambda plan: About(ops=("tokenize",)),
    )
)


# -- Ranks


def _late(plan: Plan, chance: random.Random) -> Numbers:
    return {
        "rank": chance.randrange(plan.ranks),
        "host_ns": plan.gpu_ns() * chance.uniform(0.8, 1.6),
        "barrier": chance.choice((0, 0, 1)),
    }


def _communication(overlap: bool) -> Change:
    def change(plan: Plan, numbers: Numbers) -> None:
        plan.bucket_ns, plan.overlap = int(numbers["bucket_ns"]), overlap

    return change


def _uneven(plan: Plan, numbers: Numbers) -> None:
    more = numbers["share"]
    plan.shares = (1 + more, *[1 - more / (plan.stages - 1)] * (plan.stages - 1))


def _kernels(plan: Plan) -> tuple[str, ...]:
    ops = (*plan.forward, *plan.backward, *plan.optimizer)
    return tuple(dict.fromkeys(kernel for op in ops for kernel, _ in op.kernels))


def _late_gpu(plan: Plan, name: str) -> tuple[int, ...]:
    return (int(plan.extra[name]["rank"]),)


def _ranks(plan: Plan) -> bool:
    return plan.base == "training" and plan.ranks > 1


_register(
    Kind(
        "late_rank_host",
        "The host of one rank does more in each step; the others wait for it.",
        "It does as much as the others.",
        fits=_ranks,
        draw=_late,
        inject=_fragment("late_rank_host"),
        remedy=_fragment("late_rank_host", host_ns=0),
        about=lambda plan: About(
            ops=("augment",), kernels=(ALL_REDUCE,), gpus=_late_gpu(plan, "late_rank_host")
        ),
        weight=3,
    )
)
_register(
    Kind(
        "late_rank_gpu",
        "The GPU of one rank is slower; the others wait for it.",
        "It is as fast as the others.",
        fits=_ranks,
        draw=lambda plan, chance: {
            "rank": chance.randrange(plan.ranks),
            "factor": chance.uniform(1.15, 1.8),
        },
        inject=_fragment("late_rank_gpu"),
        remedy=_nothing,
        about=lambda plan: About(
            kernels=(ALL_REDUCE, *_kernels(plan)), gpus=_late_gpu(plan, "late_rank_gpu")
        ),
        weight=3,
    )
)
_register(
    Kind(
        "exposed_communication",
        "Gradients are reduced behind the backward pass.",
        "Each bucket is reduced in a stream of its own while the rest is computed.",
        fits=_ranks,
        draw=lambda plan, chance: {"bucket_ns": plan.gpu_ns() * chance.uniform(0.3, 0.8)},
        inject=_communication(overlap=False),
        remedy=_communication(overlap=True),
        about=lambda plan: About(ops=("nccl:all_reduce",), kernels=(ALL_REDUCE,)),
    )
)
_register(
    Kind(
        "hidden_communication",
        "Gradients are reduced while the backward pass computes.",
        "None.",
        fits=_ranks,
        draw=lambda plan, chance: {"bucket_ns": plan.gpu_ns() * chance.uniform(0.2, 0.4)},
        inject=_communication(overlap=True),
        remedy=_communication(overlap=True),
        about=lambda plan: About(ops=("nccl:all_reduce",), kernels=(ALL_REDUCE,)),
        healthy=True,
    )
)


def _batches(plan: Plan, numbers: Numbers) -> None:
    plan.micro_batches = int(numbers["batches"])


_register(
    Kind(
        "pipeline_bubble",
        "A pipeline of GPUs runs few micro-batches: its stages wait for one another.",
        "Four micro-batches per stage, as GPipe's authors advise.",
        fits=_is("pipeline"),
        draw=lambda plan, chance: {"batches": chance.choice((1, 2))},
        inject=_batches,
        remedy=lambda plan, _numbers: _batches(plan, {"batches": 4 * plan.stages}),
        about=lambda plan: About(calls=(NAMES["memcpy_peer"],)),
    )
)
_register(
    Kind(
        "uneven_gpus",
        "One of several GPUs has more of the work.",
        "All have the same share.",
        fits=_is("multi"),
        draw=lambda plan, chance: {"share": chance.uniform(0.15, 0.5)},
        inject=_uneven,
        remedy=_nothing,
        about=lambda plan: About(kernels=_kernels(plan), gpus=(0,)),
        weight=2,
    )
)


# -- The rest of the machine

_register(
    Kind(
        "checkpoint",
        "Every so many steps the host fetches the weights and writes them.",
        "The weights are copied on the device; a thread fetches and writes the copy.",
        fits=_is("training", "solver"),
        draw=lambda plan, chance: {
            "every": chance.choice((4, 5, 8)),
            "bytes": (size := chance.randrange(2, 65) << 20),
            "write_ns": max(_log(chance, 0.5 * MS, 40 * MS), size / WRITTEN_BYTES_PER_NS),
        },
        inject=_fragment("checkpoint", beside=0),
        remedy=_fragment("checkpoint", beside=1),
        about=lambda plan: About(
            ops=("save checkpoint",), calls=(_call(plan, "memcpy_async"),), os_calls=("write",)
        ),
    )
)
_register(
    Kind(
        "time_slicing",
        "Another process computes on the same GPU.",
        "It runs elsewhere.",
        fits=_any,
        draw=lambda plan, chance: {
            "kernel_ns": chance.randrange(300, 1_500) * US,
            "pause_ns": chance.randrange(200, 1_000) * US,
            "recorded": chance.choice((0, 1, 1)),
        },
        inject=_fragment("time_slicing"),
        remedy=_nothing,
        about=lambda plan: About(kernels=("other_kernel",), gpus=(0,)),
        weight=0.6,
    )
)
_register(
    Kind(
        "profiler_overhead",
        "The profiler stops the program to write its buffers.",
        "Without the profiler.",
        fits=_one_stream,
        draw=lambda plan, chance: {
            "every": chance.choice((2, 3, 5)),
            "flush_ns": _log(chance, 1 * MS, 25 * MS),
        },
        inject=_fragment("profiler_overhead"),
        remedy=_nothing,
        about=lambda plan: About(overhead=("CUPTI: Buffer flush",)),
    )
)
_register(
    Kind(
        "start_up",
        "Files are read and parsed before the first iteration.",
        "A tenth of them.",
        fits=_any,
        draw=lambda plan, chance: {
            "files": chance.randrange(5, 30),
            "read_ns": _log(chance, 0.1 * MS, 12 * MS),
        },
        inject=_fragment("start_up"),
        remedy=lambda plan, n: _fragment("start_up", read_ns=n["read_ns"] / 10)(plan, n),
        about=lambda plan: About(ops=("read files",), os_calls=("read",), once=True),
        weight=0.5,
    )
)
_register(
    Kind(
        "terminal",
        "The program waits for input from a terminal.",
        "No input.",
        fits=_any,
        draw=lambda plan, chance: {"wait_ns": _log(chance, 10 * MS, 1_500 * MS)},
        inject=_fragment("terminal"),
        remedy=_nothing,
        about=lambda plan: About(os_calls=("getc",), once=True),
        weight=0.3,
    )
)
_register(
    Kind(
        "end_cost",
        "Results are fetched, formatted and written behind the last iteration.",
        "A tenth of the output.",
        fits=_any,
        draw=lambda plan, chance: {"write_ns": _log(chance, 3 * MS, 400 * MS)},
        inject=_fragment("end_cost"),
        remedy=lambda plan, n: _fragment("end_cost", write_ns=n["write_ns"] / 10)(plan, n),
        about=lambda plan: About(ops=("save results",), os_calls=("write",), once=True),
        weight=0.5,
    )
)
