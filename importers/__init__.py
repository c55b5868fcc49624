"""A file becomes frames: `load` knows the formats, and nothing of what is done with them."""

from __future__ import annotations

from pathlib import Path

from importers.errors import NotAReport, ReportError
from importers.nsys import export
from importers.nsys.read import read as read_nsys
from importers.report import Facts, Report, concat

__all__ = ["Facts", "Report", "ReportError", "load"]


def load(*paths: str | Path) -> Report:
    """Read one report, or several as one.

    Takes Nsight Systems SQLite exports of any version, and ``.nsys-rep``/``.qdrep`` files where
    nsys is installed. Raises `ReportError`, whose message is one line for the user.
    """
    if not paths:
        raise ReportError("no report given")
    return concat([_load(Path(path)) for path in paths])


def _load(path: Path) -> Report:
    try:
        _readable(path)
        if path.suffix not in export.SUFFIXES:
            return read_nsys(path)
        with export.exported(path) as sqlite:
            return _named(read_nsys(sqlite), path)
    except OSError as error:
        raise NotAReport(f"{path}: {error.strerror or error}") from error


def _readable(path: Path) -> None:
    if path.is_dir():
        raise NotAReport(f"{path}: a folder; name the report inside it")
    if not path.exists():
        raise NotAReport(f"{path}: no such file")
    if not path.stat().st_size:
        raise NotAReport(f"{path.name}: empty; did the profiler finish writing it?")


def _named(report: Report, path: Path) -> Report:
    """Let what was read from an export go by the name of the file it was made from."""
    from dataclasses import replace  # noqa: PLC0415

    return replace(report, source=(path.name,))
