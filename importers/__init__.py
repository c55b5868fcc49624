"""A file becomes frames: `load` knows the formats, and nothing of what is done with them."""

from __future__ import annotations

from pathlib import Path

from importers.errors import NotAReport, ReportError
from importers.nsys import export
from importers.nsys.read import read as read_nsys
from importers.nsys.table import Details
from importers.report import Facts, Report, concat

__all__ = ["Facts", "Report", "ReportError", "load"]


def load(*paths: str | Path, details: Details = True) -> Report:
    """Read one report, or several as one.

    ``details=False`` takes half the time: it leaves out the columns and frames that are marked in
    docs/frames.md, which only say more of a single row; so does naming those that are needed:
    ``details={"mangled", "waits"}``.

    Takes Nsight Systems SQLite exports of any version, and ``.nsys-rep``/``.qdrep`` files where
    nsys is installed. Raises `ReportError`, whose message is one line for the user.
    """
    if not paths:
        raise ReportError("no report given")
    _apart([Path(path) for path in paths])
    return concat([_load(Path(path), details=details) for path in paths])


def _load(path: Path, *, details: Details) -> Report:
    try:
        _readable(path)
        if path.suffix not in export.SUFFIXES:
            return read_nsys(path, details=details)
        with export.exported(path) as sqlite:
            return read_nsys(sqlite, details=details)
    except OSError as error:
        raise NotAReport(f"{path}: {error.strerror or error}") from error


def _apart(paths: list[Path]) -> None:
    seen: set[Path] = set()
    for path in (path.resolve() for path in paths):
        if path in seen:
            raise ReportError(f"{path.name}: given twice; it would be counted twice")
        seen.add(path)


def _readable(path: Path) -> None:
    if path.is_dir():
        raise NotAReport(f"{path}: a folder; name the report inside it")
    if not path.exists():
        raise NotAReport(f"{path}: no such file; is the name right?")
    if not path.is_file():
        raise NotAReport(f"{path}: a pipe or a device; write the report to a file first")
    if not path.stat().st_size:
        raise NotAReport(f"{path.name}: empty; did the profiler finish writing it?")
