"""Recorder of host times: the back end of a session, and the sidecar of a profiler's report.

A pop closes the innermost range of its domain on its thread. Times are `time.monotonic_ns`, taken
last when a range opens and first when it closes.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import get_ident, get_native_id, local
from time import monotonic_ns
from typing import Any

from bridge.annotate.emit import FOLDER_AT_START
from bridge.annotate.emitter import Emitter
from bridge.annotate.label import Label
from bridge.annotate.recording.sink import ENDING, File
from bridge.annotate.recording.writer import BATCH, Mark, Row, Writer

OPEN = -1  # the end of an open range
PUSHED, STARTED = 0, 1  # kinds of ranges

Opened = tuple[Label, float, int]
_row = tuple.__new__  # as Row(...), without a Python call


class Here(local):
    """The running thread: its id and its open ranges."""

    def __init__(self, recorder: Recorder) -> None:
        self.thread = get_native_id()
        self.stack = recorder.enter(self.thread, thread_name())


class Recorder:
    """Records ranges and marks into a `Writer`, and passes them to an attached tool's back end."""

    name = "recording"
    version = ""

    def __init__(self, writer: Writer, tool: Emitter | None = None) -> None:
        self.writer = writer
        self.tool = tool
        self._stacks: dict[int, list[Opened]] = {}
        self._names: dict[int, str] = {}
        self._phases: dict[int, tuple[Label, float, int, int]] = {}  # open phases, by number
        self._numbers = count()
        writer.open = self._open
        writer.forked = self._forked
        self._here = Here(self)

    def push(self, label: Label, payload: float) -> None:
        if self.tool is not None:
            self.tool.push(label, payload)
        self._here.stack.append((label, payload, monotonic_ns()))
        if not self.writer.due:
            self.writer.opened()

    def pop(self, domain: str | None) -> None:
        end = monotonic_ns()
        here, writer = self._here, self.writer
        closed = _pop_domain(here.stack, domain)
        # From here on, nothing is called that could fail with a RecursionError.
        if closed is not None:
            label, payload, start = closed
            writer.rows.append(_row(Row, (label, PUSHED, here.thread, start, end, payload)))
        if self.tool is not None:
            self.tool.pop(domain)
        if len(writer.rows) >= BATCH or end > writer.due:
            with suppress(RecursionError):
                writer.flush_due()

    def mark(self, label: Label, payload: float) -> None:
        self.writer.mark(Mark(label, self._here.thread, monotonic_ns(), payload))
        if self.tool is not None:
            self.tool.mark(label, payload)

    def start(self, label: Label, payload: float) -> Any:
        """Start a process range; return its number and the handle of the tool."""
        number = next(self._numbers)
        handle = None if self.tool is None else self.tool.start(label, payload)
        self._phases[number] = (label, payload, self._here.thread, monotonic_ns())
        if not self.writer.due:
            self.writer.opened()
        return number, handle

    def end(self, label: Label, handle: Any) -> None:
        end = monotonic_ns()
        number, tool_handle = handle
        opened = self._phases.pop(number, None)
        if opened is not None:
            _, payload, thread, start = opened
            self.writer.row(Row(label, STARTED, thread, start, end, payload))
        if self.tool is not None:
            self.tool.end(label, tool_handle)

    def enter(self, thread: int, name: str) -> list[Opened]:
        """Register a thread that annotates for the first time.

        Return the list of its open ranges.
        """
        self._names[thread] = name
        self.writer.thread(thread, name)
        return self._stacks.setdefault(thread, [])

    def switch_to(self, writer: Writer) -> None:
        """Record into another writer from now on, open ranges included."""
        before, self.writer = self.writer, writer
        before.open, before.forked = list, list
        writer.open, writer.forked = self._open, self._forked
        for number, name in list(self._names.items()):
            writer.thread(number, name)

    def finish(self) -> None:
        """Record open ranges as open; their ends are not recorded."""
        self.writer.open, self.writer.forked = list, list
        for thread, stack in list(self._stacks.items()):
            # One by one, so that a range that another thread closes meanwhile is recorded only
            # once.
            for label, payload, start in reversed(list(_drain(stack.pop))):
                self.writer.rows.append(Row(label, PUSHED, thread, start, OPEN, payload))
        for _, (label, payload, thread, start) in _drain(self._phases.popitem):
            self.writer.rows.append(Row(label, STARTED, thread, start, OPEN, payload))

    def _forked(self) -> None:
        """Continue in a forked child with the open ranges of its only thread."""
        stack = self._here.stack
        self._stacks, self._names = {}, {}
        self._here = Here(self)
        self._here.stack.extend(stack)

    def _open(self) -> list[Row]:
        return [*self._open_here(), *self._open_phases()]

    def _open_here(self) -> Iterator[Row]:
        for thread, stack in list(self._stacks.items()):
            for label, payload, start in list(stack):
                yield Row(label, PUSHED, thread, start, OPEN, payload)

    def _open_phases(self) -> Iterator[Row]:
        for label, payload, thread, start in list(self._phases.values()):
            yield Row(label, STARTED, thread, start, OPEN, payload)


def _drain(take: Callable[[], Any]) -> Iterator[Any]:
    """Yield results of ``take`` until it raises IndexError or KeyError."""
    with suppress(IndexError, KeyError):
        while True:
            yield take()


def _pop_domain(stack: list[Opened], domain: str | None) -> Opened | None:
    """Remove and return the innermost range of a domain; `finish` may empty the stack meanwhile."""
    above: list[Opened] = []
    result = None
    while stack and result is None:
        try:
            top = stack.pop()
        except IndexError:
            break
        if top[0].domain == domain:
            result = top
        else:
            above.append(top)
    if above:
        stack += reversed(above)
    return result


def thread_name() -> str:
    """Return the name of the running thread, or "" if Python did not start it."""
    threading = sys.modules["threading"]
    thread = threading._active.get(get_ident())  # noqa: SLF001 - current_thread() would make a dummy
    return "" if thread is None else str(thread.name)


# -- The sidecar: the details of calls, written next to a profiler's report


FOLDER = "BRIDGE_SIDECAR"
OF_REPORT = ".recordings"  # ending of the folder of a report's recordings; importers look there
PREFIX = "bridge-"  # of the file name
_sidecars: dict[str, Writer] = {}


def sidecar_writer() -> Writer | None:
    """Return the writer of this process's sidecar, created at the first call.

    None if `BRIDGE_SIDECAR=off`.
    """
    writer = _sidecars.get(FOLDER)
    if writer is None and os.environ.get(FOLDER) != "off":
        # setdefault instead of a lock, which a fork might leave locked in the child.
        return _sidecars.setdefault(FOLDER, Writer(_SidecarFile(_path())))
    return writer


class _SidecarFile(File):
    """The sidecar of this process; a forked child gets its own."""

    def child(self) -> File:
        """Return the file of a forked child, named by its process id."""
        return _SidecarFile(_path())


def _path() -> Path:
    folder = Path(FOLDER_AT_START, os.environ.get(FOLDER) or "")
    return folder / f"{PREFIX}{os.uname().nodename}-{os.getpid()}-{time.time_ns()}{ENDING}"
