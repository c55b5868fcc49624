"""Further kinds of trouble, apart from `troubles.KINDS`: an analysis may have been made with those in view, but not with these.

Each has its fragment beside it, and says above it what the true cause is and what its remedy does.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from simulated.calls import D2H, H2D
from simulated.engine import US
from simulated.fragments import Numbers, at
from simulated.host import Steps
from simulated.plan import Plan
from simulated.training import ALL_REDUCE, split
from simulated.troubles import (
    About,
    Change,
    Kind,
    _any,
    _by_ops,
    _call,
    _fetch_calls,
    _fragment,
    _input,
    _is,
    _log,
    _nothing,
    _ranks,
)

if TYPE_CHECKING:
    from simulated.ranks import Rank
    from simulated.training import TrainingRank

FURTHER: dict[str, Kind] = {}
LAUNCHES = 4_000  # that a kind adds to a program at most
# Kinds that change the same part of a program as one of these, or which these leave no room for.
FURTHER_EXCLUSIVE: tuple[frozenset[str], ...] = (
    frozenset(("accumulation_reduced", "exposed_communication", "hidden_communication")),
    frozenset(("copies_in_order", "blocking_copies", "pageable_copies", "launch_bound")),
    frozenset(("norms_read_back", "launch_bound", "back_pressure")),
    frozenset(("op_on_host", "back_pressure")),
)


def _register(kind: Kind) -> None:
    FURTHER[kind.name] = kind


def _per_step(plan: Plan) -> int:
    """Return how many launches a step may have more."""
    return LAUNCHES // (plan.iterations * plan.ranks)


# -- Gradients are reduced in every micro-batch
#
# Cause: a step accumulates the gradients of several micro-batches, and the ranks reduce them behind each of these,
# where only the sum is used. The network is too slow for a backward pass to hide it: each micro-batch ends with a wait.
# Remedy: only the last micro-batch reduces (`no_sync` of DistributedDataParallel).


def _accumulates(plan: Plan) -> bool:
    """Return whether ranks reduce gradients, and one thread issues all passes."""
    return _ranks(plan) and not plan.graph and not plan.autograd_thread


def _accumulating(*, reduced: int) -> Change:
    def change(plan: Plan, numbers: Numbers) -> None:
        plan.bucket_ns, plan.overlap = int(numbers["bucket_ns"]), True
        plan.iterations = max(10, plan.iterations // int(numbers["batches"]))
        plan.extra["accumulation_reduced"] = {**numbers, "reduced": reduced}

    return change


@at("after input")
def accumulation_reduced(rank: TrainingRank, numbers: Numbers, step: int) -> Steps:
    """Run all micro-batches of a step but the last one, which is the step's own."""
    plan = rank.plan
    for batch in range(1, int(numbers["batches"])):
        with rank.thread.scope(f"micro-batch {batch}"):
            with rank.thread.range("forward"):
                yield from rank.ops(plan.forward, rank.cuda, f"forward {batch}", hooks=False)
            with rank.thread.range("backward"):
                first = 0
                for bucket, ops in enumerate(split(plan.backward, plan.buckets)):
                    place = f"backward {batch}"
                    yield from rank.ops(ops, rank.cuda, place, first=first, hooks=False)
                    first += len(ops)
                    if numbers["reduced"]:
                        yield from rank.reduce(step, batch * plan.buckets + bucket, rank.cuda)
                if numbers["reduced"]:
                    yield from rank.order(rank.side, rank.stream)


_register(
    Kind(
        "accumulation_reduced",
        "Gradients are reduced in every micro-batch, and used only behind the last one.",
        "Reduced in the last micro-batch alone.",
        fits=_accumulates,
        draw=lambda plan, chance: {
            "batches": chance.choice((2, 3, 4)),
            "bucket_ns": plan.gpu_ns() * chance.uniform(0.6, 1.5),
        },
        inject=_accumulating(reduced=1),
        remedy=_accumulating(reduced=0),
        about=lambda plan: About(ops=("nccl:all_reduce",), kernels=(ALL_REDUCE,)),
        weight=12,
    )
)


# -- Inputs are copied in the stream that computes
#
# Cause: the copy of an input is asynchronous and from pinned memory, so that the host waits for nothing; but it is in the
# stream of the kernels, and they take turns: the copy begins behind the step before, and the step behind the copy.
# Remedy: a stream of its own, in which the next input is copied while the GPU computes.

_register(
    Kind(
        "copies_in_order",
        "Inputs are copied asynchronously, but in the stream of the kernels: they take turns.",
        "Copies in a stream of their own, beside the step before.",
        fits=_is("training"),
        draw=lambda plan, chance: {"bytes": round(plan.gpu_ns() * 12 * chance.uniform(0.1, 0.5))},
        inject=_input(),
        remedy=_input(input_beside=True),
        about=lambda plan: About(
            ops=("aten::to" if plan.pytorch else "upload",), calls=(_call(plan, "memcpy_async"),)
        ),
        weight=2,
    )
)


# -- Buffers are filled with zeros that nothing reads
#
# Cause: gradients or workspaces are set to zero in each step, though what comes next overwrites them. The GPU is busy with
# that, and never idle.
# Remedy: no fills (gradients are set to none, or the first kernel writes where others add).


@at("in step")
def needless_fills(rank: Rank, numbers: Numbers, step: int) -> Steps:
    count, thread = int(numbers["count"]), rank.thread
    with thread.range(_filling(rank.plan)[0]):
        thread.host(10 * US)
        for _ in range(count):
            if rank.plan.pytorch:
                with thread.range("aten::zero_"):
                    thread.host(2 * US)
                    yield from rank.cuda.fill(rank.stream, int(numbers["bytes"]))
            else:
                yield from rank.cuda.fill(rank.stream, int(numbers["bytes"]))


def _filling(plan: Plan) -> tuple[str, ...]:
    """Return the ops that fill, the outer one first."""
    return ("Optimizer.zero_grad#Adam.zero_grad", "aten::zero_") if plan.pytorch else ("clear",)


def _fills(plan: Plan, chance: random.Random) -> Numbers:
    count = chance.randrange(4, max(5, min(40, _per_step(plan))))
    return {"count": count, "bytes": plan.gpu_ns() * _log(chance, 0.04, 0.3) * 600 / count}


_register(
    Kind(
        "needless_fills",
        "Large buffers are set to zero in each step, and overwritten before they are read.",
        "They are not.",
        fits=_any,
        draw=_fills,
        inject=_fragment("needless_fills"),
        remedy=_nothing,
        about=lambda plan: About(ops=_filling(plan), calls=(_call(plan, "memset_async"),)),
        weight=0.2,
    )
)


# -- The norm of each gradient is read back
#
# Cause: to clip gradients the host computes their norm from the norm of each parameter, which it reads back one by one:
# for each a tiny kernel, a copy of 4 bytes and a wait, while the GPU has nothing else to do.
# Remedy: one kernel computes all norms, and the factor stays on the device.


@at("before optimizer")
def norms_read_back(rank: Rank, numbers: Numbers, step: int) -> Steps:
    count, thread = int(numbers["count"]), rank.thread
    with thread.range("clip_grad_norm"):
        thread.host(10 * US)
        if numbers["fused"]:
            total = numbers["kernel_ns"] * count * 0.3
            yield from rank.cuda.launch(rank.stream, "multi_tensor_norm_kernel", total)
        else:
            for number in range(count):
                with thread.scope(f"norm {number}"):
                    thread.host(2 * US, "parameter")
                    kernel_ns = numbers["kernel_ns"]
                    yield from rank.cuda.launch(rank.stream, "reduce_norm_kernel", kernel_ns)
                    yield from rank.fetch(_reading(rank.plan))
        thread.host(3 * US, "factor")
        yield from rank.cuda.launch(rank.stream, "scale_gradients_kernel", numbers["scale_ns"])


def _reading(plan: Plan) -> str:
    return "aten::item" if plan.pytorch else "read norm"


_register(
    Kind(
        "norms_read_back",
        "The norm of each parameter's gradient is read back to the host, one by one.",
        "One kernel for all norms, which stay on the device.",
        fits=_by_ops("training"),
        draw=lambda plan, chance: {
            "count": chance.randrange(10, max(11, min(150, _per_step(plan)))),
            "kernel_ns": _log(chance, 3 * US, 9 * US),
            "scale_ns": chance.randrange(20, 80) * US,
        },
        inject=_fragment("norms_read_back", fused=0),
        remedy=_fragment("norms_read_back", fused=1),
        about=lambda plan: About(
            ops=("clip_grad_norm", _reading(plan)),
            calls=_fetch_calls(plan),
            kernels=("reduce_norm_kernel",),
        ),
        weight=2,
    )
)


# -- An op runs on the host
#
# Cause: one op of the program exists for the host alone: what the GPU has computed is fetched, the host computes while the
# GPU waits, and the result is copied back before the program goes on.
# Remedy: a kernel for it, twenty times as fast; nothing is fetched.


@at("after forward")
def op_on_host(rank: Rank, numbers: Numbers, step: int) -> Steps:
    thread, size = rank.thread, int(numbers["bytes"])
    with thread.range("assign targets"):
        thread.host(8 * US)
        if numbers["ported"]:
            kernel_ns = numbers["host_ns"] / 20
            yield from rank.cuda.launch(rank.stream, "assign_targets_kernel", kernel_ns)
            return
        yield from _across(rank, D2H, size)
        thread.host(numbers["host_ns"], "assign")
        yield from _across(rank, H2D, size)


def _across(rank: Rank, kind: int, size: int) -> Steps:
    """Copy pageable memory, and wait for that, as PyTorch does in `.cpu()` and `.to(device)`."""
    plain = rank.plan.plain_copies
    with rank.thread.range(_crossing(rank.plan)):
        rank.thread.host(6 * US, "to")
        yield from rank.cuda.copy(rank.stream, kind, size, pinned=False, blocking=plain)
        if not plain:
            yield from rank.cuda.stream_sync(rank.stream)


def _crossing(plan: Plan) -> str:
    return "aten::_to_copy" if plan.pytorch else "transfer"


_register(
    Kind(
        "op_on_host",
        "An op runs on the host: its input is fetched, and its result copied back, in each step.",
        "A kernel for it.",
        fits=_is("training", "solver", "serving"),
        draw=lambda plan, chance: {
            "host_ns": plan.gpu_ns() * _log(chance, 0.1, 1.5),
            "bytes": _log(chance, 64 << 10, 8 << 20),
        },
        inject=_fragment("op_on_host", ported=0),
        remedy=_fragment("op_on_host", ported=1),
        about=lambda plan: About(
            ops=("assign targets", _crossing(plan)),
            calls=_fetch_calls(plan),
            outside_ops=not plan.annotated,  # the host code, where no range tells of it
        ),
        weight=0.5,
    )
)
