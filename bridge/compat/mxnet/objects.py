"""What an MXNet program annotates by hand: domains, and tasks, frames, events, counters, markers in them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Self

from bridge import annotate
from bridge.annotate import nvtx_op
from bridge.annotate.instant import Timed
from bridge.annotate.memory import scopes
from bridge.annotate.memory.scopes import UNNAMED

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
        """Make a task of this domain."""
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """Make a frame of this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        """Make a counter of this domain; a value is its first sample."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """Make a marker of this domain."""
        return Marker(self, name)


class _Named:
    def __init__(self, name: str, timed: Timed) -> None:
        self.name = name
        self._timed = timed

    def start(self) -> None:
        """Begin it."""
        self._timed.start()

    def stop(self) -> None:
        """End it."""
        self._timed.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()

    def __str__(self) -> str:
        return self.name


class Task(_Named):
    """A piece of work, on whatever threads."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(name, domain.annotations.task(name))


class Frame(_Named):
    """A piece of work that comes again and again."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(name, domain.annotations.frame(name))


class Event(_Named):
    """A range of the thread that starts it, in no domain."""

    def __init__(self, name: str) -> None:
        super().__init__(name, Timed(nvtx_op(name, category=EVENT)))


class Counter:
    """A number over time."""

    def __init__(self, domain: Domain, name: str, value: float | None = None) -> None:
        self.name = name
        self._counter = domain.annotations.counter(name, value)

    def set_value(self, value: float) -> None:
        """Set it."""
        self._counter.set(value)

    def increment(self, delta: float = 1) -> None:
        """Add to it."""
        self._counter.add(delta)

    def decrement(self, delta: float = 1) -> None:
        """Take from it; below 0 it is negative."""
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
    """An instant, whenever `mark` is called."""

    def __init__(self, domain: Domain, name: str) -> None:
        self.name = name
        self._marker: Any = domain.annotations.marker(name)

    def mark(self, scope: str = "process") -> None:
        """Record it for one of `SCOPES`; raises ValueError for another."""
        if scope not in SCOPES:
            raise ValueError(f"mark: no scope {scope!r}: one of {', '.join(SCOPES)}")
        self._marker.mark(scope)

    def __str__(self) -> str:
        return self.name


def scope(name: str = UNNAMED, append_mode: bool = True) -> AbstractContextManager[str]:
    """Surround a block by a scope; within another one its name is added to that, unless told otherwise."""
    return scopes.scope(name, append_mode)
