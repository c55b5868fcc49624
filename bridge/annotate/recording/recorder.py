"""A back end of the annotations that keeps host times itself: what a session has without a profiler.

The invariant: a pop closes the topmost range of its domain on its thread; times are those of
`time.monotonic_ns`, taken last when a range opens and first when it closes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from threading import get_ident, get_native_id, local
from time import monotonic_ns
from typing import Any

from bridge.annotate.emitter import Emitter
from bridge.annotate.label import Label
from bridge.annotate.recording.writer import MANY, Mark, Row, Writer

OPEN = -1  # the end of a range that has none yet
PUSHED, STARTED = 0, 1  # kinds of ranges

Opened = tuple[Label, float, int]
_row = tuple.__new__  # as Row(...), without a call of Python's


class Here(local):
    """The running thread: its number, and what is open on it."""

    def __init__(self, recorder: Recorder) -> None:
        self.thread = get_native_id()
        self.stack = recorder.enter(self.thread, thread_name())


class Recorder:
    """Records ranges and marks into a `Writer`; with a tool attached hands them on to its back end."""

    name = "recording"
    version = ""

    def __init__(self, writer: Writer, tool: Emitter | None = None) -> None:
        self.writer = writer
        self.tool = tool
        self._stacks: dict[int, list[Opened]] = {}
        self._names: dict[int, str] = {}
        self._here = Here(self)
        self._phases: dict[int, tuple[Label, float, int, int]] = {}  # open, by number
        self._numbers = count()
        writer.open = self._open
        writer.forked = self._forked

    def push(self, label: Label, payload: float) -> None:
        """Open a range."""
        if self.tool is not None:
            self.tool.push(label, payload)
        self._here.stack.append((label, payload, monotonic_ns()))

    def pop(self, domain: str | None) -> None:
        """Close the topmost range of the domain."""
        end = monotonic_ns()
        here, writer = self._here, self.writer
        closed = _taken(here.stack, domain)
        # From here on nothing is called that a recursion too deep could keep from being done.
        if closed is not None:
            label, payload, start = closed
            writer.rows.append(_row(Row, (label, PUSHED, here.thread, start, end, payload)))
        if self.tool is not None:
            self.tool.pop(domain)
        if len(writer.rows) >= MANY or end > writer.due:
            with suppress(RecursionError):
                writer.flush(wait=False)

    def mark(self, label: Label, payload: float) -> None:
        """Record an instant."""
        self.writer.mark(Mark(label, self._here.thread, monotonic_ns(), payload))
        if self.tool is not None:
            self.tool.mark(label, payload)

    def start(self, label: Label, payload: float) -> Any:
        """Begin a range of the process; return its number, and what the tool knows it by."""
        number = next(self._numbers)
        handle = None if self.tool is None else self.tool.start(label, payload)
        self._phases[number] = (label, payload, self._here.thread, monotonic_ns())
        return number, handle

    def end(self, label: Label, handle: Any) -> None:
        """End such a range."""
        end = monotonic_ns()
        number, known = handle
        opened = self._phases.pop(number, None)
        if opened is not None:
            _, payload, thread, start = opened
            self.writer.row(Row(label, STARTED, thread, start, end, payload))
        if self.tool is not None:
            self.tool.end(label, known)

    def enter(self, thread: int, name: str) -> list[Opened]:
        """Take a thread that annotates for the first time; return where its open ranges go."""
        self._names[thread] = name
        self.writer.thread(thread, name)
        return self._stacks.setdefault(thread, [])

    def into(self, writer: Writer) -> None:
        """Record into another writer from now on, what is open as well."""
        before, self.writer = self.writer, writer
        before.open, before.forked = list, list
        writer.open, writer.forked = self._open, self._forked
        for number, name in list(self._names.items()):
            writer.thread(number, name)

    def finish(self) -> None:
        """Record what is open as what it is; its end is not recorded any more."""
        self.writer.open, self.writer.forked = list, list
        for thread, stack in list(self._stacks.items()):
            # One by one: what another thread closes meanwhile is recorded by that thread alone.
            for label, payload, start in reversed(list(_emptied(stack.pop))):
                self.writer.rows.append(Row(label, PUSHED, thread, start, OPEN, payload))
        for _, (label, payload, thread, start) in _emptied(self._phases.popitem):
            self.writer.rows.append(Row(label, STARTED, thread, start, OPEN, payload))

    def _forked(self) -> None:
        """Go on in a forked child, with what its one thread had open."""
        stack = self._here.stack
        self._stacks, self._names = {}, {}
        self._here = Here(self)
        self._here.stack.extend(stack)

    def _open(self) -> list[Row]:
        """Return the ranges that are open, on all threads."""
        return [*self._open_here(), *self._open_phases()]

    def _open_here(self) -> Iterator[Row]:
        for thread, stack in list(self._stacks.items()):
            for label, payload, start in list(stack):
                yield Row(label, PUSHED, thread, start, OPEN, payload)

    def _open_phases(self) -> Iterator[Row]:
        for label, payload, thread, start in list(self._phases.values()):
            yield Row(label, STARTED, thread, start, OPEN, payload)


def _emptied(take: Callable[[], Any]) -> Iterator[Any]:
    """Take all that there is."""
    with suppress(IndexError, KeyError):
        while True:
            yield take()


def _taken(stack: list[Opened], domain: str | None) -> Opened | None:
    """Take the topmost range of a domain off a stack, which `finish` may empty meanwhile."""
    above: list[Opened] = []
    found = None
    while stack and found is None:
        try:
            top = stack.pop()
        except IndexError:
            break
        if top[0].domain == domain:
            found = top
        else:
            above.append(top)
    if above:
        stack += reversed(above)
    return found


def thread_name() -> str:
    """Return the name of the running thread, without making one for threads that Python has not begun."""
    threading = sys.modules["threading"]
    thread = threading._active.get(get_ident())  # noqa: SLF001 - current_thread() would make a dummy
    return "" if thread is None else str(thread.name)
