"""Find the importer of a file by its first bytes and its name.

Most files are SQLite exports of Nsight Systems; a folder is a columnar one. The other readers are
loaded at the first file that is neither.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

from bridge.importers.arrow_messages import is_arrow
from bridge.importers.capture import Capture, Reader, check_durations, timed_frames
from bridge.importers.listener import Listener
from bridge.importers.nsys import export
from bridge.importers.nsys.export_cache import read_export
from bridge.importers.nsys.read import read as read_nsys
from bridge.importers.nsys.tables import JSON, Details, has_detail

LOG = logging.getLogger("bridge.importers")

SQLITE = b"SQLite format 3\0"
AddRecordings = Callable[[Capture, Path, Sequence[Path]], Capture]
MoreReaders = Callable[[], Sequence[Reader]]
# Asked in this order; written as entry points of packages write theirs.
READERS: Mapping[str, str] = {
    "recording": "bridge.importers.recording.read:READER",
    "snapshot": "bridge.importers.snapshot.read:READER",
    "trace": "bridge.importers.chrome.read:READER",
    "xplane": "bridge.importers.xplane.read:READER",
    "perfetto": "bridge.importers.perfetto.read:READER",
    "ncu": "bridge.importers.ncu.read:READER",
}


def no_more() -> Sequence[Reader]:
    """Return no reader besides `READERS`."""
    return ()


def read(
    path: Path,
    details: Details,
    sidecar: Sequence[Path],
    more_readers: MoreReaders,
    listener: Listener,
) -> Capture:
    """Read an existing file or folder; raises `ReportError` or OSError.

    ``more_readers`` returns the readers that are asked where none of `READERS` fits; the
    ``listener`` hears of exports.
    """
    if path.is_dir():
        path = path if path.name else path.resolve()  # the folder "." has no name
        LOG.debug("%s: a folder: read as tables of Nsight Systems", path)
        return _read_nsys_with_recordings(path, details, sidecar, listener)
    with path.open("rb") as file:
        head = file.read(len(SQLITE))
        if head == SQLITE or is_arrow(head):
            LOG.debug("%s: begins as SQLite or Arrow: read as an export of Nsight Systems", path)
            return _read_nsys_with_recordings(path, details, sidecar, listener)
    is_nsys = path.suffix in export.SUFFIXES
    for name, reader in _readers(no_more if is_nsys else more_readers):
        if reader.fits(path):
            LOG.debug("%s: of the format that reader %s knows", path, name)
            capture = reader.read(path, details)
            check_durations(path.name, timed_frames(capture))
            return capture
        LOG.debug("%s: not of the format that reader %s knows", path, name)
    LOG.debug("%s: of no other known format: read as an export of Nsight Systems", path)
    return _read_nsys_with_recordings(path, details, sidecar, listener)


def _readers(more_readers: MoreReaders) -> Iterator[tuple[str, Reader]]:
    for name, place in READERS.items():
        yield name, resolve_name(place)
    for reader in more_readers():
        yield reader.name, reader


def _read_nsys_with_recordings(
    path: Path, details: Details, sidecar: Sequence[Path], listener: Listener
) -> Capture:
    """Read a report of Nsight Systems, with the recordings beside it."""
    capture = _read_nsys(path, details, listener)
    return _with_recordings()(capture, path, sidecar) if has_detail(details, JSON) else capture


def _read_nsys(path: Path, details: Details, listener: Listener) -> Capture:
    if path.suffix not in export.SUFFIXES:
        return read_nsys(path, details=details)
    return read_export(path, lambda tables: read_nsys(tables, details=details), listener=listener)


@cache
def _with_recordings() -> AddRecordings:
    from bridge.importers.recording.read import with_recordings

    return with_recordings
