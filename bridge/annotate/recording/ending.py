"""Has recordings written when a process ends, and begun anew in a child that is forked.

The invariant: nothing waits here for another thread: a fork may come in the midst of anything.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from bridge.annotate.recording.writer import Writer

LAST = -100  # among what multiprocessing's children do at their end
writers: WeakValueDictionary[int, Writer] = WeakValueDictionary()


class _Process:
    """Whether this process writes at its end, and whether that has begun."""

    expected = False
    begun = False


def begun() -> bool:
    """Tell whether this process has ended, but for what others do at the end: written at once."""
    return _Process.begun


def expect() -> None:
    """Have all written when this process ends."""
    if not _Process.expected:
        _Process.expected = True
        atexit.register(_end)
        _finalized(_end)


def _end() -> None:
    _Process.begun = True
    for writer in _all():
        if writer.has_news:
            writer.flush()
        writer.due = 0


def _finalized(_: object) -> None:
    """Have all written at the end of a child of multiprocessing, which ends without atexit."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, _end, exitpriority=LAST)


def _forked() -> None:
    _Process.expected = _Process.begun = False
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # such a child forgets what is to be finalized before it begins
        util.register_after_fork(_end, _finalized)
    for writer in _all():
        writer.in_child()


def _all() -> list[Writer]:
    """Return the writers there are; unlike iteration, while other threads make some."""
    found = (reference() for reference in writers.valuerefs())
    return [writer for writer in found if writer is not None]


os.register_at_fork(after_in_child=_forked)
