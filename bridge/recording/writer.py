"""The writer of a recording: takes what happened, one tuple each, and writes it in columns.

The format, a JSON object a line, is in docs/recordings.md. The invariant: whatever a line refers to
by number is defined in it or before it; `flush` leaves nothing behind that was taken before it began.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import count
from threading import RLock
from typing import Any, NamedTuple
from weakref import WeakSet

from bridge.annotate.callid import CALL_ID_BITS
from bridge.annotate.label import Label, text
from bridge.recording.header import header
from bridge.recording.sink import Sink, joined

MANY = 8192  # of anything, and it is written
PERIOD_NS = 1_000_000_000  # so old, and it is written with the next
KNOWN = 1 << 16  # details remembered at most: those that differ in each call would fill the memory


CALLS = (1 << CALL_ID_BITS) - 1  # what of a call's id is its own


class Row(NamedTuple):
    """A range; without an end it was open when this was written."""

    label: Label
    kind: int  # 0: push/pop, 1: start/end
    thread: int
    start: int  # ns of time.monotonic_ns
    end: int
    payload: float


class Mark(NamedTuple):
    """An instant."""

    label: Label
    thread: int
    time: int
    payload: float


class Writer:
    """One recording of one process; any thread may hand something in."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.open: Callable[[], list[Row]] = list  # the ranges that are open now
        self.forked: Callable[[], Any] = list  # what else to do in a forked child
        self._clear()
        _writers.add(self)

    def _clear(self) -> None:
        """Begin anew, as after a fork."""
        self._lock = RLock()
        self._writing = self._begun = self._broken = self._had_open = False
        self._numbers = count()
        self._known: dict[Hashable, int] = {}
        self._labels: dict[Label, int] = {}
        self._new_labels: list[Label] = []
        self._details: dict[int, Mapping[str, Any]] = {}
        self._threads: dict[int, str] = {}
        self._metadata: dict[str, Any] = {}
        self.calls: list[tuple[int, int]] = []
        self.rows: list[Row] = []
        self.marks: list[Mark] = []
        self.due = time.monotonic_ns() + PERIOD_NS

    def note(self, call: int, key: Hashable, describe: Callable[[], Mapping[str, Any]]) -> None:
        """Take the details of a call, which are the same for all calls with this key."""
        number = self._known.get(key)
        if number is None:
            number = self._described(key, describe)
        self.calls.append((call, number))
        if len(self.calls) >= MANY or time.monotonic_ns() > self.due:
            self.flush(wait=False)

    def row(self, row: Row) -> None:
        """Take a range that has ended."""
        self.rows.append(row)
        if len(self.rows) >= MANY or row.end > self.due:
            self.flush(wait=False)

    def mark(self, mark: Mark) -> None:
        """Take an instant."""
        self.marks.append(mark)
        if len(self.marks) >= MANY or mark.time > self.due:
            self.flush(wait=False)

    def thread(self, number: int, name: str) -> None:
        """Take the name of a thread."""
        self._threads[number] = name
        _at_exit()

    def about(self, metadata: Mapping[str, Any]) -> None:
        """Take what the program says of itself; raises TypeError for what JSON cannot say."""
        _encoded(metadata, default=None)
        self._metadata |= metadata

    def flush(self, *, wait: bool = True) -> None:
        """Write what there is; where it cannot be written say so once and record no more.

        Without ``wait`` do nothing while another thread writes.
        """
        if not self._lock.acquire(blocking=wait):
            return
        try:
            if not self._writing:  # else this is a signal handler in the midst of it
                self._writing = True
                self._write()
        finally:
            self._writing = False
            self._lock.release()

    def close(self) -> None:
        """Write what there is, and nothing from now on."""
        self.flush()
        self.sink.close()
        _writers.discard(self)

    def in_child(self) -> None:
        """Become the writer of a forked child, of which nothing is known yet."""
        self.sink = self.sink.child()
        self._clear()
        self.forked()

    def _described(self, key: Hashable, describe: Callable[[], Mapping[str, Any]]) -> int:
        if len(self._known) >= KNOWN:
            self._known = {}
        _at_exit()
        number = next(self._numbers)
        self._details[number] = describe()
        return self._known.setdefault(key, number)

    def _write(self) -> None:
        self.due = time.monotonic_ns() + PERIOD_NS
        if self._broken:
            self.calls, self.rows, self.marks, self._details = [], [], [], {}
            return
        try:
            self.sink.write(joined(self._lines()))
        except OSError as error:
            self._broken = True
            where = getattr(self.sink, "path", "memory")
            problem = f"bridge: {where}: {error.strerror or error}; nothing more is recorded there"
            warnings.warn(problem, RuntimeWarning, stacklevel=2)

    def _lines(self) -> list[bytes]:
        """Return all that is new; what others refer to is taken last and written first."""
        calls, rows, marks = _taken(self.calls), _taken(self.rows), _taken(self.marks)
        events = [
            ("calls", _columns((call & CALLS, number) for call, number in calls)),
            ("ranges", _columns(map(self._numbered, rows))),
            ("marks", _columns(map(self._numbered, marks))),
            ("open", self._still_open()),
        ]
        written = [{kind: found} for kind, found in events if found]
        begun, self._begun = self._begun, True
        head = [] if begun else [header()]
        return [_encoded(line) for line in (*head, *self._definitions(), *written)]

    def _still_open(self) -> list[tuple[Any, ...]]:
        """Return what is open now; where nothing is and something was, columns of no rows."""
        opened = _columns(map(self._numbered, self.open()))
        before, self._had_open = self._had_open, bool(opened)
        return opened or ([()] * len(Row._fields) if before else [])

    def _numbered(self, event: Row | Mark) -> tuple[Any, ...]:
        label = event.label
        number = self._labels.get(label)
        if number is None:
            number = self._labels[label] = len(self._labels)
            self._new_labels.append(label)
        return (number, *event[1:])

    def _definitions(self) -> Iterator[dict[str, Any]]:
        labels, self._new_labels = self._new_labels, []
        details = {number: self._details.pop(number) for number in list(self._details)}
        threads = {number: self._threads.pop(number) for number in list(self._threads)}
        if labels:
            yield {"labels": [_written(label) for label in labels]}
        if details:
            yield {"details": details}
        if threads:
            yield {"threads": threads}
        metadata, self._metadata = self._metadata, {}
        if metadata:
            yield {"metadata": metadata}


def _taken(events: list[Any]) -> list[Any]:
    """Take what is in a list that other threads append to."""
    taken = events[:]
    del events[: len(taken)]
    return taken


def _columns(events: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list(zip(*events, strict=True))


def _written(label: Label) -> list[Any]:
    """Write a label as a profiler gets it: what is no UTF-8 is spelled out."""
    name, domain, category, color = label
    texts = [one if one is None else text(one).decode() for one in (name, domain, category)]
    return [*texts, color]


def _encoded(line: Mapping[str, Any], default: Callable[[Any], Any] | None = repr) -> bytes:
    import json  # noqa: PLC0415 (5 ms, and most programs write nothing)

    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"), default=default)
    return text.encode("utf-8", "backslashreplace")


_writers: WeakSet[Writer] = WeakSet()
_ending: set[int] = set()  # processes that write at their end


def flush_all() -> None:
    """Write what all writers of this process have."""
    for writer in list(_writers):
        writer.flush()


def _at_exit() -> None:
    """Have all written when this process ends; a child of multiprocessing ends without atexit."""
    if os.getpid() not in _ending:
        _ending.add(os.getpid())
        atexit.register(flush_all)
        util = sys.modules.get("multiprocessing.util")
        if util is not None:
            util.Finalize(None, flush_all, exitpriority=0)


def _forked() -> None:
    for writer in list(_writers):
        writer.in_child()


os.register_at_fork(after_in_child=_forked)
