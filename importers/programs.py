"""Find programs such as nsys and ncu, but never in the working directory.

An empty or relative entry of the PATH (``PATH=:/usr/bin``) stands for the working directory, where a
file that came with a report may be called like a program. `bridge.capture.tool` has the same functions.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def search_path() -> str:
    """Return the entries of the PATH that are absolute."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute())


def find_program(name: str) -> str | None:
    """Return the absolute path of a program on the PATH, None if there is none."""
    path = shutil.which(name, path=search_path())
    return path if path and Path(path).is_absolute() else None
