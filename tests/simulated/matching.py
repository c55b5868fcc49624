"""Which trouble of a program a finding is about: the one whose names it shares.

Ops and kernels tell a trouble from others. Calls and calls of the operating system are made all over a program: they
count only in a finding that names none but the trouble's ops, and that is paid as the trouble is, once or again and again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from simulated.answers import Found
from simulated.plan import Plan
from simulated.training import ALL_REDUCE
from simulated.troubles import About
from simulated.truth import TroubleTruth, Truth

VERSION = re.compile(r"(_v\d+)?(_pt[sd][zs])?(_v\d+)?$")
NUMBER = re.compile(r"\b(?:GPU|rank) (\d+)")
NO_OP = "(no op)"
# The work of the calls that a trouble is about, where a finding names that instead.
TO_DEVICE, TO_HOST = "[CUDA memcpy Host-to-Device]", "[CUDA memcpy Device-to-Host]"
FILL = "[CUDA memset]"
WORK: dict[str, tuple[str, ...]] = {
    "blocking_copies": (TO_DEVICE,),
    "pageable_copies": (TO_DEVICE,),
    "small_copies": (TO_DEVICE,),
    "value_each_step": (TO_HOST,),
    "needed_sync": (TO_HOST,),
    "fetching": (TO_HOST,),
    "weights": (TO_DEVICE,),
    "checkpoint": (TO_HOST,),
    "pipeline_bubble": ("[CUDA memcpy Peer-to-Peer]",),
    "default_stream": (FILL,),
    "copies_in_order": (TO_DEVICE,),
    "needless_fills": (FILL,),
    "norms_read_back": (TO_HOST,),
    "op_on_host": (TO_HOST, TO_DEVICE),
}
# What findings are called that are about no name.
LATE = ("rank", "straggler", "uneven", "balance", "share", "late-work")
PROFILER = ("profiler", "overhead")
OUTSIDE = "outside"


@dataclass(frozen=True)
class Ordinary:
    """What a program has, with or without trouble: the ops of its ranges, its kernels, how many GPUs."""

    ops: frozenset[str]
    kernels: frozenset[str]
    gpus: int

    @classmethod
    def of(cls, truth: Truth) -> Self:
        plan: Plan = truth.result.program.plan
        kernels = (
            k for op in (*plan.forward, *plan.backward, *plan.optimizer) for k, _ in op.kernels
        )
        ops = {str(row[2]).split(", ")[0] for row in truth.result.machine.ranges}
        if ops:
            ops.add(NO_OP)
        return cls(frozenset(ops), frozenset((ALL_REDUCE, *kernels)), len(truth.states))


def about_which(
    found: Found, troubles: Sequence[TroubleTruth], ordinary: Ordinary
) -> frozenset[str]:
    """Return the names of the troubles with which a finding shares most; none where it shares nothing."""
    common = {trouble.name: shared(found, trouble, ordinary) for trouble in troubles}
    most = max(common.values(), default=0)
    return frozenset(name for name, count in common.items() if count == most > 0)


def shared(found: Found, trouble: TroubleTruth, ordinary: Ordinary) -> int:
    """Return how much of what a trouble is about a finding names; 0 if it is about something else."""
    about, names = trouble.about, {bare(name) for name in found.names}
    ops, kernels = set(about.ops), set(about.kernels)
    if about.gpus:  # what every GPU runs says nothing of one
        kernels -= ordinary.kernels
    telling = len(names & (ops | kernels))
    calls = {bare(name) for name in (*about.calls, *about.os_calls)} | {*WORK.get(trouble.name, ())}
    is_elsewhere = bool(ops and names & ordinary.ops and not names & ops)
    is_paid_alike = found.once == about.once
    common = len(names & calls) if is_paid_alike and not is_elsewhere else 0
    return 2 * telling + common + 4 * _by_word(found, about, ordinary)


def _by_word(found: Found, about: About, ordinary: Ordinary) -> bool:
    """Return whether a finding is called what a trouble without names is."""
    texts = " ".join((found.check, *found.names))
    gpus = {int(number) for name in found.names for number in NUMBER.findall(name)}
    is_late = any(word in found.check for word in LATE)
    is_its_gpu = ordinary.gpus > 1 and len(gpus) == 1 and gpus <= set(about.gpus)
    is_its_gpu &= not found.names.isdisjoint(about.kernels)
    has_names = about.ops or about.kernels or about.calls or about.os_calls
    is_outside = about.outside_ops or not (has_names or about.gpus or about.overhead)
    return (
        bool(about.gpus and (is_late or is_its_gpu))
        or bool(about.overhead and any(word in found.check for word in PROFILER))
        or (is_outside and OUTSIDE in texts)
    )


def bare(name: str) -> str:
    """Return the name of a call without version and default stream."""
    return VERSION.sub("", name)
