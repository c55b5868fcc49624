"""The timeline that MegEngine's profiler writes, and several of them on one clock.

The invariant: ts are µs from the first event of a file; its ``metadata.localTime`` is when that was, in
µs of the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from os import getpid
from pathlib import Path
from typing import Any

from bridge.compat.calls import Call, Happened, Instant
from bridge.compat.files import finite
from bridge.compat.tracks import begun_and_ended, laned

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
