"""Instants: marks, and counters, whose values are marks that the importer puts in a row.

The invariant: a counter's value is right in this process whether or not a tool listens.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import Any, Self

from bridge.annotate import emit
from bridge.annotate.emit import state
from bridge.annotate.label import Label, checked, checked_name, checked_payload
from bridge.annotate.op import Op, Span, nvtx_op, nvtx_range

# -- A domain, and what is annotated in it, in the words of MXNet's profiler and of ITT


class Timed:
    """A range with the calls `start` and `stop`; it surrounds a block as well."""

    def __init__(self, surrounding: Op | Span) -> None:
        self._range = surrounding

    def start(self) -> None:
        """Begin it."""
        self._range.__enter__()

    def stop(self) -> None:
        """End it."""
        self._range.__exit__(None, None, None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()


class Marker:
    """An instant with a name."""

    def __init__(self, name: str, domain: str) -> None:
        self._name, self._domain = name, domain

    def mark(self, scope: str = "process") -> None:
        """Record it; ``scope`` (thread, process, global …) becomes its category."""
        mark(self._name, domain=self._domain, category=scope)


class Domain:
    """A named group of annotations; profilers show each on rows of its own."""

    def __init__(self, name: str) -> None:
        self.name = checked_name(name)

    def __repr__(self) -> str:
        return f"Domain({self.name!r})"

    def op(self, name: Any = None, **more: Any) -> Any:
        """Annotate a function or a block, as `nvtx_op` does."""
        return nvtx_op(name, domain=self.name, **more)

    def range(self, name: str, **more: Any) -> Span:
        """Make a start/end range, as `nvtx_range` does."""
        return nvtx_range(name, domain=self.name, **more)

    def task(self, name: str) -> Timed:
        """Make a task: a logical piece of work, on whatever threads."""
        return Timed(nvtx_range(name, domain=self.name, category="task"))

    def frame(self, name: str) -> Timed:
        """Make a frame: a piece of work that comes again and again."""
        return Timed(nvtx_range(name, domain=self.name, category="frame"))

    def event(self, name: str) -> Timed:
        """Make an event: a range of the thread that starts it."""
        return Timed(nvtx_op(name, domain=self.name, category="event"))

    def counter(self, name: str, value: float | None = None) -> Counter:
        """Make a counter, as `counter` does."""
        return counter(name, value, domain=self.name)

    def marker(self, name: str) -> Marker:
        """Make a marker: an instant, whenever its `mark` is called."""
        return Marker(name, self.name)


# -- Instants: marks, and counters, whose values are marks that the importer puts in a row


COUNTER = "counter:"  # before the name, in the text of the mark: what importers know it by
# Held again by its own thread: a signal handler may count while another count is recorded.
_adding = RLock()
os.register_at_fork(after_in_child=_adding._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001 (as the standard library does with its own locks)


def mark(
    name: str,
    *,
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> None:
    """Record an instant of this thread; a payload is an int of 64 bits or a float."""
    label = Label(checked_name(name), *checked(domain, category, color))
    value = checked_payload(payload)
    if not state.idle:
        emit.current().mark(label, 0 if value is None else value)


class Counter:
    """A number over time: ``c = counter("queue"); c += 1``; every change is one sample."""

    __slots__ = ("_value", "label")

    def __init__(self, label: Label, value: float) -> None:
        self.label = label
        self._value = value

    @property
    def value(self) -> float:
        """The value that was set last."""
        return self._value

    def set(self, value: float) -> None:
        """Set the value and record it: an int of 64 bits or a float."""
        checked_payload(value)
        with _adding:
            self._record(value)

    def add(self, by: float = 1) -> None:
        """Add to the value, which other threads may change as well, and record it."""
        with _adding:
            checked_payload(self._value + by)
            self._record(self._value + by)

    def __iadd__(self, by: float) -> Self:
        self.add(by)
        return self

    def __isub__(self, by: float) -> Self:
        self.add(-by)
        return self

    def _record(self, value: float) -> None:
        self._value = value
        if not state.idle:
            emit.current().mark(self.label, value)


def counter(name: str, value: float | None = None, *, domain: str | None = None) -> Counter:
    """Make a counter; a value given is its first sample, else it begins at 0 without one."""
    made = Counter(Label(COUNTER + checked_name(name), *checked(domain, None, None)), 0)
    if value is not None:
        made.set(value)
    return made
