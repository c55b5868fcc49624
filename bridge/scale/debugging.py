"""The log of the rooms and the causes of an error, on stderr: what `bridge --debug` adds to a command.

Each room logs under its name (``bridge.importers``, ``bridge.join`` …): which file, format, reader, table and
way were chosen, and what was skipped. It logs at level DEBUG, which Python shows nobody who did not ask;
programs ask as for every library, with `logging`. No logger has a NullHandler: it would hide the one
warning, that a store was upgraded, from programs that set nothing up.

Nothing that is printed here has the credentials of a URL, and nothing in it acts on a terminal.
"""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress

ROOMS = "bridge"  # the logger above those of the rooms
VARIABLE, ON = "BRIDGE_DEBUG", "1"  # worker processes inherit it: they have no command line


def is_on() -> bool:
    """Return whether commands of this process print their log."""
    return os.environ.get(VARIABLE) == ON


@contextmanager
def logged(who: str = "") -> Iterator[None]:
    """Print on stderr what the rooms log within the block, also in worker processes that start in it.

    ``who`` names a process that is not the command itself.
    """
    logger = logging.getLogger(ROOMS)
    handler = _OnStderr(logging.DEBUG)
    handler.setFormatter(_Public(f"[%(relativeCreated)5.0f ms] {who}%(name)s: %(message)s"))
    level, variable = logger.level, os.environ.get(VARIABLE)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    os.environ[VARIABLE] = ON
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        if variable is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = variable


def causes(error: BaseException) -> str:
    """Return the traceback of an error, after those of what caused it."""
    return _public("".join(traceback.format_exception(error)))


class _OnStderr(logging.Handler):
    """Writes to what is stderr now, which a test or a program may have replaced since."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record; a closed stderr loses it, and does not fail the command."""
        with suppress(OSError, ValueError):
            sys.stderr.write(f"{self.format(record)}\n")
            sys.stderr.flush()  # what follows may end the process


class _Public(logging.Formatter):
    """Formats a record as it may be shown to others; a warning is the line that it is without --debug."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        if record.levelno >= logging.WARNING:
            return _public(record.getMessage())
        return _public(super().format(record))


def _public(text: str) -> str:
    """Return a text without the credentials of URLs, and without characters on which a terminal acts."""
    from bridge.importers.remote import without_credentials

    return "\n".join(_printable(without_credentials(line)) for line in text.split("\n"))


def _printable(line: str) -> str:
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line)
