"""MegEngine's profiler as a block, a decorator, or from start to stop.

One of these profilers runs at a time. The last run of each is written once: at `dump`, when the
profiler is deleted, or at the end of the program.
"""

from __future__ import annotations

import atexit
import json
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from os import getpid
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar
from weakref import WeakSet

from bridge.annotate import mark
from bridge.annotate import scope as annotated_scope
from bridge.capture.session.profile import Session, is_profiling
from bridge.capture.session.profile import profile as session_of
from bridge.compat.calls import (
    Call,
    Instant,
    RecordedEvents,
    assign_lanes,
    begin_end_events,
    is_finite,
    recorded_events,
    write_json,
)
from bridge.knowledge.suggestions import unknown_name

# -- Timelines


STOP_STEP = "StopStep"
Event = dict[str, Any]


def timeline(recorded: RecordedEvents) -> dict[str, Any]:
    """Return the events in Chrome's trace format: B and E of calls, i of marks, C of counters."""
    tracks = assign_lanes(recorded.calls, lambda call: call.thread)
    tid = {track: number for number, track in enumerate(tracks)}
    for instant in recorded.instants:
        tid.setdefault((instant.thread, 0), len(tid))
    events = [
        *(
            event
            for track, calls in tracks.items()
            for event in _calls(calls, tid[track], recorded.first)
        ),
        *(
            _instant(instant, tid[instant.thread, 0], recorded.first)
            for instant in _representable(recorded)
        ),
    ]
    events.sort(key=lambda event: event["ts"])
    names = [_thread_name(number, *track, recorded.threads) for track, number in tid.items()]
    local = (recorded.epoch_ns + recorded.first) / 1000
    return {"traceEvents": [*names, *events], "metadata": {"localTime": local}}


def merge_timelines(files: Iterable[Path]) -> dict[str, Any]:
    """Return the timelines of several files as one, on the clock of the first."""
    contents = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    begins = [content["metadata"]["localTime"] for content in contents]
    first = min(begins, default=0)
    events: list[Event] = []
    for content, begin in zip(contents, begins, strict=True):
        events += (_shifted(event, begin - first) for event in content["traceEvents"])
    return {"traceEvents": events, "metadata": {"localTime": first}}


def _shifted(event: Event, offset: float) -> Event:
    return {**event, "ts": event["ts"] + offset} if "ts" in event else event


def _calls(calls: list[Call], tid: int, zero: int) -> Iterator[Event]:
    for phase, call, time in begin_end_events(calls):
        event = {"name": call.name, "ph": phase, "ts": (time - zero) / 1000}
        event |= {"pid": call.process, "tid": tid, "cat": call.category or "Op"}
        yield event | ({"args": _arguments(call)} if phase == "B" else {})


def _arguments(call: Call) -> dict[str, Any]:
    identity = {
        "__name__": call.name,
        "__id__": str(call.payload),
    }  # as text: viewers do not hold 64 bits
    return identity | dict(call.details)


def _representable(recorded: RecordedEvents) -> Iterator[Instant]:
    return (
        instant
        for instant in recorded.instants
        if instant.value is None or is_finite(instant.value)
    )


def _instant(instant: Instant, tid: int, zero: int) -> Event:
    event: Event = {"name": instant.name, "ts": (instant.time - zero) / 1000}
    event |= {"pid": getpid(), "tid": tid, "cat": instant.category or "Mark"}
    if instant.value is None:
        return event | {"ph": "i", "s": "t"}
    return event | {"ph": "C", "args": {instant.name: instant.value}}


def _thread_name(tid: int, thread: int, lane: int, names: Mapping[int, str]) -> Event:
    name = names.get(thread) or f"thread {thread}"
    label = f"{name} ({lane + 1})" if lane else name
    return {"name": "thread_name", "ph": "M", "pid": getpid(), "tid": tid, "args": {"name": label}}


# -- Profilers


F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["Profiler", "is_profiling", "merge_trace_events", "profile", "scope"]

LARGE_BYTES = 64 << 20  # viewers are slow with larger files
MERGED_NAME = "merge.chrome_timeline.json"
_unwritten: WeakSet[Profiler] = WeakSet()


class Profiler:
    """Records a block, a function, or from `start` to `stop`, to ``<path>/<pid>.<format>``."""

    CHROME_TIMELINE = "chrome_timeline.json"
    valid_formats = (CHROME_TIMELINE,)
    valid_options: ClassVar = {
        "sample_rate": 0,
        "profile_device": 1,
        "num_tensor_watch": 10,
        "enable_cupti": 0,
    }

    def __init__(
        self,
        path: str = "profile",
        format: str = CHROME_TIMELINE,  # noqa: A002 - MegEngine's name
        formats: Iterable[str] | None = None,
        with_backtrace: bool = False,
        with_scopes: bool = False,
        **kwargs: Any,
    ) -> None:
        self._session: Session | None = None
        self._running = self._has_unwritten = False
        if isinstance(formats, str):
            raise AssertionError(f"formats is a list of formats, not {formats!r}")  # noqa: TRY004 - MegEngine's
        self._formats = tuple(formats or (format,))
        for format_ in self._formats:
            if format_ not in self.valid_formats:
                raise AssertionError(unknown_name("format", format_, self.valid_formats))
        for name in kwargs:
            if name not in self.valid_options:
                raise TypeError(unknown_name("option", name, self.valid_options, "valid_options"))
        self._options = {
            name: int(kwargs.get(name, value)) for name, value in self.valid_options.items()
        }
        self._path, self._pid = path, os.getpid()
        self._with_scopes = with_scopes
        if with_backtrace:
            warnings.warn("bridge: no backtraces are recorded", UserWarning, stacklevel=2)

    @property
    def path(self) -> str:
        """The file; several formats are in braces."""
        formats = self._formats
        ending = formats[0] if len(formats) == 1 else "{" + ",".join(formats) + "}"
        return self.format_path(self._path, self._pid, ending)

    @property
    def directory(self) -> str:
        """The folder of the files."""
        return self._path

    @property
    def formats(self) -> list[str]:
        """The formats of the files."""
        return list(self._formats)

    @staticmethod
    def format_path(path: str, pid: int, format: str) -> str:  # noqa: A002 - MegEngine's name
        """Return the file of a folder, a process and a format."""
        return os.path.join(path, f"{pid}.{format}")  # noqa: PTH118 - a string

    def start(self) -> None:
        """Start to record; raises AssertionError while a profiler runs."""
        self._session = session_of(
            with_modules=self._with_scopes, sample_rate=max(0, self._options["sample_rate"])
        )
        try:
            self._session.start()
        except RuntimeError as problem:
            raise AssertionError(str(problem)) from problem
        self._pid = os.getpid()
        self._running, self._has_unwritten = True, False
        _unwritten.add(self)

    def stop(self) -> None:
        """Stop to record; raises AssertionError if it does not run."""
        if not self._running or self._session is None:
            raise AssertionError("this profiler does not run")
        self._session.stop()
        self._running, self._has_unwritten = False, True

    def step(self) -> Self:
        """Mark the end of a step."""
        mark(STOP_STEP)
        return self

    def dump(self) -> None:
        """Write what the last run recorded, once; do nothing without a run."""
        if not self._has_unwritten or self._pid != os.getpid():
            return
        self._has_unwritten = False
        _unwritten.discard(self)
        folder = Path(self._path)
        if folder.exists() and not folder.is_dir():
            warnings.warn(f"bridge: {folder}: not a folder; nothing was written", stacklevel=2)
            return
        folder.mkdir(parents=True, exist_ok=True)
        content = timeline(recorded_events(self._session))
        for name in self._formats:
            self._write(Path(self.format_path(self._path, self._pid, name)), content)

    def _write(self, file: Path, content: dict[str, Any]) -> None:
        write_json(file, content)
        if file.stat().st_size > LARGE_BYTES:
            warnings.warn(f"bridge: {file}: over 64 MiB, slow in viewers", stacklevel=3)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._running:
            self.stop()

    def __call__(self, function: F) -> F:
        """Decorate a function: each call is recorded, and the last is kept."""

        @wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]

    def __del__(self) -> None:
        self._finish()

    def _finish(self) -> None:
        """Stop and write, whatever the state."""
        if self._running:
            self.stop()
        self.dump()


def profile(*args: Any, **kwargs: Any) -> Any:
    """Return a profiler; `@profile` above a function records each of its calls."""
    if len(args) == 1 and not kwargs and callable(args[0]):
        return Profiler()(args[0])
    return Profiler(*args, **kwargs)


def scope(name: str) -> Any:
    """Surround a block with a range of this name."""
    return annotated_scope(name)


def merge_trace_events(directory: str) -> None:
    """Write merge.chrome_timeline.json, which merges all timelines of a folder on one clock."""
    folder = Path(directory)
    files = sorted(folder.glob(f"*.{Profiler.CHROME_TIMELINE}"))
    write_json(
        folder / MERGED_NAME, merge_timelines(file for file in files if file.name != MERGED_NAME)
    )


@atexit.register
def _write_all() -> None:
    for profiler in list(_unwritten):
        profiler._finish()  # noqa: SLF001 - of this module
