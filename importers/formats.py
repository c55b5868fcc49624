"""Which importer reads a file, by its first bytes and its name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from importers.kineto import read as kineto
from importers.kineto.opened import is_json
from importers.ncu.report import is_ncu
from importers.ncu.report import load as load_ncu
from importers.nsys import export
from importers.nsys.read import read as read_nsys
from importers.nsys.table import JSON, Details, asked
from importers.recording import beside
from importers.recording import report as recording
from importers.recording.lines import is_recording
from importers.report import Report
from importers.snapshot import read as snapshot
from importers.snapshot.opened import is_snapshot

SQLITE = b"SQLite format 3\0"


def read(path: Path, details: Details, sidecar: Sequence[Path]) -> Report:
    """Read a file that is there; raises a `ReportError`, or OSError."""
    with path.open("rb") as file:
        if file.read(len(SQLITE)) == SQLITE:
            return _profiled(path, details, sidecar)
    return _other(path, details) or _profiled(path, details, sidecar)


def _other(path: Path, details: Details) -> Report | None:
    """Read what is of anything but Nsight Systems; None if nothing says that it is."""
    if is_recording(path):
        return recording.load(path)
    if is_snapshot(path):
        return snapshot.read(path)
    if is_json(path):
        return kineto.read(path)
    return load_ncu(path, details) if is_ncu(path) else None


def _profiled(path: Path, details: Details, sidecar: Sequence[Path]) -> Report:
    """Read a report of Nsight Systems, with the recordings beside it."""
    report = _exported(path, details)
    return beside.found(report, path, sidecar) if asked(details, JSON) else report


def _exported(path: Path, details: Details) -> Report:
    if path.suffix not in export.SUFFIXES:
        return read_nsys(path, details=details)
    with export.exported(path) as sqlite:
        return read_nsys(sqlite, details=details)
