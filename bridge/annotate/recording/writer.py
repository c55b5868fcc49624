"""The writer of a recording: takes what happened, one tuple each, and writes it in columns.

The format, a JSON object a line, is in docs/recordings.md. The invariant: whatever a line refers to
by number is defined before it; `flush` leaves nothing behind that was taken before it began; what an
exception interrupts (Ctrl-C) the next one writes, definitions perhaps a second time.
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

from bridge.annotate.label import Label, color_of, text
from bridge.annotate.recording.sink import Sink, joined
from bridge.annotate.stack import CALL_ID_BITS
from bridge.annotate.warning import warn

# -- One line of a recording as JSON, whatever texts and numbers a program has


def encoded(line: Mapping[str, Any], default: Callable[[Any], Any] | None = repr) -> bytes:
    """Return a line without its end; raises TypeError for what is no JSON, unless ``default`` makes it so."""
    try:
        text = _json(line, default)
    except ValueError:  # a float that is no number; looked for only then
        text = _json(_finite(line), default)
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Two backslashes: to JSON one is the beginning of the surrogate itself.
        parts = (c if c.isascii() else _spelled(c) for c in text)
        return "".join(parts).encode()


def _json(line: Any, default: Callable[[Any], Any] | None) -> str:
    import json  # 5 ms, and most programs write nothing

    return json.dumps(
        line, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default
    )


def _spelled(character: str) -> str:
    return character.encode("utf-8", "backslashreplace").decode().replace("\\", "\\\\")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"  # noqa: PLR0124 (only NaN differs from itself)
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


# -- The first line of a recording: which process this is, and what its clocks say


FORMAT = "bridge.recording/1"
# What launchers set (torchrun, mpirun, srun): which of several processes this is.
RANKS = {
    "rank": ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"),
    "local_rank": ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID"),
    "world_size": ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"),
}


def header() -> dict[str, Any]:
    """Return the first line; times in ns, of the epoch and of `time.monotonic_ns` at one moment."""
    return {
        "format": FORMAT,
        "trace_id": os.urandom(16).hex(),  # as W3C's trace context has it
        "pid": os.getpid(),
        "host": os.uname().nodename,
        "program": os.path.basename(sys.argv[0]) if sys.argv else "",  # noqa: PTH119 (no pathlib)
        "epoch_ns": time.time_ns(),
        "monotonic_ns": time.monotonic_ns(),
        **ranks(os.environ),
    }


def ranks(environ: Mapping[str, str]) -> dict[str, int]:
    """Return the place of this process among those of a distributed program, if a launcher said it."""
    found = {
        name: next((environ[v] for v in variables if environ.get(v, "").isdecimal()), None)
        for name, variables in RANKS.items()
    }
    return {name: int(value) for name, value in found.items() if value is not None}


# -- Has recordings written when a process ends, and begun anew in a child that is forked


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


# -- Writes a recording every so many seconds, whatever the program does meanwhile


class Period:
    """A thread that writes, from `begin` to `end`; without seconds, nothing."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._going: list[Lock] = []  # held while a thread is to go on

    def begin(self, writer: Writer) -> None:
        """Write this recording from now on."""
        self.end()
        if self._seconds is not None:
            going = Lock()
            going.acquire()
            self._going.append(going)
            arguments = (writer, self._seconds, going)
            Thread(target=_write, args=arguments, name="bridge recording", daemon=True).start()

    def end(self) -> None:
        """Write no more by the clock."""
        while self._going:
            self._going.pop().release()


def _write(writer: Writer, seconds: float, going: Lock) -> None:
    while not going.acquire(timeout=seconds):
        writer.flush()


# -- The writer of a recording: takes what happened, one tuple each, and writes it in columns


MANY = 8192  # of anything, and it is written
PERIOD_NS = 1_000_000_000  # so old, and it is written with the next
# Labels and details remembered at most: those that differ in each call would fill the memory.
KNOWN = 1 << 14
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
        self._about: dict[str, Any] = {}
        self._closed = False
        self._clear()
        writers[id(self)] = self

    def _clear(self) -> None:
        """Begin anew, as after a fork."""
        self._lock = RLock()
        self._writing = self._begun = self._broken = self._had_open = False
        self._header = header()  # now: the first line may be written long after the first call
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
        """Take a call whose details are those of an earlier one; return False if there was none."""
        number = self._known.get(key)
        if number is None:
            return False
        self._take_call(call, number)
        return True

    def note(self, call: int, key: Hashable, details: Mapping[str, Any]) -> None:
        """Take the details of a call, which are those of all calls with this key."""
        if len(self._known) >= KNOWN:
            self._known = {}
        expect()
        number = next(self._numbers)
        self._details[number] = details
        self._known[key] = number
        self._take_call(call, number)

    def _take_call(self, call: int, number: int) -> None:
        calls = self.calls
        calls.append((call & CALLS, number))
        if len(calls) >= MANY or time.monotonic_ns() > self.due:
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
        expect()

    def about(self, metadata: Mapping[str, Any]) -> None:
        """Take what the program says of itself; raises TypeError for what JSON cannot say."""
        import json  # 5 ms, and most programs say nothing

        try:
            said = json.loads(encoded(dict(metadata), default=None))  # as it is now
        except (ValueError, RecursionError) as error:
            raise TypeError(f"metadata: {error}") from error
        self._about |= said
        self._metadata |= said

    @property
    def has_news(self) -> bool:
        """Whether anything happened that is not written."""
        return bool(self.calls or self.rows or self.marks)

    def flush(self, *, wait: bool = True) -> None:
        """Write what there is; where it cannot be written say so once and record no more.

        Without ``wait`` do nothing while another thread writes.
        """
        lock = (
            self._lock
        )  # the same at the end, also in a child that a signal handler forks meanwhile
        if not lock.acquire(blocking=wait):
            return
        try:
            if not self._writing:  # else this is a signal handler in the midst of it
                self._write()
        finally:
            lock.release()

    def close(self) -> None:
        """Write what there is, and nothing from now on."""
        self.flush()
        self._closed = True
        self.sink.close()
        writers.pop(id(self), None)

    def in_child(self) -> None:
        """Become the writer of a forked child, of which nothing is known yet."""
        self.sink = self.sink.child()
        self._clear()
        self.forked()

    def _write(self) -> None:
        self._writing = True
        self.due = 0 if begun() else time.monotonic_ns() + PERIOD_NS
        sink = self.sink
        try:
            self._write_to(sink)
        except Exception as error:  # noqa: BLE001 - the program is not to fail for being recorded
            if sink is self.sink:  # else this is a child now, forked meanwhile
                self._broken = True
                _warn(sink, error)
        finally:
            self._writing = False

    def _write_to(self, sink: Sink) -> None:
        """Write what there is, then forget it; what others refer to is looked at last and written first."""
        calls, rows, marks = self.calls[:], self.rows[:], self.marks[:]
        if self._broken or self._closed:
            self._details.clear()
        else:
            events = [encoded(line) for line in self._events(calls, rows, marks)]
            head = [] if self._begun else [encoded(self._header)]
            definitions = self._definitions()
            lines = joined([*head, *map(encoded, definitions), *events])
            if sink is not self.sink:
                return
            sink.write(lines)
            self._begun = True
            self._forget(definitions)
        del self.calls[: len(calls)], self.rows[: len(rows)], self.marks[: len(marks)]

    def _events(
        self, calls: list[tuple[int, int]], rows: list[Row], marks: list[Mark]
    ) -> list[dict[str, Any]]:
        """Return lines; what has ended and what is open in one, so that no range is cut into both."""
        ended = {"ranges": _columns(map(self._numbered, rows)), "open": self._still_open()}
        lines: list[dict[str, Any]] = [
            {"calls": _columns(calls)},
            {kind: found for kind, found in ended.items() if found},
            {"marks": _columns(map(self._numbered, marks))},
        ]
        return [line for line in lines if any(line.values())]

    def _still_open(self) -> list[tuple[Any, ...]]:
        """Return what is open now; where nothing is and something was once, columns of no rows."""
        opened = _columns(map(self._numbered, self.open()))
        self._had_open |= bool(opened)
        return opened or ([()] * len(Row._fields) if self._had_open else [])

    def _numbered(self, event: Row | Mark) -> tuple[Any, ...]:
        label = event.label
        number = self._labels.get(label)
        if number is None:
            if len(self._labels) >= KNOWN:
                self._labels = {}
            number = next(self._label_numbers)
            self._new_labels[number] = label
            self._labels[label] = number
        return (number, *event[1:])

    def _definitions(self) -> list[dict[str, dict[Any, Any]]]:
        """Return what is not defined yet, a copy of each."""
        labels = {number: _written(label) for number, label in self._new_labels.items()}
        news: dict[str, dict[Any, Any]] = {
            "labels": labels,
            "details": self._details.copy(),
            "threads": self._threads.copy(),
            "metadata": self._metadata.copy(),
        }
        return [{kind: found} for kind, found in news.items() if found]

    def _forget(self, definitions: Iterable[Mapping[str, Mapping[Any, Any]]]) -> None:
        """Have these defined: unless another thread has changed them since, they are no news."""
        news: dict[str, dict[Any, Any]] = {
            "labels": self._new_labels,
            "details": self._details,
            "threads": self._threads,
            "metadata": self._metadata,
        }
        for kind, found in (item for line in definitions for item in line.items()):
            for key, value in found.items():
                if kind == "labels" or news[kind].get(key) is value:
                    news[kind].pop(key, None)


def _columns(events: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list(zip(*events, strict=True))


def _written(label: Label) -> list[Any]:
    """Write a label as a profiler gets it: what is no UTF-8 is spelled out."""
    name, domain, category, _ = label
    texts = [one if one is None else text(one).decode() for one in (name, domain, category)]
    return [*texts, color_of(label)]


def _warn(sink: Sink, error: Exception) -> None:
    where = getattr(sink, "path", "memory")
    reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
    problem = f"{where}: {reason}; nothing more is recorded there"
    warn(problem)
