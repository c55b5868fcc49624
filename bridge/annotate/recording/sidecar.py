"""The recording of this process beside a profiler's report: the details of its calls.

The invariant: it is made at the first detail, only where a tool listens; one file for each process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from bridge.annotate.emit import FOLDER_AT_START
from bridge.annotate.recording.sink import ENDING, File
from bridge.annotate.recording.writer import Writer

FOLDER = "BRIDGE_SIDECAR"
BEGINNING = "bridge-"  # of the file's name
_made: dict[str, Writer] = {}


def writer() -> Writer | None:
    """Return where details go in this process; None if `BRIDGE_SIDECAR=off`."""
    found = _made.get(FOLDER)
    if found is None and os.environ.get(FOLDER) != "off":
        # Of several threads' the first: without a lock, which a fork might leave locked in the child.
        return _made.setdefault(FOLDER, Writer(_Beside(_path())))
    return found


class _Beside(File):
    """The file of this process: a forked child has one by the same rule."""

    def child(self) -> File:
        """Return the file of a forked child, whose process has another number."""
        return _Beside(_path())


def _path() -> Path:
    folder = Path(FOLDER_AT_START, os.environ.get(FOLDER) or "")
    return folder / f"{BEGINNING}{os.uname().nodename}-{os.getpid()}-{time.time_ns()}{ENDING}"
