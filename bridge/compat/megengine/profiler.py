"""A profiler object as MegEngine has it: a block, a function, or from start to stop.

The invariant: of the profilers here one runs at a time, and what the last run of each recorded is written
once, at `dump`, or when it is given up, or at the end of the program.
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
from bridge.capture.session.profile import Profile, is_profiling
from bridge.capture.session.profile import profile as session_of
from bridge.compat.calls import (
    Call,
    Happened,
    Instant,
    begun_and_ended,
    finite,
    happened,
    laned,
    write_json,
)

# -- The timeline that MegEngine's profiler writes, and several of them on one clock


STOP_STEP = "StopStep"
Event = dict[str, Any]


def timeline(recorded: Happened) -> dict[str, Any]:
    """Return what was recorded, in Chrome's trace format: B and E of calls, i of marks, C of counters."""
    tracks = laned(recorded.calls, lambda call: call.thread)
    tid = {track: number for number, track in enumerate(tracks)}
    for instant in recorded.instants:
        tid.setdefault((instant.thread, 0), len(tid))
    events = [
        *(e for track, calls in tracks.items() for e in _calls(calls, tid[track], recorded.first)),
        *(_instant(one, tid[one.thread, 0], recorded.first) for one in _sayable(recorded)),
    ]
    events.sort(key=lambda event: event["ts"])
    names = [_thread_name(number, *track, recorded.threads) for track, number in tid.items()]
    local = (recorded.epoch_ns + recorded.first) / 1000
    return {"traceEvents": [*names, *events], "metadata": {"localTime": local}}


def merged(files: Iterable[Path]) -> dict[str, Any]:
    """Put the timelines of several files into one, whose clock begins with the first."""
    found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    began = [one["metadata"]["localTime"] for one in found]
    first = min(began, default=0)
    events: list[Event] = []
    for one, at in zip(found, began, strict=True):
        events += (_moved(event, at - first) for event in one["traceEvents"])
    return {"traceEvents": events, "metadata": {"localTime": first}}


def _moved(event: Event, by: float) -> Event:
    return {**event, "ts": event["ts"] + by} if "ts" in event else event


def _calls(calls: list[Call], tid: int, zero: int) -> Iterator[Event]:
    for phase, call, time in begun_and_ended(calls):
        event = {"name": call.name, "ph": phase, "ts": (time - zero) / 1000}
        event |= {"pid": call.process, "tid": tid, "cat": call.category or "Op"}
        yield event | ({"args": _arguments(call)} if phase == "B" else {})


def _arguments(call: Call) -> dict[str, Any]:
    own = {"__name__": call.name, "__id__": str(call.payload)}  # 64 bits: too many for a viewer
    return own | dict(call.details)


def _sayable(recorded: Happened) -> Iterator[Instant]:
    return (one for one in recorded.instants if one.value is None or finite(one.value))


def _instant(instant: Instant, tid: int, zero: int) -> Event:
    event: Event = {"name": instant.name, "ts": (instant.time - zero) / 1000}
    event |= {"pid": getpid(), "tid": tid, "cat": instant.category or "Mark"}
    if instant.value is None:
        return event | {"ph": "i", "s": "t"}
    return event | {"ph": "C", "args": {instant.name: instant.value}}


def _thread_name(tid: int, thread: int, lane: int, names: Mapping[int, str]) -> Event:
    name = names.get(thread) or f"thread {thread}"
    known = f"{name} ({lane + 1})" if lane else name
    return {"name": "thread_name", "ph": "M", "pid": getpid(), "tid": tid, "args": {"name": known}}


# -- A profiler object as MegEngine has it: a block, a function, or from start to stop


F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["Profiler", "is_profiling", "merge_trace_events", "profile", "scope"]  # one is bridge's

LARGE = 64 << 20  # bytes: viewers are slow with more
MERGED = "merge.chrome_timeline.json"
_unwritten: WeakSet[Profiler] = WeakSet()


class Profiler:
    """Records a block, a function, or from `start` to `stop`, into ``<path>/<pid>.<format>``."""

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
        format: str = CHROME_TIMELINE,  # noqa: A002 - theirs
        formats: Iterable[str] | None = None,
        with_backtrace: bool = False,
        with_scopes: bool = False,
        **kwargs: Any,
    ) -> None:
        self._session: Profile | None = None
        self._running = self._ready = False
        if isinstance(formats, str):
            raise AssertionError(f"formats is a list of formats, not {formats!r}")  # noqa: TRY004 (theirs)
        self._formats = tuple(formats or (format,))
        for one in self._formats:
            if one not in self.valid_formats:
                raise AssertionError(f"no format {one!r}: one of {', '.join(self.valid_formats)}")
        unknown = ", ".join(repr(name) for name in kwargs if name not in self.valid_options)
        if unknown:
            raise TypeError(f"no option {unknown}; there are {', '.join(self.valid_options)}")
        self._options = {n: int(kwargs.get(n, value)) for n, value in self.valid_options.items()}
        self._path, self._pid = path, os.getpid()
        self._with_scopes = with_scopes
        if with_backtrace:
            warnings.warn("bridge: no backtraces are recorded", UserWarning, stacklevel=2)

    @property
    def path(self) -> str:
        """The file; of several formats with all of them in braces."""
        formats = self._formats
        together = formats[0] if len(formats) == 1 else "{" + ",".join(formats) + "}"
        return self.format_path(self._path, self._pid, together)

    @property
    def directory(self) -> str:
        """The folder that files go to."""
        return self._path

    @property
    def formats(self) -> list[str]:
        """The formats that are written."""
        return list(self._formats)

    @staticmethod
    def format_path(path: str, pid: int, format: str) -> str:  # noqa: A002 - theirs
        """Return the file for a folder, a process and a format."""
        return os.path.join(path, f"{pid}.{format}")  # noqa: PTH118 - a string, as theirs

    def start(self) -> None:
        """Begin to record; raises AssertionError while a profiler runs."""
        self._session = session_of(
            with_modules=self._with_scopes, sample_rate=max(0, self._options["sample_rate"])
        )
        try:
            self._session.start()
        except RuntimeError as problem:
            raise AssertionError(str(problem)) from problem
        self._pid = os.getpid()
        self._running, self._ready = True, False
        _unwritten.add(self)

    def stop(self) -> None:
        """Record no more; raises AssertionError if it does not run."""
        if not self._running or self._session is None:
            raise AssertionError("this profiler does not run")
        self._session.stop()
        self._running, self._ready = False, True

    def step(self) -> Self:
        """Mark the end of a step."""
        mark(STOP_STEP)
        return self

    def dump(self) -> None:
        """Write what the last run recorded, once; without one do nothing."""
        if not self._ready or self._pid != os.getpid():
            return
        self._ready = False
        _unwritten.discard(self)
        folder = Path(self._path)
        if folder.exists() and not folder.is_dir():
            warnings.warn(f"bridge: {folder}: no folder; nothing was written", stacklevel=2)
            return
        folder.mkdir(parents=True, exist_ok=True)
        content = timeline(happened(self._session))
        for one in self._formats:
            self._write(Path(self.format_path(self._path, self._pid, one)), content)

    def _write(self, file: Path, content: dict[str, Any]) -> None:
        write_json(file, content)
        if file.stat().st_size > LARGE:
            warnings.warn(f"bridge: {file}: over 64 MiB, slow in viewers", stacklevel=3)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._running:
            self.stop()

    def __call__(self, function: F) -> F:
        """Decorate a function: each call of it is recorded, the last one is kept."""

        @wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]

    def __del__(self) -> None:
        self._end()

    def _end(self) -> None:
        """Write what is not written, whatever state this is in."""
        if self._running:
            self.stop()
        self.dump()


def profile(*args: Any, **kwargs: Any) -> Any:
    """Make a profiler; `@profile` above a function records each call of it."""
    if len(args) == 1 and not kwargs and callable(args[0]):
        return Profiler()(args[0])
    return Profiler(*args, **kwargs)


def scope(name: str) -> Any:
    """Surround a block by a range of this name."""
    return annotated_scope(name)


def merge_trace_events(directory: str) -> None:
    """Make one timeline, merge.chrome_timeline.json, of all in a folder, on one clock."""
    folder = Path(directory)
    files = sorted(folder.glob(f"*.{Profiler.CHROME_TIMELINE}"))
    write_json(folder / MERGED, merged(file for file in files if file.name != MERGED))


@atexit.register
def _write_all() -> None:
    for one in list(_unwritten):
        one._end()  # noqa: SLF001 - of this module
