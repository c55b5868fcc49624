"""Which importer reads a file, by its first bytes and its name.

Most files are SQLite exports of Nsight Systems: the importers of other formats are loaded when a file is theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from importers.nsys.table import JSON, Details, asked
from importers.report import Report

SQLITE = b"SQLite format 3\0"


def read(path: Path, details: Details, sidecar: Sequence[Path]) -> Report:
    """Read a file that is there; raises a `ReportError`, or OSError."""
    with path.open("rb") as file:
        if file.read(len(SQLITE)) == SQLITE:
            return _profiled(path, details, sidecar)
    return _other(path, details) or _profiled(path, details, sidecar)


def _other(path: Path, details: Details) -> Report | None:
    """Read what is of anything but Nsight Systems; None if nothing says that it is."""
    from importers.kineto.opened import is_json  # noqa: PLC0415 - see the module's first lines
    from importers.ncu.report import is_ncu, load  # noqa: PLC0415
    from importers.recording.lines import is_recording  # noqa: PLC0415
    from importers.snapshot.opened import is_snapshot  # noqa: PLC0415

    if is_recording(path):
        from importers.recording import report  # noqa: PLC0415

        return report.load(path)
    if is_snapshot(path):
        from importers.snapshot import read as snapshot  # noqa: PLC0415

        return snapshot.read(path)
    if is_json(path):
        from importers.kineto import read as kineto  # noqa: PLC0415

        return kineto.read(path)
    return load(path, details) if is_ncu(path) else None


def _profiled(path: Path, details: Details, sidecar: Sequence[Path]) -> Report:
    """Read a report of Nsight Systems, with the recordings beside it."""
    report = _exported(path, details)
    if not asked(details, JSON):
        return report
    from importers.recording import beside  # noqa: PLC0415

    return beside.found(report, path, sidecar)


def _exported(path: Path, details: Details) -> Report:
    from importers.nsys import export  # noqa: PLC0415
    from importers.nsys.read import read as read_nsys  # noqa: PLC0415

    if path.suffix not in export.SUFFIXES:
        return read_nsys(path, details=details)
    with export.exported(path) as sqlite:
        return read_nsys(sqlite, details=details)
