"""What is true of a program: its length, the states of its GPUs, why they were idle, and what remedies save."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Self

from simulated.causes import Piece, idle_pieces
from simulated.host import Cause
from simulated.programs import Program, Result, simulate
from simulated.span import Interval, run_span, states, works_of
from simulated.troubles import About, Trouble

# Habits: what changes in the plan of a program that has them no more, and what they are about.
HABITS: dict[str, tuple[dict[str, float], About]] = {
    "fetching": ({"keep": 20}, About(ops=("aten::item", "residual", "accuracy"))),
    "weights": ({"weights_pinned": True}, About(kernels=("weights",), once=True)),
}


@dataclass(frozen=True)
class TroubleTruth:
    """A trouble, and what the run is shorter by without it. ``healthy``: it must not be found."""

    name: str
    true_saving_ns: int
    about: About
    healthy: bool
    remedied_length_ns: int


@dataclass(frozen=True)
class Truth:
    """The truth of a program. Times are ns of the simulation's clock; keys of GPUs are their numbers.

    ``habits`` are what healthy programs do, too, and could do less often: no trouble, and no mistake to tell of.
    """

    result: Result
    span: Interval
    states: dict[int, dict[str, int]]
    idle: dict[int, list[Piece]]
    troubles: tuple[TroubleTruth, ...]
    all_saving_ns: int
    habits: tuple[TroubleTruth, ...] = ()

    @property
    def length_ns(self) -> int:
        """The length of the run."""
        return self.span[1] - self.span[0]

    def idle_by_cause(self, gpu: int) -> dict[tuple[Cause, str], int]:
        """Return the idle time of a GPU by cause and name, the longest first."""
        total: Counter[tuple[Cause, str]] = Counter()
        for piece in self.idle[gpu]:
            total[piece.cause, piece.name] += piece.end - piece.start
        return dict(total.most_common())

    @classmethod
    def of(cls, program: Program) -> Self:
        """Return the truth of a program: runs it, and again with each remedy, and with all."""
        result = simulate(program)
        machine, span = result.machine, run_span(result.machine)
        length = span[1] - span[0]
        troubles = tuple(_trouble(program, trouble, length) for trouble in program.troubles)
        everything = length - _length(program, program.names) if program.names else 0
        gpus = [gpu for gpu in machine.gpus if works_of(gpu)]
        return cls(
            result,
            span,
            {gpu.number: states(works_of(gpu), span) for gpu in gpus},
            {gpu.number: idle_pieces(machine, gpu) for gpu in gpus},
            troubles,
            troubles[0].true_saving_ns if len(troubles) == 1 else everything,
            tuple(_habit(program, length, name) for name in HABITS),
        )


def _length(program: Program, without: frozenset[str] = frozenset(), **changes: float) -> int:
    start, end = run_span(simulate(program, without, **changes).machine)
    return end - start


def _habit(program: Program, length: int, name: str) -> TroubleTruth:
    """Return what a habit of all programs costs."""
    change, about = HABITS[name]
    shorter = _length(program, **change)
    about = about if program.plan.annotated else replace(about, ops=())
    return TroubleTruth(name, length - shorter, about, False, shorter)


def _trouble(program: Program, trouble: Trouble, length: int) -> TroubleTruth:
    healthy, name = trouble.kind.healthy, trouble.name
    remedied = length if healthy else _length(program, frozenset([name]))
    about = trouble.kind.about(program.planned())
    if not program.plan.annotated:
        about = replace(about, ops=())
    return TroubleTruth(name, length - remedied, about, healthy, remedied)


@dataclass(frozen=True)
class Wait:
    """A collective on one GPU: how long it waited for the last rank, and how long it moved data."""

    gpu: int
    start: int
    end: int
    late_gpu: int
    waiting_ns: int
    transfer_ns: int


def collective_waits(result: Result) -> list[Wait]:
    """Return what each collective was on each GPU, in order of begin."""
    waits = []
    for work in result.machine.works():
        if work.collective is not None:
            late = work.collective.late
            gpu, late_gpu = work.stream.context.gpu.number, late.stream.context.gpu.number
            waiting = late.start - work.start
            transfer = work.end - late.start
            waits.append(Wait(gpu, work.start, work.end, late_gpu, waiting, transfer))
    return waits


@dataclass(frozen=True)
class Step:
    """An iteration of a rank: on its host, and the hull of the work that it issued on each GPU."""

    rank: int
    number: int
    start: int
    end: int
    work: dict[int, Interval]


def iterations(result: Result) -> list[Step]:
    """Return the iterations of all ranks, in order of rank and number."""
    hulls: dict[tuple[int, int], dict[int, Interval]] = {}
    for work in result.machine.works():
        process, gpu = work.stream.context.process, work.stream.context.gpu.number
        if work.step <= 0 or not process.recorded or process.name == "other program":
            continue
        rank = gpu if result.plan.stages == 1 else 0
        hull = hulls.setdefault((rank, work.step), {})
        first, last = hull.get(gpu, (work.start, work.end))
        hull[gpu] = min(first, work.start), max(last, work.end)
    return [
        Step(rank, number, start, end, hulls.get((rank, number), {}))
        for rank, number, start, end in sorted(result.machine.steps)
    ]
