"""The reports of one launch: their name, those that stand in the way, those that came out.

The invariant: of reports that are there already none is replaced unless that was asked for, and none
is taken for one that came out.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

from bridge.capture.errors import CaptureError

NAME = "report"
LITTLE = 1 << 20  # bytes: less than a report takes


class Stamp(NamedTuple):
    """What tells one version of a file from another."""

    inode: int
    size: int
    changed_ns: int


def chosen(output: Path | None, suffix: str, *, force: bool) -> Path:
    """Return the report to write: as named, or report1, report2 …, the first that is free.

    Raises CaptureError where it cannot be written, or is there already and not to be replaced.
    """
    if output is None:
        return next(one for n in count(1) if not there(one := Path(f"{NAME}{n}{suffix}")))
    report = output if output.suffix == suffix else output.with_name(output.name + suffix)
    if output.is_dir():
        raise CaptureError(f"{output}: a folder; name the report in it")
    if not report.parent.is_dir():
        raise CaptureError(f"{report}: there is no folder {report.parent}")
    if not os.access(report.parent, os.W_OK | os.X_OK):
        raise CaptureError(f"{report}: nothing may be written to {report.parent.resolve()}")
    if (present := there(report)) and not force:
        raise CaptureError(
            f"{next(iter(present))}: exists; give another name, or --force to replace it"
        )
    return report


def there(report: Path) -> dict[Path, Stamp]:
    """Return the reports of this name, those of numbered capture ranges too, in their order."""
    numbered = re.compile(
        rf"{re.escape(report.stem)}(?:\.(\d+))?{re.escape(report.suffix)}", re.DOTALL
    )
    found = {
        one: int(match[1] or 0)
        for one in report.parent.iterdir()
        if (match := numbered.fullmatch(one.name))
    }
    return {path: _stamp(path) for path in sorted(found, key=lambda path: found[path])}


def came_out(report: Path, before: Mapping[Path, Stamp]) -> list[Path]:
    """Return what was written since, in the order of the capture ranges; if any was, the rest is removed."""
    now = there(report)
    fresh = [path for path, stamp in now.items() if before.get(path) != stamp and stamp.size]
    if fresh:
        for stale in now.keys() - set(fresh):
            stale.unlink(missing_ok=True)
    return fresh


def raw(report: Path, suffix: str, since_ns: int) -> list[Path]:
    """Return what the tool captured since and did not make a report of: files of that suffix."""
    left = there(report.with_suffix(suffix))
    return [path for path, stamp in left.items() if stamp.changed_ns >= since_ns]


def full(report: Path) -> Path | None:
    """Return the folder that has no room left, of the report's and the one for temporary files."""
    folders = (report.parent, Path(tempfile.gettempdir()))
    return next((one for one in folders if shutil.disk_usage(one).free < LITTLE), None)


def _stamp(path: Path) -> Stamp:
    found = path.lstat()
    return Stamp(found.st_ino, found.st_size, found.st_mtime_ns)
