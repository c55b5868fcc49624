"""Which importer reads a file, by its first bytes and its name.

Most files are SQLite exports of Nsight Systems: what reads others is loaded with the first of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from importers.nsys import export
from importers.nsys.read import read as read_nsys
from importers.nsys.table import JSON, Details, asked
from importers.report import Report

SQLITE = b"SQLite format 3\0"
Reader = tuple[Callable[[Path], bool], Callable[[Path, Details], Report]]  # what is its, and how
Beside = Callable[[Report, Path, Sequence[Path]], Report]


def read(path: Path, details: Details, sidecar: Sequence[Path]) -> Report:
    """Read a file that is there; raises a `ReportError`, or OSError."""
    with path.open("rb") as file:
        if file.read(len(SQLITE)) == SQLITE:
            return _profiled(path, details, sidecar)
    return _other(path, details) or _profiled(path, details, sidecar)


def all_loaded() -> None:
    """Load every importer, for a program in which `import importers` will mean another package."""
    _beside()
    for reader in OTHERS:
        reader()


def _other(path: Path, details: Details) -> Report | None:
    """Read what is of anything but Nsight Systems; None if nothing says that it is."""
    for reader in OTHERS:
        fits, load = reader()
        if fits(path):
            return load(path, details)
    return None


def _profiled(path: Path, details: Details, sidecar: Sequence[Path]) -> Report:
    """Read a report of Nsight Systems, with the recordings beside it."""
    report = _exported(path, details)
    return _beside()(report, path, sidecar) if asked(details, JSON) else report


def _exported(path: Path, details: Details) -> Report:
    if path.suffix not in export.SUFFIXES:
        return read_nsys(path, details=details)
    with export.exported(path) as sqlite:
        return read_nsys(sqlite, details=details)


@cache
def _beside() -> Beside:
    from importers.recording.sidecar import found  # see the module's first lines; so below

    return found


@cache
def _recordings() -> Reader:
    from importers.recording import report
    from importers.recording.lines import is_recording

    return is_recording, lambda path, _: report.load(path)


@cache
def _snapshots() -> Reader:
    from importers.snapshot.file import is_snapshot
    from importers.snapshot.read import read as load

    return is_snapshot, lambda path, _: load(path)


@cache
def _traces() -> Reader:
    from importers.kineto.file import is_json
    from importers.kineto.read import read as load

    return is_json, lambda path, _: load(path)


@cache
def _of_kernels() -> Reader:
    from importers.ncu.report import is_ncu, load

    return is_ncu, load


OTHERS = (_recordings, _snapshots, _traces, _of_kernels)
