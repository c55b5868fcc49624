"""The schedule of PyTorch's profiler, with its errors."""

from __future__ import annotations

from collections.abc import Callable

from bridge.capture.session import schedule as steps
from bridge.capture.session.schedule import Action


def schedule(**numbers: int) -> Callable[[int], Action]:
    """Make the function from a step's number to what is done with it, as `bridge.schedule` does.

    Raises AssertionError for numbers that make no sense, and for the number of a step below 0.
    """
    try:
        action_of = steps.schedule(**numbers)
    except ValueError as problem:
        raise AssertionError(f"Invalid profiler schedule arguments: {problem}") from None

    def asserted(step: int) -> Action:
        try:
            return action_of(step)
        except ValueError as problem:
            raise AssertionError(str(problem)) from None

    return asserted
