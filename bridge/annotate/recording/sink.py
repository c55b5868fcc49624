"""Sinks of a recording: a file, or memory.

A file has one writer, which appends whole lines. The file of a killed process is readable up to its
last line.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

ENDING = ".jsonl"
_NEW = os.O_CREAT | os.O_EXCL
# nsys starts programs with the umask 0, with which everybody could write into the folder.
FOLDER_MODE = 0o755


class Sink(Protocol):
    """Receives lines; a forked child gets a sink of its own."""

    def write(self, lines: bytes) -> None:
        """Append whole lines; raises OSError."""

    def close(self) -> None:
        """Stop writing."""

    def child(self) -> Sink:
        """Return the sink of a forked child, which must not use its copy of this one."""


class Memory:
    """Keeps lines in memory."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, lines: bytes) -> None:
        self.lines.append(lines)

    def close(self) -> None:
        """Do nothing; the lines are kept."""

    def child(self) -> Memory:
        """Return an empty sink; the lines belong to the parent."""
        return Memory()


class File:
    """A file that is created at the first line; a forked child gets a file of another name."""

    def __init__(self, path: Path, *, replace: bool = False) -> None:
        self.path = path.absolute()  # valid even if the program changes folders
        self._replace = replace  # replace an existing file
        self._is_created = False

    def write(self, lines: bytes) -> None:
        # Opened each time: a program that closes all files, as daemons do, may reuse the file
        # descriptor.
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | self._creation_flags(), 0o644)
        self._is_created = True
        try:
            while lines:
                lines = lines[os.write(file, lines) :]
        finally:
            os.close(file)

    def close(self) -> None:
        """Do nothing; the file is open only during a write."""

    def child(self) -> File:
        """Return the file of a forked child, whose name contains its process id."""
        named = f"{self.path.name.removesuffix(ENDING)}-{os.getpid()}{ENDING}"
        return File(self.path.with_name(named), replace=True)

    def _creation_flags(self) -> int:
        """Return additional flags for opening.

        The first time, creates the folder and prepares the file.
        """
        if self._is_created:
            return 0
        self.path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
        if self._replace:
            self.path.unlink(
                missing_ok=True
            )  # not truncated, because another process may be reading it
        return _NEW


def joined(lines: Sequence[bytes]) -> bytes:
    """Return the lines joined, each with a line end."""
    return b"".join(line + b"\n" for line in lines)
