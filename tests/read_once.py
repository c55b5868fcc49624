"""Reads each file once for many commands: reading is most of what a command on a small report does.

For tests of what is made of a report, not of how it is read. Commands must not write into frames
(`tests/analyze/test_tables.py` holds them to it); where one did, the next would see it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bridge.importers import formats
from bridge.importers.capture import Capture


@contextmanager
def reading_once(known: dict[Any, Capture] | None = None) -> Iterator[None]:
    """Let `bridge.importers.load` read a file again only where it has changed, or other details are asked for.

    What is `known` already, where it is given, is not read either.
    """
    read, known = formats.read, {} if known is None else known

    def reading(path: Path, details: Any, sidecar: Any, **others: Any) -> Capture:
        is_now = path.stat()
        asked = details if isinstance(details, bool) else frozenset(details)
        key = path.absolute(), is_now.st_ino, is_now.st_mtime_ns, is_now.st_size, asked, *sidecar
        if key not in known:
            known[key] = read(path, details, sidecar, **others)
        return known[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("bridge.importers.read", reading)
        yield
