"""Emitters of ranges: the interface of a back end, the null back end, and safe warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from bridge.annotate.label import Label

EXIT_S = 10.0  # limit of each wait at the end of a program, which would end without it


def version_of(distribution: str) -> str:
    """Return the installed version of a distribution, or ""."""
    from importlib import metadata  # takes 30 ms, and most programs do not need it

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""


# The functions that emit ranges of one label on one thread: set the payload, push, pop.
Bound = tuple[Callable[[Any], None], Callable[[], object], Callable[[], object]]


class Emitter(Protocol):
    """Interface of a back end. It pushes and pops on the calling thread."""

    @property
    def name(self) -> str:
        """The name that `backend()` returns."""

    @property
    def version(self) -> str:
        """The version of the library."""

    def push(self, label: Label, payload: float) -> None:
        """Open a range on this thread, as the innermost of its domain."""

    def pop(self, domain: str | None) -> None:
        """Close the innermost range of the domain on this thread."""

    def mark(self, label: Label, payload: float) -> None:
        """Record an instant."""

    def start(self, label: Label, payload: float) -> Any:
        """Start a process range (start/end); return the handle that `end` takes."""

    def end(self, label: Label, handle: Any) -> None:
        """End the process range of a handle, on any thread."""


class NullEmitter:
    """A back end that emits nothing."""

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


def warn(message: str, stacklevel: int = 2) -> None:
    """Issue a RuntimeWarning; never raises: where warnings are errors, or fail, writes to stderr."""
    text = f"bridge: {message}"
    with suppress(Exception):  # of `warnings.showwarning`, too
        warnings.warn(text, RuntimeWarning, stacklevel=stacklevel + 1)
        return
    with suppress(Exception):  # stderr may be None, or closed
        sys.stderr.write(f"{text}\n")
