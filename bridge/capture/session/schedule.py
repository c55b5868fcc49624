"""Which steps are profiled: the schedule of PyTorch's profiler, number for number.

The invariant: a schedule is a function of the step alone. Two things differ from PyTorch: parameters
that make no sense raise ValueError, where PyTorch asserts, and no warm-up is no reason to warn, for
under nsys nothing is left to be warmed up when a step begins.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from operator import index
from typing import Any


class Action(Enum):
    """What is done with a step; RECORD_AND_SAVE is the last step of a cycle that is recorded."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> Callable[[int], Action]:
    """Make the function from a step's number to what is done with it; all numbers count steps.

    After `skip_first` steps come `repeat` cycles (0: without end) of `wait`, `warmup` and `active`
    steps; with `skip_first_wait` other than 0, the first cycle goes without its `wait` steps. Raises
    ValueError for numbers below 0, for no active step, and for what is no whole number.
    """
    wait, warmup = _steps("wait", wait), _steps("warmup", warmup)
    active, repeat = _steps("active", active, least=1), _steps("repeat", repeat)
    skip_first = _steps("skip_first", skip_first)
    waited = wait if skip_first_wait else 0
    cycle = wait + warmup + active

    def action_of(step: int) -> Action:
        number = _steps("a step's number", step) - skip_first
        if number < 0:
            return Action.NONE
        cycles, place = divmod(number + waited, cycle)
        if place < wait or (repeat and cycles >= repeat):
            return Action.NONE
        if place < wait + warmup:
            return Action.WARMUP
        return Action.RECORD if place < cycle - 1 else Action.RECORD_AND_SAVE

    return action_of


def every_step(_: int) -> Action:
    """Record every step: the schedule where none is given."""
    return Action.RECORD


def action_at(step: int, actions: Callable[[int], Any]) -> Action:
    """Ask a schedule, whoever wrote it, for a step; PyTorch's actions are taken by their names.

    Raises ValueError when it gives anything else.
    """
    given = actions(step)
    if isinstance(given, Action):
        return given
    name = given.name if isinstance(given, Enum) else ""
    if name not in Action.__members__:
        known = ", ".join(Action.__members__)
        raise ValueError(f"the schedule gives {given!r} for step {step}, none of {known}")
    return Action[name]


def _steps(name: str, given: Any, least: int = 0) -> int:
    """Check a number of steps."""
    try:
        steps = index(given)
    except TypeError:
        steps = least - 1
    if steps < least:
        raise ValueError(f"schedule: {name} is a whole number of at least {least}, not {given!r}")
    return steps
