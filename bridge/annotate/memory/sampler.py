"""A back end of the annotations that looks at the memory whenever an op ends.

It looks while the op's range is still open, so that whoever records a sample knows whose it is. The invariant:
everything is handed on to the back end behind it, and what looking raises stops no program.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from threading import local
from typing import Any

from bridge.annotate.emit import Emitter
from bridge.annotate.label import Label
from bridge.annotate.said import warn


def checked_rate(rate: object, least: int) -> int:
    """Return how many ops there are to a sample; raises ValueError for what is no count."""
    if isinstance(rate, bool) or not isinstance(rate, int) or rate < least:
        raise ValueError(f"sample_rate is a number of ops, {least} or more, not {rate!r}")
    return rate


class _Open(local):
    """What is open on the running thread, the domains mixed."""

    def __init__(self) -> None:
        self.labels: list[Label] = []


class Sampler:
    """Calls ``look`` with the op's name at every ``every``-th op that ends, on its thread; 0 for never."""

    def __init__(self, behind: Emitter, every: int, look: Callable[[str], None]) -> None:
        self.behind, self.every = behind, every
        self._look = look
        self._here = _Open()
        self._ended = count(1)

    @property
    def name(self) -> str:
        """The back end's behind it."""
        return self.behind.name

    @property
    def version(self) -> str:
        """The back end's behind it."""
        return self.behind.version

    def push(self, label: Label, payload: float) -> None:
        """Open a range."""
        self.behind.push(label, payload)
        self._here.labels.append(label)

    def pop(self, domain: str | None) -> None:
        """Look, and close the topmost range of the domain."""
        closed = self._closed(domain)
        try:
            if closed and self.every and next(self._ended) % self.every == 0:
                self._looked(closed.name)
        finally:
            self.behind.pop(domain)

    def mark(self, label: Label, payload: float) -> None:
        """Record an instant."""
        self.behind.mark(label, payload)

    def start(self, label: Label, payload: float) -> Any:
        """Begin a range of the process."""
        return self.behind.start(label, payload)

    def end(self, label: Label, handle: Any) -> None:
        """End such a range."""
        self.behind.end(label, handle)

    def _looked(self, op: str) -> None:
        try:
            self._look(op)
        except Exception as problem:  # noqa: BLE001 - the program is not to fail for being looked at
            self.every = 0
            warn(f"memory is sampled no more: {problem}")

    def _closed(self, domain: str | None) -> Label | None:
        labels = self._here.labels
        at = next((i for i in reversed(range(len(labels))) if labels[i].domain == domain), None)
        return None if at is None else labels.pop(at)
