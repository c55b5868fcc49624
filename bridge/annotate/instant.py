"""Instants: marks, and counters, whose values are marks that the importer puts in a row.

The invariant: a counter's value is right in this process whether or not a tool listens.
"""

from __future__ import annotations

import os
from threading import RLock
from typing import Self

from bridge.annotate import emit
from bridge.annotate.emit import state
from bridge.annotate.label import Label, checked, checked_name, checked_payload

COUNTER = "counter:"  # before the name, in the text of the mark: what importers know it by
# Held again by its own thread: a signal handler may count while another count is recorded.
_adding = RLock()
os.register_at_fork(after_in_child=_adding._at_fork_reinit)  # type: ignore[attr-defined]  # noqa: SLF001


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
