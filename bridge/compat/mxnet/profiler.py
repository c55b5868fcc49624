"""MXNet's profiler: one per process, with configuration, states and dumps.

A dump holds all events of the file's runs, also after a dump that finished; aggregates add up until
they are reset. A new file name after a finished dump begins a new timeline.
"""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from time import monotonic_ns
from typing import Any

from bridge.annotate.memory import scopes
from bridge.capture.session.profile import Session, profile
from bridge.compat.calls import RecordedEvents, merge_recorded, recorded_events, write_json
from bridge.compat.mxnet.aggregate import SORT_KEYS, WRITERS, blocks
from bridge.compat.mxnet.custom_op import split_custom_ops
from bridge.compat.mxnet.objects import (
    Counter,
    Domain,
    Event,
    Frame,
    Marker,
    MXNetError,
    Task,
    scope,
)
from bridge.compat.mxnet.timeline import trace
from bridge.knowledge.suggestions import unknown_name

# -- Options


MODE_BITS = {
    "profile_symbolic": 1,
    "profile_imperative": 2,
    "profile_api": 4,
    "profile_memory": 8,
}
DEFAULT_MODE = "13"
RECORDING_SUFFIX = ".jsonl"  # of the recording with continuous_dump


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

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Config:
        """Return the configuration with these options; raises MXNetError for invalid ones."""
        names = [option.name for option in fields(cls)]
        for name in options:
            if name not in names:
                message = unknown_name("option", name, names, "docs/migration.md")
                raise MXNetError(f"set_config: {message}")
        config = cls(**options)
        if not config.dump_period > 0:
            raise MXNetError(f"set_config: dump_period must be above 0, not {config.dump_period!r}")
        return config

    @classmethod
    def of_mode(cls, mode: str) -> Config:
        """Return the configuration of MXNET_PROFILER_MODE, a sum of `MODE_BITS`; warns of others."""
        if not (mode.isascii() and mode.isdecimal() and int(mode) <= sum(MODE_BITS.values())):
            warnings.warn(
                f"bridge: MXNET_PROFILER_MODE={mode} is no number from 0 to 15", stacklevel=2
            )
            mode = DEFAULT_MODE
        kinds: dict[str, Any] = {n: bool(int(mode) & bit) for n, bit in MODE_BITS.items()}
        return cls(**kinds)

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
            "ops": ops,
            "with_modules": False,
            "api_calls": self.profile_all or self.profile_api,
            "profile_memory": self.memory,
            "device": "auto",
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
    "MXNetError",
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
    "set_kvstore_handle",
    "set_state",
]

STATES = {"stop": False, "run": True}


class _State:
    """The configuration of the process's profiler, and its sessions."""

    def __init__(self) -> None:
        self.config = Config()
        self.sessions: list[Session] = []
        self.first = 0  # of the sessions that belong to the file
        self.finished = False  # whether the file was finished
        self.running = False
        self.since = 0  # ns: time of the last reset of aggregates
        self._read: dict[Session, RecordedEvents] = {}  # of the sessions that have ended

    def configure(self, config: Config) -> None:
        """Configure the next run; after a finished dump, another file gets only what follows."""
        if self.finished and config.filename != self.config.filename:
            self.first, self.finished = len(self.sessions), False
        self.config = config

    def recorded(self, first: int = 0) -> RecordedEvents:
        """Return the events of the sessions from a number on."""
        parts = [self._events(session) for session in self.sessions[first:]]
        return split_custom_ops(merge_recorded(parts))

    def _events(self, session: Session) -> RecordedEvents:
        if session in self._read:
            return self._read[session]
        events = recorded_events(session)
        if session is not self.sessions[-1] or not self.running:
            self._read[session] = events
        return events

    def begin(self) -> None:
        """Record into a new session; a session with a file has its own file."""
        options = self.config.session
        number = len(self.sessions) - self.first + 1
        if number > 1 and "path" in options:
            path = options["path"]
            options["path"] = path.with_stem(f"{path.stem}-{number}")
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
    """Configure the next run of the profiler; what is not given has its default.

    Raises MXNetError for an option that `Config` lacks.
    """
    kwargs.pop("kvstore_handle", None)
    _warn_of_process(kwargs.pop("profile_process", "worker"))
    _state.configure(Config.of(kwargs))


def set_kvstore_handle(handle: Any) -> None:
    """Accept the handle of a store of parameters, whose servers cannot be profiled from here."""
    del handle


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
    """Write all events of the file's runs to the configured file, replacing it; if finished, stop.

    Raises MXNetError if the profiler has not run since the file was configured.
    """
    _warn_of_process(profile_process)
    if len(_state.sessions) <= _state.first:
        raise MXNetError("Profiler hasn't been run. Config and start profiler first")
    if finished:
        _state.end()
        _state.finished = True
    write_json(_state.config.filename, trace(_state.recorded(_state.first)))
    if _state.config.memory:
        scopes.snapshot_of_process(_state.config.gpu_memory_profile_filename_prefix)


def dumps(
    reset: bool = False,
    format: str = "table",  # noqa: A002 - MXNet's name
    sort_by: str = "total",
    ascending: bool = False,
) -> str:
    """Return the aggregates as text, "" unless aggregate_stats is on; ``reset`` begins anew.

    Formats are "table" and "json"; ``sort_by`` is total, avg, min, max or count. Raises
    AssertionError for others, as MXNet does.
    """
    for name, value, known in (("format", format, WRITERS), ("sort_by", sort_by, SORT_KEYS)):
        if value not in known:
            raise AssertionError(f"dumps: {unknown_name(name, value, known)}")
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
    _state.configure(Config.of_mode(os.environ.get("MXNET_PROFILER_MODE") or DEFAULT_MODE))
    set_state("run")
