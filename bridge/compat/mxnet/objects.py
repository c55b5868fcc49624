"""The objects of MXNet's profiler: domains, tasks, frames, events, counters, markers, memory scopes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Self

from bridge import annotate
from bridge.annotate import nvtx_op
from bridge.annotate.instant import TimedRange
from bridge.annotate.memory import scopes
from bridge.annotate.memory.scopes import UNNAMED
from bridge.knowledge.suggestions import unknown_name


class MXNetError(RuntimeError):
    """The error that MXNet's library raises."""


EVENT = "event"
SCOPES = ("global", "process", "thread", "task", "marker")


class Domain:
    """A named group of tasks, frames, counters and markers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.annotations = annotate.Domain(name)

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        """Return a task of this domain."""
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """Return a frame of this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        """Return a counter of this domain; a value is its first sample."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """Return a marker of this domain."""
        return Marker(self, name)


class _Range:
    def __init__(self, name: str, timed: TimedRange) -> None:
        self.name = name
        self._timed = timed

    def start(self) -> None:
        """Begin the range."""
        self._timed.start()

    def stop(self) -> None:
        """End the range."""
        self._timed.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()

    def __str__(self) -> str:
        return self.name


class Task(_Range):
    """A range of work on any threads."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(name, domain.annotations.task(name))


class Frame(_Range):
    """A range of repeated work."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(name, domain.annotations.frame(name))


class Event(_Range):
    """A range of the thread that starts it, without a domain."""

    def __init__(self, name: str) -> None:
        super().__init__(name, TimedRange(nvtx_op(name, category=EVENT)))


class Counter:
    """A value over time."""

    def __init__(self, domain: Domain, name: str, value: float | None = None) -> None:
        self.name = name
        self._counter = domain.annotations.counter(name, value)

    def set_value(self, value: float) -> None:
        """Set the value."""
        self._counter.set(value)

    def increment(self, delta: float = 1) -> None:
        """Add to the value."""
        self._counter.add(delta)

    def decrement(self, delta: float = 1) -> None:
        """Subtract from the value, which may become negative."""
        self._counter.add(-delta)

    def __iadd__(self, delta: float) -> Self:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Self:
        self.decrement(delta)
        return self

    def __str__(self) -> str:
        return self.name


class Marker:
    """Records an instant at each call of `mark`."""

    def __init__(self, domain: Domain, name: str) -> None:
        self.name = name
        self._marker: Any = domain.annotations.marker(name)

    def mark(self, scope: str = "process") -> None:
        """Record an instant for one of `SCOPES`; raises MXNetError for another scope."""
        if scope not in SCOPES:
            raise MXNetError(f"mark: {unknown_name('scope', scope, SCOPES)}")
        self._marker.mark(scope)

    def __str__(self) -> str:
        return self.name


def scope(name: str = UNNAMED, append_mode: bool = True) -> AbstractContextManager[str]:
    """Surround a block with a memory scope; its name is appended to the outer one by default."""
    return scopes.scope(name, append_mode)
