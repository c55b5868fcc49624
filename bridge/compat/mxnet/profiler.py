"""MXNet's profiler: one per process, with configuration, states, objects and dumps.

Events accumulate over all runs until a dump that finishes; then recording begins anew, and the
profiler may be configured again.
"""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import monotonic_ns
from typing import Any, Self

from bridge import annotate
from bridge.annotate import nvtx_op
from bridge.annotate.instant import TimedRange
from bridge.annotate.memory import scopes
from bridge.annotate.memory.scopes import UNNAMED
from bridge.capture.session.profile import Session, profile
from bridge.compat.calls import (
    Instant,
    RecordedEvents,
    assign_lanes,
    begin_end_events,
    is_finite,
    merge_recorded,
    recorded_events,
    write_json,
)
from bridge.compat.mxnet.aggregate import WRITERS, blocks, domain_of
from bridge.knowledge.suggestions import unknown_name

# -- Objects for annotations: domains, tasks, frames, events, counters, markers


EVENT = "event"
SCOPES = ("global", "process", "thread", "task", "marker")


class Domain:
    """A named group of tasks, frames, counters and markers."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.annotations = annotate.Domain(name)

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        """Return a task of this domain."""
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """Return a frame of this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        """Return a counter of this domain; a value is its first sample."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """Return a marker of this domain."""
        return Marker(self, name)


class _Range:
    def __init__(self, name: str, timed: TimedRange) -> None:
        self.name = name
        self._timed = timed

    def start(self) -> None:
        """Begin the range."""
        self._timed.start()

    def stop(self) -> None:
        """End the range."""
        self._timed.stop()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.stop()

    def __str__(self) -> str:
        return self.name


class Task(_Range):
    """A range of work on any threads."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(name, domain.annotations.task(name))


class Frame(_Range):
    """A range of repeated work."""

    def __init__(self, domain: Domain, name: str) -> None:
        super().__init__(name, domain.annotations.frame(name))


class Event(_Range):
    """A range of the thread that starts it, without a domain."""

    def __init__(self, name: str) -> None:
        super().__init__(name, TimedRange(nvtx_op(name, category=EVENT)))


class Counter:
    """A value over time."""

    def __init__(self, domain: Domain, name: str, value: float | None = None) -> None:
        self.name = name
        self._counter = domain.annotations.counter(name, value)

    def set_value(self, value: float) -> None:
        """Set the value."""
        self._counter.set(value)

    def increment(self, delta: float = 1) -> None:
        """Add to the value."""
        self._counter.add(delta)

    def decrement(self, delta: float = 1) -> None:
        """Subtract from the value, which may become negative."""
        self._counter.add(-delta)

    def __iadd__(self, delta: float) -> Self:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Self:
        self.decrement(delta)
        return self

    def __str__(self) -> str:
        return self.name


class Marker:
    """Records an instant at each call of `mark`."""

    def __init__(self, domain: Domain, name: str) -> None:
        self.name = name
        self._marker: Any = domain.annotations.marker(name)

    def mark(self, scope: str = "process") -> None:
        """Record an instant for one of `SCOPES`; raises ValueError for another scope."""
        if scope not in SCOPES:
            raise ValueError(f"mark: {unknown_name('scope', scope, SCOPES)}")
        self._marker.mark(scope)

    def __str__(self) -> str:
        return self.name


def scope(name: str = UNNAMED, append_mode: bool = True) -> AbstractContextManager[str]:
    """Surround a block with a memory scope; its name is appended to the outer one by default."""
    return scopes.scope(name, append_mode)


# -- The timeline: a process for the operators, and one per domain


OPERATORS, HOST = "operator", "cpu/0"
FIRST_DOMAIN_PID = 1000  # above the numbers of devices
LANES = 1 << 24  # above the numbers of threads
MARK_SCOPES = dict(zip(SCOPES, "gptpp", strict=True))  # of Chrome's trace format
TraceEvent = dict[str, Any]


class Processes:
    """Numbers the processes of a trace: the operators of the host first, then the domains."""

    def __init__(self) -> None:
        self.numbers = {OPERATORS: 0}

    def of(self, domain: str) -> int:
        """Return the number of a domain."""
        return self.numbers.setdefault(domain, FIRST_DOMAIN_PID + len(self.numbers))

    def names(self) -> Iterator[TraceEvent]:
        """Yield the events that name the processes."""
        for domain, pid in self.numbers.items():
            args = {"name": HOST if domain == OPERATORS else domain}
            yield {"name": "process_name", "ph": "M", "pid": pid, "args": args}


def trace(recorded: RecordedEvents) -> dict[str, Any]:
    """Return the events as a trace; ts in µs from the first event."""
    processes = Processes()
    events = [
        *_ranges(recorded, processes),
        *_phases(recorded, processes),
        *(
            _instant(instant, processes, recorded.first)
            for instant in recorded.instants
            if _is_representable(instant)
        ),
    ]
    events.sort(key=lambda event: event["ts"])
    return {"traceEvents": [*processes.names(), *events], "displayTimeUnit": "ms"}


def _ranges(recorded: RecordedEvents, processes: Processes) -> Iterator[TraceEvent]:
    ranges = (call for call in recorded.calls if not call.phase)
    tracks = assign_lanes(ranges, lambda call: (domain_of(call), call.thread))
    for ((domain, thread), lane), calls in tracks.items():
        place = {"pid": processes.of(domain), "tid": thread + lane * LANES, "cat": domain}
        for phase, call, time in begin_end_events(calls):
            yield {"name": call.name, "ph": phase, **place, "ts": (time - recorded.first) / 1000}


def _phases(recorded: RecordedEvents, processes: Processes) -> Iterator[TraceEvent]:
    phases = [call for call in recorded.calls if call.phase]
    for number, call in enumerate(phases):
        common = {"name": call.name, "id": number, "cat": domain_of(call), "tid": call.thread}
        common["pid"] = processes.of(domain_of(call))
        yield {**common, "ph": "b", "ts": (call.start - recorded.first) / 1000}
        yield {**common, "ph": "e", "ts": (call.end - recorded.first) / 1000}


def _is_representable(instant: Instant) -> bool:
    return instant.value is None or is_finite(instant.value)


def _instant(instant: Instant, processes: Processes, zero: int) -> TraceEvent:
    domain = instant.domain or instant.category or OPERATORS
    event: TraceEvent = {"name": instant.name, "cat": domain, "pid": processes.of(domain)}
    event |= {"tid": instant.thread, "ts": (instant.time - zero) / 1000}
    if instant.value is None:
        return event | {"ph": "i", "s": MARK_SCOPES.get(instant.category, "p")}
    return event | {"ph": "C", "args": {instant.name: instant.value}}


# -- Options


RECORDING_SUFFIX = ".jsonl"  # of the recording with continuous_dump


class MXNetError(RuntimeError):
    """The error that MXNet's library raises."""


@dataclass(frozen=True)
class Config:
    """The options of `set_config`; kinds of work select what a session annotates."""

    filename: str = "profile.json"
    gpu_memory_profile_filename_prefix: str = "gpu_memory_profile"
    profile_all: bool = False
    profile_symbolic: bool = True
    profile_imperative: bool = True
    profile_memory: bool = True
    profile_api: bool = True
    continuous_dump: bool = False
    dump_period: float = 1.0
    aggregate_stats: bool = False

    def changed(self, options: Mapping[str, Any]) -> Config:
        """Return the configuration with other options; raises MXNetError for invalid ones."""
        names = [option.name for option in fields(self)]
        for name in options:
            if name not in names:
                message = unknown_name("option", name, names, "docs/migration.md")
                raise MXNetError(f"set_config: {message}")
        config = replace(self, **options)
        if not config.dump_period > 0:
            raise MXNetError(f"set_config: dump_period must be above 0, not {config.dump_period!r}")
        return config

    @property
    def memory(self) -> bool:
        """Whether memory is sampled."""
        return self.profile_all or self.profile_memory

    @property
    def session(self) -> dict[str, Any]:
        """The options of a session."""
        ops = self.profile_all or self.profile_symbolic or self.profile_imperative
        options: dict[str, Any] = {
            "level": int(ops),
            "profile_memory": self.memory,
        }
        if self.continuous_dump:
            file = Path(self.filename)
            options |= {
                "path": file.with_suffix(RECORDING_SUFFIX),
                "dump_period": float(self.dump_period),
            }
        return options


# -- The profiler of the process


__all__ = [
    "Counter",
    "Domain",
    "Event",
    "Frame",
    "Marker",
    "Task",
    "dump",
    "dump_profile",
    "dumps",
    "pause",
    "profiler_set_config",
    "profiler_set_state",
    "resume",
    "scope",
    "set_config",
    "set_state",
]

STATES = {"stop": False, "run": True}


class _State:
    """The configuration of the process's profiler, and its sessions."""

    def __init__(self) -> None:
        self.config = Config()
        self.sessions: list[Session] = []
        self.running = False
        self.since = 0  # ns: time of the last reset of aggregates

    def recorded(self) -> RecordedEvents:
        """Return the events since the last dump that finished."""
        return merge_recorded(map(recorded_events, self.sessions))

    def begin(self) -> None:
        """Record into a new session; a session with a file has its own file."""
        options = self.config.session
        if self.sessions and "path" in options:
            path = options["path"]
            options["path"] = path.with_stem(f"{path.stem}-{len(self.sessions) + 1}")
        session = profile(**options)
        session.start()
        self.sessions.append(session)
        self.running = True
        scopes.watch(self.config.memory)
        atexit.unregister(_at_exit)  # registered last, it runs first: sessions still exist
        atexit.register(_at_exit)

    def end(self) -> None:
        """Stop to record."""
        self.running = False
        scopes.watch(False)
        if self.sessions:
            self.sessions[-1].stop()


_state = _State()


def set_config(**kwargs: Any) -> None:
    """Configure the next run of the profiler.

    Raises MXNetError for an option that `Config` lacks.
    """
    kwargs.pop("kvstore_handle", None)
    _warn_of_process(kwargs.pop("profile_process", "worker"))
    _state.config = _state.config.changed(kwargs)


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Start ("run") or stop ("stop") to record; raises KeyError for another state."""
    _warn_of_process(profile_process)
    is_run = STATES[state]
    if is_run is not _state.running:
        (_state.begin if is_run else _state.end)()


def pause(profile_process: str = "worker") -> None:
    """Pause recording until the first `resume`, however often `pause` was called."""
    _warn_of_process(profile_process)
    if _state.running:
        _state.sessions[-1].pause()


def resume(profile_process: str = "worker") -> None:
    """Continue to record."""
    _warn_of_process(profile_process)
    if _state.running:
        _state.sessions[-1].resume()


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write the timeline to the configured file, replacing it; if finished, stop and begin anew.

    Raises MXNetError if the profiler has not run.
    """
    _warn_of_process(profile_process)
    if not _state.sessions:
        raise MXNetError("Profiler hasn't been run. Config and start profiler first")
    if finished:
        _state.end()
    write_json(_state.config.filename, trace(_state.recorded()))
    if _state.config.memory:
        scopes.snapshot_of_process(_state.config.gpu_memory_profile_filename_prefix)
    if finished:
        _state.sessions = []


def dumps(
    reset: bool = False,
    format: str = "table",  # noqa: A002 - MXNet's name
    sort_by: str = "total",
    ascending: bool = False,
) -> str:
    """Return the aggregates as text, "" unless aggregate_stats is on; ``reset`` begins anew.

    Formats are "table" and "json"; ``sort_by`` is total, avg, min, max or count. Raises ValueError
    for others.
    """
    if format not in WRITERS:
        raise ValueError(f"dumps: {unknown_name('format', format, WRITERS)}")
    if not _state.config.aggregate_stats:
        return ""
    text = WRITERS[format](blocks(_state.recorded(), _state.since), sort_by, ascending)
    if reset:
        _state.since = monotonic_ns()
    return text


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """Configure the profiler; deprecated in favour of `set_config`."""
    _deprecated("profiler_set_config", "set_config")
    set_config(
        filename=filename,
        profile_symbolic=mode in {"symbolic", "all"},
        profile_imperative=mode in {"imperative", "all"},
        profile_all=mode == "all",
    )


def profiler_set_state(state: str = "stop") -> None:
    """Start or stop to record; deprecated in favour of `set_state`."""
    _deprecated("profiler_set_state", "set_state")
    set_state(state)


def dump_profile() -> None:
    """Write the timeline; deprecated in favour of `dump`."""
    _deprecated("dump_profile", "dump")
    dump(finished=True)


def _deprecated(name: str, replacement: str) -> None:
    warnings.warn(
        f"profiler.{name} is now profiler.{replacement}", DeprecationWarning, stacklevel=3
    )


def _warn_of_process(process: str) -> None:
    if process != "worker":
        warnings.warn(f"bridge: process {process!r} cannot be profiled from here", stacklevel=3)


def _at_exit() -> None:
    """Write the file of a run that is still on."""
    if _state.running:
        dump()


if os.environ.get("MXNET_PROFILER_AUTOSTART", "0") not in {"", "0"}:
    set_state("run")
