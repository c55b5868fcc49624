"""The interface of devices, and the error of benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

from bridge.knowledge.package import UserError


class BenchError(UserError, ValueError):
    """A benchmark cannot run as requested; the message is one line for the user."""


Call = Callable[[], Any]
Label = Callable[[], AbstractContextManager[Any]]  # returns the range around a run
UNKNOWN = -1  # bytes that are not counted


class Spans(NamedTuple):
    """Begin and end of calls that ran concurrently, in ns relative to the start of each run.

    A row per run, an entry per call.
    """

    starts: list[list[int]]
    ends: list[list[int]]


class Device(Protocol):
    """Runs calls and times them; all times are int ns."""

    name: str  # "cpu", or the name of the GPU
    clock: str  # the source of the times
    least_ns: int  # shorter runs are too short for the clock's resolution

    @property
    def loop_ns(self) -> float:
        """The time per call that the loop itself takes, in ns; 0 if it is not in the times."""

    def runs(self, call: Call, runs: int, number: int, label: Label, *, cold: bool) -> list[int]:
        """Return the ns of each run of ``number`` calls, from the first begin to the last end."""

    def at_once(
        self,
        calls: Sequence[Call],
        streams: Sequence[int],
        runs: int,
        number: int,
        labels: Sequence[Label],
    ) -> Spans:
        """Run each call on its stream, concurrently; calls of one stream run in order."""

    def captured(self, call: Call, number: int) -> Call:
        """Return a call that replays ``number`` calls as a CUDA graph; raises ValueError."""

    def workspace(self, call: Call) -> int:
        """Return the bytes that a call allocates and frees again, -1 if they are not counted.

        docs/bench.md defines them for each clock.
        """

    def wait(self) -> None:
        """Wait for all issued work."""
