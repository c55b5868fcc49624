"""Kinds of trouble: what makes a program slow, and the remedy that a performance engineer would apply."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from simulated.calls import NAMES
from simulated.loading import NEXT
from simulated.plan import Plan

Numbers = dict[str, float]


@dataclass(frozen=True)
class About:
    """What a trouble is about, by names as the export has them."""

    ops: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    os_calls: tuple[str, ...] = ()
    once: bool = False  # paid once, not in each iteration


@dataclass(frozen=True)
class Kind:
    """A kind of trouble. ``healthy``: what looks like one and is none; its remedy changes nothing."""

    name: str
    text: str
    remedy_text: str
    fits: Callable[[Plan], bool]
    draw: Callable[[Plan, random.Random], Numbers]
    inject: Callable[[Plan, Numbers], None]
    remedy: Callable[[Plan, Numbers], None]
    about: Callable[[Plan], About]
    healthy: bool = False


@dataclass(frozen=True)
class Trouble:
    """A trouble of a program, with its numbers."""

    kind: Kind
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.kind.name


KINDS: dict[str, Kind] = {}


def _register(kind: Kind) -> None:
    KINDS[kind.name] = kind


def _nothing(plan: Plan, numbers: Numbers) -> None:
    """Change nothing."""


# -- Data loading


def _slow_loader(plan: Plan, numbers: Numbers) -> None:
    assert plan.loader
    plan.loader.workers = int(numbers["workers"])
    plan.loader.load_ns = round(plan.gpu_ns() * numbers["workers"] * numbers["factor"])


def _more_workers(plan: Plan, numbers: Numbers) -> None:
    _slow_loader(plan, numbers)
    assert plan.loader
    plan.loader.workers *= 4


_register(
    Kind(
        "slow_loader",
        "The workers of the loader need longer for a batch than the GPU.",
        "Four times as many workers.",
        lambda plan: plan.loader is not None,
        lambda plan, chance: {"workers": chance.choice((1, 2)), "factor": chance.uniform(1.3, 3)},
        _slow_loader,
        _more_workers,
        lambda plan: About(ops=(NEXT[True] if plan.pytorch else "load batch",)),
    )
)


# -- Copies


def _pageable(plan: Plan, numbers: Numbers) -> None:
    plan.input_pinned = False
    plan.input_bytes = int(numbers["bytes"])


def _pinned(plan: Plan, numbers: Numbers) -> None:
    plan.input_bytes = int(numbers["bytes"])


_register(
    Kind(
        "pageable_copies",
        "Inputs are copied from pageable memory: the host stages them, and the copy is slow.",
        "Pinned memory and asynchronous copies.",
        lambda plan: plan.base in {"training", "serving"},
        lambda plan, chance: {"bytes": round(plan.gpu_ns() * 4 * chance.uniform(0.2, 0.8))},
        _pageable,
        _pinned,
        lambda plan: About(
            ops=("aten::to" if plan.pytorch else "upload",), calls=(NAMES["memcpy_async"],)
        ),
    )
)


# -- Synchronizations


def _needless_sync(plan: Plan, numbers: Numbers) -> None:
    plan.extra["needless_sync"] = dict(numbers)


_register(
    Kind(
        "needless_sync",
        "The host waits for the GPU after ops, and uses no value of it.",
        "No synchronization.",
        lambda plan: plan.base in {"training", "solver"},
        lambda plan, chance: {"every": chance.choice((1, 2, 3))},
        _needless_sync,
        _nothing,
        lambda plan: About(calls=(NAMES["stream_sync"],)),
    )
)
