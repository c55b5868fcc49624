"""What the reading of reports tells whoever asked for it: warnings, progress, what takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Listener(Protocol):
    """Hears what is read; the command line prints it."""

    def warn(self, lines: Iterable[str], /) -> None:
        """Take warnings, one line each."""

    def say(self, line: str, /) -> None:
        """Take a line on the progress."""

    def doing(self, what: str, /) -> AbstractContextManager[Callable[[str], None]]:
        """Return a context for what takes a while, as "reading report.sqlite"; it gives a function that renames it."""
        ...


class Silent:
    """Tells nobody."""

    def warn(self, _lines: Iterable[str], /) -> None:
        """Take warnings."""

    def say(self, _line: str, /) -> None:
        """Take a line on the progress."""

    def doing(self, _what: str, /) -> AbstractContextManager[Callable[[str], None]]:
        """Return a context for what takes a while."""
        return nullcontext(_renamed)


def _renamed(_what: str, /) -> None:
    """Take what is done now."""


SILENT: Listener = Silent()
