"""What is true of a program: its length, the states of its GPUs, why they were idle, and what remedies save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from simulated.causes import Piece, idle_pieces
from simulated.programs import Program, Result, simulate
from simulated.span import Interval, run_span, states, works_of
from simulated.troubles import About, Trouble


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
    """The truth of a program. Times are ns of the simulation's clock; keys of GPUs are their numbers."""

    result: Result
    span: Interval
    states: dict[int, dict[str, int]]
    idle: dict[int, list[Piece]]
    troubles: tuple[TroubleTruth, ...]
    all_saving_ns: int

    @property
    def length_ns(self) -> int:
        """The length of the run."""
        return self.span[1] - self.span[0]

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
        )


def _length(program: Program, without: frozenset[str]) -> int:
    start, end = run_span(simulate(program, without).machine)
    return end - start


def _trouble(program: Program, trouble: Trouble, length: int) -> TroubleTruth:
    healthy, name = trouble.kind.healthy, trouble.name
    remedied = length if healthy else _length(program, frozenset([name]))
    about = trouble.kind.about(program.planned())
    return TroubleTruth(name, length - remedied, about, healthy, remedied)
