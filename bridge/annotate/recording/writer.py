"""Writer of a recording: collects events as tuples, and writes them in columns.

Every number in a line is defined in an earlier line. `flush` writes all events that were added
before it began. If an exception (Ctrl-C) interrupts a flush, the next one writes the events, and
possibly repeats definitions.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # `signal` would be imported in an op
import _thread
import atexit
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from errno import ETIMEDOUT
from itertools import count
from math import inf
from threading import Lock, RLock, get_ident, get_native_id, main_thread
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from bridge.annotate.cost import cost
from bridge.annotate.emitter import EXIT_S, warn
from bridge.annotate.guard import is_of_a_handler
from bridge.annotate.label import Label, color_of, text
from bridge.annotate.recording.graphs import GRAPH_ANNOTATIONS, graph_annotations
from bridge.annotate.recording.lines import encoded, header, program
from bridge.annotate.recording.sink import Memory, Sink, joined
from bridge.annotate.stack import CALL_ID_BITS

# -- Writing at exit, and after a fork


EXIT_PRIORITY = -100  # of the finalizer in children of multiprocessing
writers: WeakValueDictionary[int, Writer] = WeakValueDictionary()


class _Process:
    """Whether this process writes at exit, and whether that has begun."""

    expected = False
    begun = False
    limit = inf  # until when writing at exit may wait; by time.monotonic


def begun() -> bool:
    """Return whether the process is exiting, so that events must be written at once."""
    return _Process.begun


def expect() -> None:
    """Register writing at the exit of this process."""
    if not _Process.expected:
        _Process.expected = True
        atexit.register(_end)
        _finalized(_end)


def _end() -> None:
    _Process.begun = True
    _Process.limit = min(_Process.limit, time.monotonic() + EXIT_S)
    watch.end()
    for writer in _all():
        writer.note_end()
        if writer.has_news:
            writer.flush()
        writer.due = 0


def _patience() -> float:
    """Return how many seconds to wait for a write of another thread."""
    return max(0.0, min(EXIT_S, _Process.limit - time.monotonic()))


def _finalized(_: object) -> None:
    """Register writing at the exit of a child of multiprocessing, which does not run atexit."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, _end, exitpriority=EXIT_PRIORITY)


def _forked() -> None:
    _Process.expected = _Process.begun = False
    _Process.limit = inf
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # such a child drops finalizers when it starts
        util.register_after_fork(_end, _finalized)
    for writer in _all():
        writer.in_child()
    watch.in_child()


def _all() -> list[Writer]:
    """Return all writers; safe while other threads create some."""
    result = (reference() for reference in writers.valuerefs())
    return [writer for writer in result if writer is not None]


os.register_at_fork(after_in_child=_forked)


# -- Writing by time


PERIOD_NS = 500_000_000  # a first event after this time writes; without one, the watch soon does
IDLE_NS = 2_000_000_000  # after this time without events the watch ends, if no session runs
JOIN_S = 1.0  # limit of waiting for its thread
FORK_S = 0.05  # the same before a fork, which threads do not harm


def _is_main_interpreter() -> bool:
    """Return whether this is no sub-interpreter, whose end aborts the process if it has a thread."""
    is_main = getattr(_thread, "_is_main_interpreter", None)  # from Python 3.13 on
    if is_main is not None:
        return bool(is_main())
    try:
        # Python refuses it in sub-interpreters and other threads, and the system everywhere else.
        _signal.signal(_signal.SIGKILL, _signal.SIG_DFL)
    except ValueError:
        return get_ident() != main_thread().ident
    except OSError:
        return True
    return True


IS_MAIN = _is_main_interpreter()


class _Watch:
    """A thread that writes what no later event causes to be written, so that a kill loses less than a second.

    `threading` does not know it, because programs join all threads. It takes no signals, for which
    programs wait. It ends before a fork, of which newer Pythons warn where there are threads.
    """

    def __init__(self) -> None:
        self._running: dict[str, tuple[Lock, Lock]] = {}  # one pair of locks, or none
        self._thread = 0  # its system id
        self._forks = False
        self._masks: dict[int, set[int]] = {}  # of signals, before a fork; by thread

    def begin(self) -> None:
        """Start the thread if there is none."""
        if self._running or self._forks or begun() or not IS_MAIN:
            return
        going, ended = pair = Lock(), Lock()
        going.acquire()  # released when the thread shall end
        ended.acquire()  # released when it has ended
        started = False
        try:
            # setdefault instead of a lock, which a fork might leave locked in the child
            if self._running.setdefault("thread", pair) is pair:
                started = _start_without_signals(self._run, pair)
        finally:
            # A signal handler may raise when the thread has started already; then it ends.
            if not started and self._running.get("thread") is pair:
                self._running.clear()
                going.release()

    def end(self, seconds: float = JOIN_S) -> bool:
        """End the thread, and wait for that; return whether there was one."""
        going, ended = self._running.pop("thread", (None, None))
        if going is None or ended is None:
            return False
        going.release()
        limit = time.monotonic() + seconds
        if self._thread != get_native_id() and ended.acquire(timeout=seconds):
            task = f"/proc/self/task/{self._thread}"
            while os.access(task, os.F_OK) and time.monotonic() < limit:
                time.sleep(0)
        return True

    def before_fork(self) -> None:
        """End the thread, and write what it would have written.

        Signals wait until `after_fork`, because what their handlers raise within a hook of a fork is lost.
        """
        self._masks[get_ident()] = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        self._forks = True
        if self.end(FORK_S):
            for writer in _all():
                if writer.is_stale:
                    writer.flush(wait=False)

    def after_fork(self) -> None:
        """Let signals come again, in the parent and in the child."""
        before = self._masks.pop(get_ident(), None)
        if before is None:
            return
        waiting = _signal.sigpending() - before
        handled = [number for number in waiting if callable(_signal.getsignal(number))]
        taken = [number for number in handled if _signal.sigtimedwait((number,), 0)]
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
        # Handlers would run in the hooks that follow.
        if taken and not _start_without_signals(_send_soon, (taken,)):
            _send_soon(taken)

    def in_parent(self) -> None:
        """Go on after a fork, at the next event where Python counts threads only after this hook."""
        self._forks = False
        for writer in _all():
            writer.due = 0
            if sys.version_info < (3, 12) and writer.is_watched:
                self.begin()

    def in_child(self) -> None:
        """Be without a thread, until the child has events of its own."""
        self._forks = False
        self._running.clear()

    def _run(self, going: Lock, ended: Lock) -> None:
        self._thread = get_native_id()
        active = time.monotonic_ns()
        try:
            while not going.acquire(timeout=_tick()):
                now = time.monotonic_ns()
                stale = [writer for writer in _all() if writer.is_stale]
                for writer in stale:
                    if now > writer.due:
                        writer.flush(wait=False)
                if stale or any(writer.is_in_session for writer in _all()):
                    active = now
                elif now - active > IDLE_NS:
                    self._retire()
                    return
        finally:
            ended.release()

    def _retire(self) -> None:
        """End by itself; the next event begins another thread, or one that came meanwhile."""
        self._running.clear()
        for writer in _all():
            writer.due = 0
        for writer in _all():
            if writer.is_stale:
                writer.flush_due()


def _start_without_signals(function: Callable[..., None], arguments: tuple[Any, ...]) -> bool:
    """Start a thread that takes no signals; return False if no thread can be started."""
    before = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
    try:
        # Within, because this call runs handlers, which may raise.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, _signal.valid_signals())
        _thread.start_new_thread(function, arguments)
    except RuntimeError as error:
        if is_of_a_handler(error):
            raise
        return False
    finally:
        _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
    return True


def _send_soon(numbers: list[int]) -> None:
    """Send this process signals, after the hooks of a fork."""
    time.sleep(FORK_S)
    for number in numbers:
        os.kill(os.getpid(), number)


def _tick() -> float:
    """Return how many seconds may pass until the watch looks again: half of the shortest period."""
    return min((writer.period_ns for writer in _all()), default=PERIOD_NS) / 2e9


watch = _Watch()
os.register_at_fork(before=watch.before_fork, after_in_parent=watch.in_parent)
os.register_at_fork(after_in_parent=watch.after_fork, after_in_child=watch.after_fork)


# -- The writer


BATCH = 8192  # number of events of one kind that triggers a flush
# Limit of cached labels and details, in case they differ in each call.
MAX_KNOWN = 1 << 14
ANNOTATION_COST = "annotation_cost"  # key in the metadata
AT_END = frozenset([ANNOTATION_COST, GRAPH_ANNOTATIONS])
CALL_MASK = (1 << CALL_ID_BITS) - 1  # the bits of a call id that identify the call


class Row(NamedTuple):
    """A range; an end of -1 means that it was open when this was written."""

    label: Label
    kind: int  # 0: push/pop, 1: start/end
    thread: int
    start: int  # ns of time.monotonic_ns
    end: int
    payload: float


class Mark(NamedTuple):
    label: Label
    thread: int
    time: int
    payload: float


class Writer:
    """The recording of one process; any thread may add events."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        self.open: Callable[[], list[Row]] = list  # returns the open ranges
        self.forked: Callable[[], Any] = list  # called in a forked child
        self.period_ns = PERIOD_NS
        self._about: dict[str, Any] = {}
        self._closed = False
        self._clear()
        writers[id(self)] = self

    def _clear(self) -> None:
        """Reset the state, as after a fork."""
        self._lock = RLock()
        self._writing = self._begun = self._broken = self._had_open = self._is_child = False
        self._open_ranges: list[Row] = []  # as written last
        self._header = header()  # taken now, because it may be written much later
        self._numbers, self._label_numbers = count(), count()
        self._known: dict[Hashable, int] = {}
        self._labels: dict[Label, int] = {}
        # Not written yet:
        self._new_labels: dict[int, Label] = {}
        self._details: dict[int, Mapping[str, Any]] = {}
        self._threads: dict[int, str] = {}
        self._metadata = dict(self._about)
        self.calls: list[tuple[int, int]] = []
        self.rows: list[Row] = []
        self.marks: list[Mark] = []
        self.due = 0  # the time from which an event writes; 0: the first event begins the watch

    def begin(self) -> None:
        """Write the first line now, which tells the process, and not with the first events."""
        self.flush()

    def note_alike(self, call: int, key: Hashable) -> bool:
        """Add a call whose details equal those of an earlier call.

        Return False if there is none.
        """
        number = self._known.get(key)
        if number is None:
            return False
        self._take_call(call, number)
        return True

    def note(self, call: int, key: Hashable, details: Mapping[str, Any]) -> None:
        """Add a call with its details, which are those of all calls with this key."""
        if len(self._known) >= MAX_KNOWN:
            self._known = {}
        expect()
        number = next(self._numbers)
        self._details[number] = details
        self._known[key] = number
        self._take_call(call, number)

    def _take_call(self, call: int, number: int) -> None:
        calls = self.calls
        calls.append((call & CALL_MASK, number))
        if len(calls) >= BATCH or time.monotonic_ns() > self.due:
            self.flush_due()

    def row(self, row: Row) -> None:
        """Add a range that has ended."""
        self.rows.append(row)
        if len(self.rows) >= BATCH or row.end > self.due:
            self.flush_due()

    def opened(self) -> None:
        """Begin the watch if a range that was opened is the first event."""
        if not begun():
            with suppress(RecursionError):  # the range is open already
                self.flush_due()

    def mark(self, mark: Mark) -> None:
        self.marks.append(mark)
        if len(self.marks) >= BATCH or mark.time > self.due:
            self.flush_due()

    def thread(self, number: int, name: str) -> None:
        """Add the name of a thread."""
        self._threads[number] = name
        expect()
        if self.is_watched:
            watch.begin()

    def about(self, metadata: Mapping[str, Any]) -> None:
        """Add metadata; raises TypeError for values that are not JSON."""
        import json  # takes 5 ms, and most programs add no metadata

        try:
            copy = json.loads(encoded(dict(metadata), default=None))  # a copy of the current values
        except (ValueError, RecursionError) as error:
            raise TypeError(f"metadata: {error}") from error
        self._about |= copy
        self._metadata |= copy

    def note_end(self) -> None:
        """Add what the annotations of this process have cost so far, and what PyTorch says of its CUDA graphs."""
        if cost.ranges:
            self._metadata[ANNOTATION_COST] = {"ranges": cost.ranges, "ns": cost.ns}
        recorded = self.calls or self.rows or self.marks
        if (recorded or not self._is_child) and (said := graph_annotations()):
            self._metadata[GRAPH_ANNOTATIONS] = said

    @property
    def has_news(self) -> bool:
        """Whether there are events, or what a process tells at its end, that are not written."""
        told = not AT_END.isdisjoint(self._metadata)
        return bool(self.calls or self.rows or self.marks or told)

    @property
    def is_watched(self) -> bool:
        """Whether the watch writes its events: there is a file, and it is in use."""
        return not isinstance(self.sink, Memory) and (self.due > 0 or self.is_in_session)

    @property
    def is_in_session(self) -> bool:
        """Whether a recorder records into a file; it may have open ranges at any time."""
        return self.open is not list and not isinstance(self.sink, Memory)

    @property
    def is_stale(self) -> bool:
        """Whether a file lacks events, or ranges that are open now."""
        if isinstance(self.sink, Memory):
            return False
        return self.has_news or self.open() != self._open_ranges

    def flush_due(self) -> None:
        """Write all events unless another thread does; the first event only begins the watch."""
        if self.due or begun():
            self.flush(wait=False)
            return
        self.due = time.monotonic_ns() + self.period_ns
        if self.is_watched:
            watch.begin()

    def flush(self, *, wait: bool = True) -> None:
        """Write all events. If that fails, warn once and record no more.

        Without ``wait``, do nothing while another thread writes; with it, wait `EXIT_S` at most,
        for all writers together at the exit.
        """
        lock = self._lock  # a signal handler may fork meanwhile, and the child gets a new lock
        wait = wait and not self._broken
        if not lock.acquire(timeout=_patience() if wait else 0):
            if wait and lock is self._lock:
                self._broken = True
                _warn(self.sink, TimeoutError(ETIMEDOUT, f"not written after {EXIT_S:.0f} s"))
            return
        try:
            if not self._writing:  # else a signal handler interrupted a write
                self._write()
        finally:
            lock.release()

    def close(self) -> None:
        """Write all events, and stop recording."""
        self.note_end()
        self.flush()
        self._closed = True
        self.sink.close()
        writers.pop(id(self), None)

    def in_child(self) -> None:
        """Reset this writer for a forked child."""
        self.sink = self.sink.child()
        self._clear()
        self._is_child = True
        self.forked()

    def _write(self) -> None:
        self._writing = True
        self.due = 0 if begun() else time.monotonic_ns() + self.period_ns
        sink = self.sink
        try:
            self._write_to(sink)
        except Exception as error:  # noqa: BLE001 - recording must not make the program fail
            if sink is self.sink:  # else this is a child that was forked meanwhile
                self._broken = True
                _warn(sink, error)
        finally:
            self._writing = False

    def _write_to(self, sink: Sink) -> None:
        """Write all events, then delete them; definitions are collected last and written first."""
        calls, rows, marks = self.calls[:], self.rows[:], self.marks[:]
        if self._broken or self._closed:
            self._details.clear()
        else:
            open_ranges = self.open()
            lines = self._events(calls, rows, marks, self._still_open(open_ranges))
            events = [encoded(line) for line in lines]
            head = [] if self._begun else [encoded(self._header | program())]
            definitions = self._definitions()
            data = joined([*head, *map(encoded, definitions), *events])
            if sink is not self.sink:
                return
            sink.write(data)
            self._begun, self._open_ranges = True, open_ranges
            self._forget(definitions)
        del self.calls[: len(calls)], self.rows[: len(rows)], self.marks[: len(marks)]

    def _events(
        self,
        calls: list[tuple[int, int]],
        rows: list[Row],
        marks: list[Mark],
        still_open: list[tuple[Any, ...]],
    ) -> list[dict[str, Any]]:
        """Return the lines of events.

        Ended and open ranges share a line, so that no range is in both.
        """
        ended = {"ranges": _as_columns(map(self._numbered, rows)), "open": still_open}
        lines: list[dict[str, Any]] = [
            {"calls": _as_columns(calls)},
            {kind: values for kind, values in ended.items() if values},
            {"marks": _as_columns(map(self._numbered, marks))},
        ]
        return [line for line in lines if any(line.values())]

    def _still_open(self, open_ranges: list[Row]) -> list[tuple[Any, ...]]:
        """Return the columns of open ranges; empty columns if there were some before."""
        self._had_open |= bool(open_ranges)
        opened = _as_columns(map(self._numbered, open_ranges))
        return opened or ([()] * len(Row._fields) if self._had_open else [])

    def _numbered(self, event: Row | Mark) -> tuple[Any, ...]:
        label = event.label
        number = self._labels.get(label)
        if number is None:
            if len(self._labels) >= MAX_KNOWN:
                self._labels = {}
            number = next(self._label_numbers)
            self._new_labels[number] = label
            self._labels[label] = number
        return (number, *event[1:])

    def _definitions(self) -> list[dict[str, dict[Any, Any]]]:
        """Return copies of the definitions that are not written."""
        labels = {number: _label_fields(label) for number, label in self._new_labels.items()}
        news: dict[str, dict[Any, Any]] = {
            "labels": labels,
            "details": self._details.copy(),
            "threads": self._threads.copy(),
            "metadata": self._metadata.copy(),
        }
        return [{kind: result} for kind, result in news.items() if result]

    def _forget(self, definitions: Iterable[Mapping[str, Mapping[Any, Any]]]) -> None:
        """Drop written definitions, unless another thread has changed them since."""
        news: dict[str, dict[Any, Any]] = {
            "labels": self._new_labels,
            "details": self._details,
            "threads": self._threads,
            "metadata": self._metadata,
        }
        for kind, result in (item for line in definitions for item in line.items()):
            for key, value in result.items():
                if kind == "labels" or news[kind].get(key) is value:
                    news[kind].pop(key, None)


def _as_columns(events: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list(zip(*events, strict=True))


def _label_fields(label: Label) -> list[Any]:
    """Return a label as it is recorded: name, domain, category and colour."""
    name, domain, category, _ = label
    texts = [value if value is None else text(value).decode() for value in (name, domain, category)]
    return [*texts, color_of(label)]


def _warn(sink: Sink, error: Exception) -> None:
    where = getattr(sink, "path", "memory")
    reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    problem = f"{where}: {reason}; nothing more is recorded there"
    warn(problem)
