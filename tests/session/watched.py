"""What a session recorded, and whether all is as before when it has ended."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bridge import nvtx_op
from bridge.annotate.emit import state
from bridge.importers.capture import Capture
from bridge.importers.errors import NothingRecorded


def op(name: str) -> None:
    """Open and close a range."""
    with nvtx_op(name):
        pass


def ranges(found: Any) -> list[dict[str, Any]]:
    """Give the ranges of a session, or of a report, in the order in which they began."""
    try:
        capture: Capture = getattr(getattr(found, "report", found), "capture", found)
    except NothingRecorded:
        return []
    return capture.ranges.to_pandas().sort_values(["start", "payload"]).to_dict("records")


def names(found: Any) -> list[str]:
    """Give the names of the ranges, but those of steps."""
    return [one["name"] for one in ranges(found) if not one["name"].startswith("ProfilerStep")]


def steps(found: Any) -> list[int]:
    """Give the numbers of the steps that are ranges."""
    texts = [one["name"].partition("ProfilerStep#") for one in ranges(found)]
    return [int(number) for _, mark, number in texts if mark]


def standing() -> dict[str, Any]:
    """Tell what a session changes."""
    return {
        "emitter": state.emitter,
        "idle": state.idle,
        "reason": state.reason,
        "writer": state.writer,
        "details": state.details,
        "gc": list(gc.callbacks),
        "threads": {thread.name for thread in threading.enumerate()},
        "files": len(list(Path("/proc/self/fd").iterdir())),
    }


@contextmanager
def unchanged() -> Iterator[None]:
    """Check that a block leaves all as it was."""
    from bridge.annotate import emit
    from bridge.annotate.recording import writer
    from bridge.capture.session import profile

    emit.current()
    writer.expect()  # these register themselves once for the whole process
    profile._stop_at_exit()
    gc.collect()  # what earlier tests left may go in the block
    gc.freeze()  # and nobody need look through the rest again
    before = standing()
    yield
    after = standing()
    after["threads"] |= before["threads"]  # those that ended meanwhile are no trace
    changed = {key: (before[key], after[key]) for key in before if after[key] != before[key]}
    assert not changed, changed
