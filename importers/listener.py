"""What the reading of reports tells whoever asked for it: warnings, progress, what takes a while."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext


class Listener:
    """Hears what is read. This one is silent; the command line prints."""

    def warn(self, lines: Iterable[str]) -> None:
        """Take warnings, one line each."""

    def say(self, line: str) -> None:
        """Take a line on the progress."""

    def doing(self, _what: str, /) -> AbstractContextManager[Callable[[str], None]]:
        """Return a context for what takes a while, as "reading report.sqlite"; it gives a function that renames it."""
        return nullcontext(_heard)


def _heard(_what: str, /) -> None:
    """Take what is done now."""


SILENT = Listener()
