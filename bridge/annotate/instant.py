"""Marks, counters and domains.

The values of a counter are recorded as marks, which the importer joins to a series. The value is
correct in this process whether or not a tool is attached.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import Any, Self

from bridge.annotate import emit
from bridge.annotate.emit import state
from bridge.annotate.label import Label, checked, checked_name, checked_payload
from bridge.annotate.op import Op, Span, nvtx_op, nvtx_range

# -- Domains, with the calls of MXNet's profiler and of ITT


class TimedRange:
    """A range with `start` and `stop`; also a context manager."""

    def __init__(self, wrapped: Op | Span) -> None:
        self._range = wrapped

    def start(self) -> None:
        """Start the range."""
        self._range.__enter__()

    def stop(self) -> None:
        """End the range."""
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
        """Record the marker; ``scope`` (thread, process, global …) becomes its category."""
        mark(self._name, domain=self._domain, category=scope)


class Domain:
    """A named group of annotations, which profilers show on separate rows."""

    def __init__(self, name: str) -> None:
        self.name = checked_name(name)

    def __repr__(self) -> str:
        return f"Domain({self.name!r})"

    def op(self, name: Any = None, **more: Any) -> Any:
        """Annotate a function or a block, as `nvtx_op` does."""
        return nvtx_op(name, domain=self.name, **more)

    def range(self, name: str, **more: Any) -> Span:
        """Return a start/end range, as `nvtx_range` does."""
        return nvtx_range(name, domain=self.name, **more)

    def task(self, name: str) -> TimedRange:
        """Return a task: a logical piece of work on any threads."""
        return TimedRange(nvtx_range(name, domain=self.name, category="task"))

    def frame(self, name: str) -> TimedRange:
        """Return a frame: a piece of work that repeats."""
        return TimedRange(nvtx_range(name, domain=self.name, category="frame"))

    def event(self, name: str) -> TimedRange:
        """Return an event: a range of the thread that starts it."""
        return TimedRange(nvtx_op(name, domain=self.name, category="event"))

    def counter(self, name: str, value: float | None = None) -> Counter:
        """Return a counter, as `counter` does."""
        return counter(name, value, domain=self.name)

    def marker(self, name: str) -> Marker:
        """Return a marker, which records an instant at each `mark`."""
        return Marker(name, self.name)


# -- Marks and counters


COUNTER = "counter:"  # prefix in the text of the mark, which importers recognize
# Reentrant, because a signal handler may count while a count is recorded.
_adding = RLock()
os.register_at_fork(after_in_child=_adding._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001 (as the standard library does)


def mark(
    name: str,
    *,
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> None:
    """Record an instant of this thread; a payload is a 64-bit int or a float."""
    label = Label(checked_name(name), *checked(domain, category, color))
    value = checked_payload(payload)
    if not state.idle:
        _emit(label, 0 if value is None else value)


@emit.emission.hook
def _emit(label: Label, value: float) -> None:
    emit.current().mark(label, value)


class Counter:
    """A number over time, for example ``c = counter("queue"); c += 1``.

    Every change is a sample.
    """

    __slots__ = ("_value", "label")

    def __init__(self, label: Label, value: float) -> None:
        self.label = label
        self._value = value

    @property
    def value(self) -> float:
        """The current value."""
        return self._value

    def set(self, value: float) -> None:
        """Set the value, a 64-bit int or a float, and record it."""
        checked_payload(value)
        with _adding:
            self._record(value)

    def add(self, by: float = 1) -> None:
        """Add to the value and record it; thread-safe."""
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
            _emit(self.label, value)


def counter(name: str, value: float | None = None, *, domain: str | None = None) -> Counter:
    """Return a counter.

    ``value`` is its first sample. Without it the value is 0, without a sample.
    """
    new = Counter(Label(COUNTER + checked_name(name), *checked(domain, None, None)), 0)
    if value is not None:
        new.set(value)
    return new
