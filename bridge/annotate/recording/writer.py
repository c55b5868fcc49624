"""Writer of a recording: collects events as tuples, and writes them in columns.

The format, one JSON object per line, is in docs/recordings.md. Every number in a line is defined in
an earlier line. `flush` writes all events that were added before it began. If an exception (Ctrl-C)
interrupts a flush, the next one writes the events, and possibly repeats definitions.
"""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from itertools import count
from math import isfinite
from threading import Lock, RLock, Thread
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

from bridge.annotate.emitter import warn
from bridge.annotate.label import Label, color_of, text
from bridge.annotate.recording.sink import Sink, joined
from bridge.annotate.stack import CALL_ID_BITS

# -- Encoding of a line as JSON


def encoded(line: Mapping[str, Any], default: Callable[[Any], Any] | None = repr) -> bytes:
    """Return a line as JSON, without a line end.

    Raises TypeError for an object that is not JSON, unless ``default`` converts it.
    """
    try:
        text = _json(line, default)
    except ValueError:  # a NaN or infinity, replaced only if there is one
        text = _json(_finite(line), default)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Two backslashes, because in JSON one would start an escape of the surrogate.
        parts = (c if c.isascii() else _escaped(c) for c in text)
        return "".join(parts).encode()


def _json(line: Any, default: Callable[[Any], Any] | None) -> str:
    import json  # takes 5 ms, and most programs write nothing

    return json.dumps(
        line, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default
    )


def _escaped(character: str) -> str:
    return character.encode("utf-8", "backslashreplace").decode().replace("\\", "\\\\")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124 (only NaN differs from itself)
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


# -- The header: process and clocks


FORMAT = "bridge.recording/1"
# Variables in which launchers (torchrun, mpirun, srun) give the rank of a process.
RANKS = {
    "rank": ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"),
    "local_rank": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "world_size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
}


def header() -> dict[str, Any]:
    """Return the first line: the process, and its clocks (epoch and monotonic) in ns."""
    return {
        "format": FORMAT,
        "trace_id": os.urandom(16).hex(),  # as in W3C's trace context
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "program": os.path.basename(sys.argv[0]) if sys.argv else "",  # noqa: PTH119 (no pathlib)
        "epoch_ns": time.time_ns(),
        "monotonic_ns": time.monotonic_ns(),
        **ranks(os.environ),
    }


def ranks(environ: Mapping[str, str]) -> dict[str, int]:
    """Return rank, local rank and world size of this process, as far as a launcher set them."""
    result = {
        name: next((environ[v] for v in variables if environ.get(v, "").isdecimal()), None)
        for name, variables in RANKS.items()
    }
    return {name: int(value) for name, value in result.items() if value is not None}


# -- Writing at exit, and after a fork


EXIT_PRIORITY = -100  # of the finalizer in children of multiprocessing
writers: WeakValueDictionary[int, Writer] = WeakValueDictionary()


class _Process:
    """Whether this process writes at exit, and whether that has begun."""

    expected = False
    begun = False


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
    for writer in _all():
        if writer.has_news:
            writer.flush()
        writer.due = 0


def _finalized(_: object) -> None:
    """Register writing at the exit of a child of multiprocessing, which does not run atexit."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None:
        util.Finalize(None, _end, exitpriority=EXIT_PRIORITY)


def _forked() -> None:
    _Process.expected = _Process.begun = False
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # such a child drops finalizers when it starts
        util.register_after_fork(_end, _finalized)
    for writer in _all():
        writer.in_child()


def _all() -> list[Writer]:
    """Return all writers; safe while other threads create some."""
    result = (reference() for reference in writers.valuerefs())
    return [writer for writer in result if writer is not None]


os.register_at_fork(after_in_child=_forked)


# -- Periodic writing


class Period:
    """A thread that flushes a writer every ``seconds``, from `begin` to `end`.

    None for no thread.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._going: list[Lock] = []  # held while a thread runs

    def begin(self, writer: Writer) -> None:
        """Start flushing a writer."""
        self.end()
        if self._seconds is not None:
            going = Lock()
            going.acquire()
            self._going.append(going)
            arguments = (writer, self._seconds, going)
            Thread(target=_write, args=arguments, name="bridge recording", daemon=True).start()

    def end(self) -> None:
        """Stop flushing."""
        while self._going:
            self._going.pop().release()


def _write(writer: Writer, seconds: float, going: Lock) -> None:
    while not going.acquire(timeout=seconds):
        writer.flush()


# -- The writer


BATCH = 8192  # number of events of one kind that triggers a flush
PERIOD_NS = 1_000_000_000  # the first event after this time triggers a flush
# Limit of cached labels and details, in case they differ in each call.
MAX_KNOWN = 1 << 14
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
    """An instant."""

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
        self._about: dict[str, Any] = {}
        self._closed = False
        self._clear()
        writers[id(self)] = self

    def _clear(self) -> None:
        """Reset the state, as after a fork."""
        self._lock = RLock()
        self._writing = self._begun = self._broken = self._had_open = False
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
        self.due = time.monotonic_ns() + PERIOD_NS

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
            self.flush(wait=False)

    def row(self, row: Row) -> None:
        """Add a range that has ended."""
        self.rows.append(row)
        if len(self.rows) >= BATCH or row.end > self.due:
            self.flush(wait=False)

    def mark(self, mark: Mark) -> None:
        """Add an instant."""
        self.marks.append(mark)
        if len(self.marks) >= BATCH or mark.time > self.due:
            self.flush(wait=False)

    def thread(self, number: int, name: str) -> None:
        """Add the name of a thread."""
        self._threads[number] = name
        expect()

    def about(self, metadata: Mapping[str, Any]) -> None:
        """Add metadata; raises TypeError for values that are not JSON."""
        import json  # takes 5 ms, and most programs add no metadata

        try:
            copy = json.loads(encoded(dict(metadata), default=None))  # a copy of the current values
        except (ValueError, RecursionError) as error:
            raise TypeError(f"metadata: {error}") from error
        self._about |= copy
        self._metadata |= copy

    @property
    def has_news(self) -> bool:
        """Whether there are events that are not written."""
        return bool(self.calls or self.rows or self.marks)

    def flush(self, *, wait: bool = True) -> None:
        """Write all events. If that fails, warn once and record no more.

        Without ``wait``, do nothing while another thread writes.
        """
        lock = self._lock  # a signal handler may fork meanwhile, and the child gets a new lock
        if not lock.acquire(blocking=wait):
            return
        try:
            if not self._writing:  # else a signal handler interrupted a write
                self._write()
        finally:
            lock.release()

    def close(self) -> None:
        """Write all events, and stop recording."""
        self.flush()
        self._closed = True
        self.sink.close()
        writers.pop(id(self), None)

    def in_child(self) -> None:
        """Reset this writer for a forked child."""
        self.sink = self.sink.child()
        self._clear()
        self.forked()

    def _write(self) -> None:
        self._writing = True
        self.due = 0 if begun() else time.monotonic_ns() + PERIOD_NS
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
            events = [encoded(line) for line in self._events(calls, rows, marks)]
            head = [] if self._begun else [encoded(self._header)]
            definitions = self._definitions()
            data = joined([*head, *map(encoded, definitions), *events])
            if sink is not self.sink:
                return
            sink.write(data)
            self._begun = True
            self._forget(definitions)
        del self.calls[: len(calls)], self.rows[: len(rows)], self.marks[: len(marks)]

    def _events(
        self, calls: list[tuple[int, int]], rows: list[Row], marks: list[Mark]
    ) -> list[dict[str, Any]]:
        """Return the lines of events.

        Ended and open ranges share a line, so that no range is in both.
        """
        ended = {"ranges": _as_columns(map(self._numbered, rows)), "open": self._still_open()}
        lines: list[dict[str, Any]] = [
            {"calls": _as_columns(calls)},
            {kind: values for kind, values in ended.items() if values},
            {"marks": _as_columns(map(self._numbered, marks))},
        ]
        return [line for line in lines if any(line.values())]

    def _still_open(self) -> list[tuple[Any, ...]]:
        """Return the columns of open ranges; empty columns if there were some before."""
        opened = _as_columns(map(self._numbered, self.open()))
        self._had_open |= bool(opened)
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
