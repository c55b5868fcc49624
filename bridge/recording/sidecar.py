"""The recording of this process beside a profiler's report: the details of its calls.

The invariant: it is made at the first detail, only where a tool listens; one file for each process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Lock

from bridge.recording.sink import ENDING, File
from bridge.recording.writer import Writer

FOLDER = "BRIDGE_SIDECAR"
BEGINNING = "bridge-"  # of the file's name
_HERE = os.getcwd()  # noqa: PTH109 (no pathlib) - where nsys puts its report, wherever the program goes
_making = Lock()


class _Sidecar:
    """The one of this process, if there is one."""

    writer: Writer | None = None


def writer() -> Writer | None:
    """Return where details go in this process; None if `BRIDGE_SIDECAR=off`."""
    if _Sidecar.writer is None and os.environ.get(FOLDER) != "off":
        with _making:
            if _Sidecar.writer is None:
                _Sidecar.writer = Writer(_Beside(_path()))
    return _Sidecar.writer


class _Beside(File):
    """The file of this process: a forked child has one by the same rule."""

    def child(self) -> File:
        """Return the file of a forked child, whose process has another number."""
        self.close()
        return _Beside(_path())


def _path() -> Path:
    folder = Path(_HERE, os.environ.get(FOLDER) or "")
    return folder / f"{BEGINNING}{os.uname().nodename}-{os.getpid()}-{time.time_ns()}{ENDING}"
