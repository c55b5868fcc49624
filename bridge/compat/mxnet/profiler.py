"""The calls of MXNet's profiler: one for the process, configured, run, stopped, dumped.

The invariant: what is recorded accumulates from `set_state("run")` to `set_state("run")` until a dump that
finishes; then all begins anew, and may be configured again.
"""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import monotonic_ns
from typing import Any

from bridge.annotate.memory import scopes
from bridge.capture.session.profile import Profile, profile
from bridge.compat.calls import (
    Happened,
    Instant,
    begun_and_ended,
    finite,
    happened,
    laned,
    together,
    write_json,
)
from bridge.compat.mxnet.aggregate import WRITERS, blocks, domain_of
from bridge.compat.mxnet.objects import SCOPES, Counter, Domain, Event, Frame, Marker, Task, scope

# -- The timeline that MXNet's profiler writes: a viewer's process for the operators and one for each domain


OPERATORS, HOST = "operator", "cpu/0"
DOMAINS = 1000  # the numbers of their processes begin here, beyond those of devices
LANES = 1 << 24  # beyond the numbers of threads
VIEWERS = dict(zip(SCOPES, "gptpp", strict=True))  # how far a viewer draws a mark
TraceEvent = dict[str, Any]


class Processes:
    """Numbers the processes of a viewer: the host's operators first, then each domain as it comes."""

    def __init__(self) -> None:
        self.numbers = {OPERATORS: 0}

    def of(self, domain: str) -> int:
        """Return the number of a domain."""
        return self.numbers.setdefault(domain, DOMAINS + len(self.numbers))

    def names(self) -> Iterator[TraceEvent]:
        """Give the events that name them."""
        for domain, pid in self.numbers.items():
            args = {"name": HOST if domain == OPERATORS else domain}
            yield {"name": "process_name", "ph": "M", "pid": pid, "args": args}


def trace(recorded: Happened) -> dict[str, Any]:
    """Return what was recorded; ts in µs from the first event."""
    processes = Processes()
    events = [
        *_ranges(recorded, processes),
        *_phases(recorded, processes),
        *(_instant(one, processes, recorded.first) for one in recorded.instants if _sayable(one)),
    ]
    events.sort(key=lambda event: event["ts"])
    return {"traceEvents": [*processes.names(), *events], "displayTimeUnit": "ms"}


def _ranges(recorded: Happened, processes: Processes) -> Iterator[TraceEvent]:
    ranges = (call for call in recorded.calls if not call.phase)
    tracks = laned(ranges, lambda call: (domain_of(call), call.thread))
    for ((domain, thread), lane), calls in tracks.items():
        place = {"pid": processes.of(domain), "tid": thread + lane * LANES, "cat": domain}
        for phase, call, time in begun_and_ended(calls):
            yield {"name": call.name, "ph": phase, **place, "ts": (time - recorded.first) / 1000}


def _phases(recorded: Happened, processes: Processes) -> Iterator[TraceEvent]:
    phases = [call for call in recorded.calls if call.phase]
    for number, call in enumerate(phases):
        own = {"name": call.name, "id": number, "cat": domain_of(call), "tid": call.thread}
        own["pid"] = processes.of(domain_of(call))
        yield {**own, "ph": "b", "ts": (call.start - recorded.first) / 1000}
        yield {**own, "ph": "e", "ts": (call.end - recorded.first) / 1000}


def _sayable(instant: Instant) -> bool:
    return instant.value is None or finite(instant.value)


def _instant(instant: Instant, processes: Processes, zero: int) -> TraceEvent:
    domain = instant.domain or instant.category or OPERATORS
    event: TraceEvent = {"name": instant.name, "cat": domain, "pid": processes.of(domain)}
    event |= {"tid": instant.thread, "ts": (instant.time - zero) / 1000}
    if instant.value is None:
        return event | {"ph": "i", "s": VIEWERS.get(instant.category, "p")}
    return event | {"ph": "C", "args": {instant.name: instant.value}}


# -- The calls of MXNet's profiler: one for the process, configured, run, stopped, dumped


# -- What MXNet's `set_config` takes, checked where it is given


ENDING = ".jsonl"  # of the recording that grows while the program runs


class MXNetError(RuntimeError):
    """What MXNet's library raises."""


@dataclass(frozen=True)
class Config:
    """The options of `set_config`; the kinds of work are switches of what a session annotates by itself."""

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

    def changed(self, given: Mapping[str, Any]) -> Config:
        """Return it with what was given; raises MXNetError for what there is not, or no period over 0."""
        known = [one.name for one in fields(self)]
        unknown = ", ".join(repr(name) for name in given if name not in known)
        if unknown:
            raise MXNetError(f"set_config: no option {unknown}; there are {', '.join(known)}")
        made = replace(self, **given)
        if not made.dump_period > 0:
            raise MXNetError(f"set_config: dump_period is more than 0, not {made.dump_period!r}")
        return made

    @property
    def memory(self) -> bool:
        """Whether memory is looked at."""
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
            options |= {"path": file.with_suffix(ENDING), "dump_period": float(self.dump_period)}
        return options


# -- The calls of MXNet's profiler: one for the process, configured, run, stopped, dumped


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
    """What the process's profiler is told, and what it has recorded."""

    def __init__(self) -> None:
        self.config = Config()
        self.sessions: list[Profile] = []
        self.running = False
        self.since = 0  # ns: when aggregates were reset

    def recorded(self) -> Happened:
        """Return what was recorded since the last dump that finished."""
        return together(map(happened, self.sessions))

    def begin(self) -> None:
        """Begin to record into a session of its own: a recording that is a file keeps one."""
        options = self.config.session
        if self.sessions and "path" in options:
            path = options["path"]
            options["path"] = path.with_stem(f"{path.stem}-{len(self.sessions) + 1}")
        session = profile(**options)
        session.start()
        self.sessions.append(session)
        self.running = True
        scopes.watch(self.config.memory)
        atexit.unregister(_at_exit)  # again at the end: sessions are then still there
        atexit.register(_at_exit)

    def end(self) -> None:
        """Record no more."""
        self.running = False
        scopes.watch(False)
        if self.sessions:
            self.sessions[-1].stop()


_state = _State()


def set_config(**kwargs: Any) -> None:
    """Configure the profiler, for the next time that it runs; see `Config` for what there is.

    Raises MXNetError for an option that there is not.
    """
    kwargs.pop("kvstore_handle", None)
    _own(kwargs.pop("profile_process", "worker"))
    _state.config = _state.config.changed(kwargs)


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Begin ("run") or end ("stop") to record; raises KeyError for another word."""
    _own(profile_process)
    wanted = STATES[state]
    if wanted is not _state.running:
        (_state.begin if wanted else _state.end)()


def pause(profile_process: str = "worker") -> None:
    """Record nothing until `resume`; not counted, the first `resume` ends it."""
    _own(profile_process)
    if _state.running:
        _state.sessions[-1].pause()


def resume(profile_process: str = "worker") -> None:
    """Record again."""
    _own(profile_process)
    if _state.running:
        _state.sessions[-1].resume()


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write the timeline to the configured file, replacing it; if finished, stop and begin anew.

    Raises MXNetError if the profiler has not run.
    """
    _own(profile_process)
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
    format: str = "table",  # noqa: A002 - theirs
    sort_by: str = "total",
    ascending: bool = False,
) -> str:
    """Return the aggregates as text, "" unless they are configured; reset counts from now on.

    Formats are "table" and "json"; sorted by total, avg, min, max or count. Raises ValueError for others.
    """
    if format not in WRITERS:
        raise ValueError(f"dumps: no format {format!r}: one of {', '.join(WRITERS)}")
    if not _state.config.aggregate_stats:
        return ""
    text = WRITERS[format](blocks(_state.recorded(), _state.since), sort_by, ascending)
    if reset:
        _state.since = monotonic_ns()
    return text


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """Configure as MXNet once did; `set_config` took its place."""
    _deprecated("profiler_set_config", "set_config")
    set_config(
        filename=filename,
        profile_symbolic=mode in {"symbolic", "all"},
        profile_imperative=mode in {"imperative", "all"},
        profile_all=mode == "all",
    )


def profiler_set_state(state: str = "stop") -> None:
    """Begin or end as MXNet once did; `set_state` took its place."""
    _deprecated("profiler_set_state", "set_state")
    set_state(state)


def dump_profile() -> None:
    """Write as MXNet once did; `dump` took its place."""
    _deprecated("dump_profile", "dump")
    dump(finished=True)


def _deprecated(name: str, now: str) -> None:
    warnings.warn(f"profiler.{name} is now profiler.{now}", DeprecationWarning, stacklevel=3)


def _own(process: str) -> None:
    if process != "worker":
        warnings.warn(f"bridge: no process {process!r} is reached from here", stacklevel=3)


def _at_exit() -> None:
    """Leave no run without its file."""
    if _state.running:
        dump()


if os.environ.get("MXNET_PROFILER_AUTOSTART", "0") not in {"", "0"}:
    set_state("run")
