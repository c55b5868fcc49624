"""Schedules: which steps are profiled, as in PyTorch's profiler.

A schedule is a function of the step number alone. There are two differences from PyTorch: invalid
parameters raise ValueError instead of failing an assertion, and a schedule without warm-up does not
warn, because with nsys nothing remains to be warmed up when a step begins.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from operator import index
from typing import Any

from bridge.knowledge.suggestions import unknown_name


class Action(Enum):
    """The action that a schedule chooses for a step; RECORD_AND_SAVE is the last recorded step of a cycle."""

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
    """Return a function from step numbers to actions; all parameters count steps.

    After `skip_first` steps come `repeat` cycles (0: endless) of `wait`, `warmup` and `active`
    steps. If `skip_first_wait` is not 0, the first cycle has no `wait` steps. Raises ValueError for
    negative numbers, for 0 active steps, and for values that are not integers.
    """
    wait, warmup = _steps("wait", wait), _steps("warmup", warmup)
    active, repeat = _steps("active", active, minimum=1), _steps("repeat", repeat)
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
    """Record every step; the default schedule."""
    return Action.RECORD


def action_at(step: int, actions: Callable[[int], Any]) -> Action:
    """Return the action of a schedule for a step; PyTorch's actions are recognized by name.

    Raises ValueError if the schedule returns anything else.
    """
    result = actions(step)
    if isinstance(result, Action):
        return result
    name = result.name if isinstance(result, Enum) else ""
    if name not in Action.__members__:
        known = ", ".join(Action.__members__)
        raise ValueError(f"the schedule returns {result!r} for step {step}, not one of {known}")
    return Action[name]


def _steps(name: str, value: Any, minimum: int = 0) -> int:
    """Return ``value`` as an integer.

    Raises ValueError if it is not an integer of at least ``minimum``.
    """
    try:
        steps = index(value)
    except TypeError:
        steps = minimum - 1
    if steps < minimum:
        raise ValueError(f"schedule: {name} is a whole number of at least {minimum}, not {value!r}")
    return steps


# -- A schedule as text: `wait=1,warmup=1,active=3,repeat=2`


SCHEDULE_VARIABLE = "BRIDGE_SCHEDULE"
SCHEDULE_NUMBERS = ("wait", "warmup", "active", "repeat", "skip_first", "skip_first_wait")
MINIMA = {"active": 1}
DEFAULTS = {"wait": 0, "warmup": 0}


def parse_schedule(text: str) -> dict[str, int]:
    """Return the numbers of a schedule, in steps; `wait` and `warmup` default to 0.

    Raises ValueError for an unknown or repeated name, for a value that is not an integer, and
    without `active`.
    """
    result: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if name not in SCHEDULE_NUMBERS:
            raise ValueError(f"schedule: {unknown_name('key', name, SCHEDULE_NUMBERS)}")
        if not equals:
            raise ValueError(f"schedule: {name} needs a number: write {name}=NUMBER")
        if name in result:
            raise ValueError(f"schedule: {name} is given twice")
        result[name] = _parsed_number(name, number)
    if "active" not in result:
        raise ValueError("schedule: active=NUMBER is missing, the steps to record")
    return DEFAULTS | result


def _parsed_number(name: str, number: str) -> int:
    minimum = MINIMA.get(name, 0)
    if not (number.isascii() and number.isdigit()) or int(number) < minimum:
        raise ValueError(
            f"schedule: {name} is a whole number of at least {minimum}, not {number!r}"
        )
    return int(number)
