"""Find the importer of a file by its first bytes and its name.

Most files are SQLite exports of Nsight Systems; a folder is a columnar one. The other importers are
loaded at their first use.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from bridge.importers.arrow_messages import is_arrow
from bridge.importers.capture import Capture, check_durations, timed_frames
from bridge.importers.errors import ExportFailed, NotAReport
from bridge.importers.nsys import export
from bridge.importers.nsys.read import read as read_nsys
from bridge.importers.nsys.tables import JSON, Details, has_detail

LOG = logging.getLogger("bridge.importers")

SQLITE = b"SQLite format 3\0"
Reader = tuple[
    Callable[[Path], bool], Callable[[Path, Details], Capture]
]  # is the file of this format; read it
AddRecordings = Callable[[Capture, Path, Sequence[Path]], Capture]


def read(path: Path, details: Details, sidecar: Sequence[Path]) -> Capture:
    """Read an existing file or folder; raises `ReportError` or OSError."""
    if path.is_dir():
        path = path if path.name else path.resolve()  # the folder "." has no name
        LOG.debug("%s: a folder: read as tables of Nsight Systems", path)
        return _read_nsys_with_recordings(path, details, sidecar)
    with path.open("rb") as file:
        head = file.read(len(SQLITE))
        if head == SQLITE or is_arrow(head):
            LOG.debug("%s: begins as SQLite or Arrow: read as an export of Nsight Systems", path)
            return _read_nsys_with_recordings(path, details, sidecar)
    return _read_other(path, details) or _read_nsys_with_recordings(path, details, sidecar)


def _read_other(path: Path, details: Details) -> Capture | None:
    """Return the capture of a file of any format but Nsight Systems', None for unknown formats."""
    for reader in READERS:
        fits, load = reader()
        if fits(path):
            LOG.debug("%s: of the format that %s knows", path, fits.__module__)
            capture = load(path, details)
            check_durations(path.name, timed_frames(capture))
            return capture
        LOG.debug("%s: not of the format that %s knows", path, fits.__module__)
    LOG.debug("%s: of no other known format: read as an export of Nsight Systems", path)
    return None


def _read_nsys_with_recordings(path: Path, details: Details, sidecar: Sequence[Path]) -> Capture:
    """Read a report of Nsight Systems, with the recordings beside it."""
    capture = _read_nsys(path, details)
    return _with_recordings()(capture, path, sidecar) if has_detail(details, JSON) else capture


def _read_nsys(path: Path, details: Details) -> Capture:
    if path.suffix not in export.SUFFIXES:
        return read_nsys(path, details=details)
    if (form := export.fastest_form()) != export.SQLITE:
        try:
            with export.exported(path, form) as tables:
                return read_nsys(tables, details=details)
        except (NotAReport, ExportFailed) as error:
            LOG.debug("%s: not as %s, so as SQLite: %s", path, form, error)
    # Also after a failure: SQLite may work where columns do not, and else it gives the message.
    with export.exported(path) as sqlite:
        return read_nsys(sqlite, details=details)


@cache
def _with_recordings() -> AddRecordings:
    from bridge.importers.recording.read import with_recordings

    return with_recordings


@cache
def _recording_reader() -> Reader:
    from bridge.importers.recording import read as report
    from bridge.importers.recording.lines import is_recording

    return is_recording, lambda path, _: report.read(path)


@cache
def _snapshot_reader() -> Reader:
    from bridge.importers.snapshot.file import is_snapshot
    from bridge.importers.snapshot.read import read as load

    return is_snapshot, lambda path, _: load(path)


@cache
def _trace_reader() -> Reader:
    from bridge.importers.chrome.read import read as load
    from bridge.importers.kineto.events import is_json

    return is_json, load


@cache
def _ncu_reader() -> Reader:
    from bridge.importers.ncu.read import is_ncu
    from bridge.importers.ncu.read import read as load

    return is_ncu, load


READERS = (_recording_reader, _snapshot_reader, _trace_reader, _ncu_reader)
