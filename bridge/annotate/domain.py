"""A domain, and what is annotated in it, in the words of MXNet's profiler and of ITT.

The invariant: nothing here emits; it hands on to the annotations of the other modules.
"""

from __future__ import annotations

from typing import Any, Self

from bridge.annotate.instant import Counter, counter, mark
from bridge.annotate.label import checked_name
from bridge.annotate.op import Op, nvtx_op
from bridge.annotate.span import Span, nvtx_range


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
