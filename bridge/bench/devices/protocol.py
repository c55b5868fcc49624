"""What a benchmark asks of a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

Call = Callable[[], Any]
Label = Callable[[], AbstractContextManager[Any]]  # a range around a run
UNKNOWN = -1  # bytes that nobody counts


class Spans(NamedTuple):
    """When calls that ran at once began and ended, in ns from a moment of each run: a row per run, an entry per call."""

    starts: list[list[int]]
    ends: list[list[int]]


class Device(Protocol):
    """Runs calls and times them; all times are whole ns."""

    name: str  # "cpu", or what the GPU is called
    clock: str  # what the times are of
    least_ns: int  # a run shorter than this is not told well by the clock

    @property
    def loop_ns(self) -> float:
        """What the loop around the calls takes of each, itself; 0 where it is not timed."""

    def runs(self, call: Call, runs: int, number: int, label: Label, *, cold: bool) -> list[int]:
        """Return how long each run of so many calls took, from before the first to the end of the last."""

    def at_once(
        self,
        calls: Sequence[Call],
        streams: Sequence[int],
        runs: int,
        number: int,
        labels: Sequence[Label],
    ) -> Spans:
        """Run each call on its stream, all at once; calls of one stream one after another."""

    def captured(self, call: Call, number: int) -> Call:
        """Return what replays so many calls as one CUDA graph; ValueError where they cannot be captured."""

    def workspace(self, call: Call) -> int:
        """Return the bytes that a call takes and gives back, -1 where nobody counts; docs/bench.md says of each clock which."""

    def wait(self) -> None:
        """Wait for all that was issued."""
