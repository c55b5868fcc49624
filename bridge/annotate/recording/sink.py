"""Where the lines of a recording go: appended to a file, or kept in memory.

The invariant: a file has one writer, which appends whole lines; what a killed process leaves is
readable up to its last line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

ENDING = ".jsonl"
_NEW = os.O_CREAT | os.O_EXCL


class Sink(Protocol):
    """Takes lines, and gives a forked child a sink of its own."""

    def write(self, lines: bytes) -> None:
        """Append whole lines; raises OSError."""

    def close(self) -> None:
        """Write no more."""

    def child(self) -> Sink:
        """Return where a forked child writes, whose copy of this sink is not to be used."""


class Memory:
    """Lines that are kept until somebody wants them."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, lines: bytes) -> None:
        """Keep the lines."""
        self.lines.append(lines)

    def close(self) -> None:
        """Keep what is there."""

    def child(self) -> Memory:
        """Return an empty one: what the parent has is the parent's."""
        return Memory()


class File:
    """A file that is made at the first line; in a forked child one of another name."""

    def __init__(self, path: Path, *, replace: bool = False) -> None:
        self.path = path.absolute()  # wherever the program goes
        self._replace = replace  # one that is there already
        self._made = False

    def write(self, lines: bytes) -> None:
        """Append to the file; raises OSError."""
        # Opened each time: a program that closes all files, as daemons do, may give the number to another.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | self._making(), 0o644)
        self._made = True
        try:
            while lines:
                lines = lines[os.write(file, lines) :]
        finally:
            os.close(file)

    def close(self) -> None:
        """Do nothing: the file is open only while it is written."""

    def child(self) -> File:
        """Return the file of a forked child, named after its process as well."""
        named = f"{self.path.name.removesuffix(ENDING)}-{os.getpid()}{ENDING}"
        return File(self.path.with_name(named), replace=True)

    def _making(self) -> int:
        """Return with which flags to open: the first time it is made, and its folder."""
        if self._made:
            return 0
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self._replace:
            self.path.unlink(missing_ok=True)  # not truncated: somebody may be reading it
        return _NEW


def joined(lines: Sequence[bytes]) -> bytes:
    """Return lines as they are written."""
    return b"".join(line + b"\n" for line in lines)
