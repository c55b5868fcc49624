"""What emits ranges: the interface of a back end, and the back end that emits nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from bridge.annotate.label import Label

# -- The versions of installed distributions, looked up only when somebody asks


def version_of(distribution: str) -> str:
    """Return the version installed, or nothing."""
    from importlib import metadata  # 30 ms, and most programs never ask

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


# -- What emits ranges: the interface of a back end, and the back end that emits nothing


# How ranges of one label are emitted on one thread: set the payload, push, pop.
Bound = tuple[Callable[[Any], None], Callable[[], object], Callable[[], object]]


class Emitter(Protocol):
    """What a back end can do; it pushes and pops on the thread that calls it."""

    @property
    def name(self) -> str:
        """What `backend()` calls it."""

    @property
    def version(self) -> str:
        """Of the library behind it."""

    def push(self, label: Label, payload: float) -> None:
        """Open a range on this thread, above the others of its domain."""

    def pop(self, domain: str | None) -> None:
        """Close the topmost range of the domain on this thread."""

    def mark(self, label: Label, payload: float) -> None:
        """Record an instant."""

    def start(self, label: Label, payload: float) -> Any:
        """Begin a range of the process; return what `end` knows it by."""

    def end(self, label: Label, handle: Any) -> None:
        """End such a range, on whatever thread."""


class Silent:
    """The back end when there is none."""

    name = "off"
    version = ""

    def push(self, label: Label, payload: float) -> None:
        """Do nothing."""

    def pop(self, domain: str | None) -> None:
        """Do nothing."""

    def mark(self, label: Label, payload: float) -> None:
        """Do nothing."""

    def start(self, label: Label, payload: float) -> None:
        """Do nothing."""

    def end(self, label: Label, handle: None) -> None:
        """Do nothing."""
