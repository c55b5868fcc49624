"""Errors for bad input, each with a message of one line for the user.

ReportError                 every failure that bad input causes
├── NotAReport              the file has another format, or is damaged
│   └── NoSuchReport        there is no file of that name
├── NothingRecorded         a profile without ranges, launches and activities
└── ExportFailed            nsys is missing, too old, or failed
"""

from __future__ import annotations

from pathlib import Path


class ReportError(Exception):
    """A report cannot be read; the message names the file, the reason and what to do."""


class NotAReport(ReportError):  # noqa: N818 - public name
    """The file is not a report of a known format, or it is damaged."""


class NoSuchReport(NotAReport):
    """There is no file of that name; ``path`` is as the caller wrote it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def __str__(self) -> str:
        return f"{self.path}: no such file; is the name right?"


class NothingRecorded(ReportError):  # noqa: N818 - as above
    """The file is a profile without ranges, launches and activities; ``source`` is its base name, "" if not said."""

    def __init__(self, message: str, *, source: str = "") -> None:
        super().__init__(message)
        self.source = source


class ExportFailed(ReportError):  # noqa: N818 - as above
    """nsys could not export an .nsys-rep file to SQLite."""
