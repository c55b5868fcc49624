"""What troubles add to a program, by the place where it runs.

A fragment gets the rank, its numbers (as `Plan.extra` has them) and the number of the step or op.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from simulated.host import Steps

if TYPE_CHECKING:
    from simulated.ranks import Rank

Numbers = Mapping[str, float]
AT: dict[tuple[str, str], Callable[..., Steps]] = {}


def at(place: str) -> Callable[[Callable[..., Steps]], Callable[..., Steps]]:
    """Register a fragment under its own name at a place."""

    def register(function: Callable[..., Steps]) -> Callable[..., Steps]:
        AT[place, function.__name__] = function
        return function

    return register


@at("after forward op")
def needless_sync(rank: Rank, numbers: Numbers, index: int) -> Steps:
    if index % int(numbers["every"]) == 0:
        yield from rank.cuda.stream_sync(rank.stream)


__all__ = ["AT", "Any", "Numbers"]
