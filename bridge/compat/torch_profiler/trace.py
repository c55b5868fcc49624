"""The timeline that PyTorch's profiler writes: one X per call, ts in µs from `baseTimeNanoseconds`.

The invariant: calls of a track nest; what the program said of itself stands beside the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from os import getpid
from pathlib import Path
from typing import Any

from bridge.compat.calls import Call, Happened, Instant
from bridge.compat.files import finite, write_json
from bridge.compat.torch_profiler.events import FunctionEvent, is_annotation, metadata_of
from bridge.compat.tracks import laned

LANES = 1 << 24  # beyond the numbers of threads
OP, USER, INSTANT = "cpu_op", "user_annotation", "cpu_instant_event"
Event = dict[str, Any]


def export(
    path: str | Path,
    events: Iterable[FunctionEvent],
    recorded: Happened,
    about: Mapping[str, Any],
) -> None:
    """Write a timeline of calls, phases, marks and counters; ``about`` goes to its top."""
    numbers = {id(event.call): event.id for event in events}
    places = metadata_of(recorded)
    head = {"schemaVersion": 1, "deviceProperties": []} | dict(about)
    if places:
        head["distributedInfo"] = dict(places)
    tail = {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": recorded.epoch_ns + recorded.first,
        "traceName": str(path),
    }
    write_json(path, head | {"traceEvents": list(_events(recorded, numbers))} | tail)


def _events(recorded: Happened, numbers: Mapping[int, int]) -> Iterator[Event]:
    tracks = laned(recorded.calls, lambda call: call.thread)
    yield from _names(recorded, tracks)
    for (thread, lane), calls in tracks.items():
        for call in calls:
            yield _slice(call, thread + lane * LANES, recorded.first, numbers.get(id(call)))
    for one in recorded.instants:
        if one.value is None or finite(one.value):
            yield _instant(one, recorded.first)
    end = (recorded.last - recorded.first) / 1000
    yield {"ph": "i", "s": "g", "name": "Record Window End", "pid": getpid(), "tid": 0, "ts": end}


def _names(recorded: Happened, tracks: Iterable[tuple[int, int]]) -> Iterator[Event]:
    process = {"ph": "M", "pid": getpid(), "ts": 0.0}
    program = recorded.metadata.get("program") or "python"
    yield {**process, "tid": 0, "name": "process_name", "args": {"name": program}}
    yield {**process, "tid": 0, "name": "process_labels", "args": {"labels": "CPU"}}
    yield {**process, "tid": 0, "name": "process_sort_index", "args": {"sort_index": getpid()}}
    for thread, lane in tracks:
        name = f"thread {thread} ({recorded.threads.get(thread, '')})"
        known = f"{name} ({lane + 1})" if lane else name
        tid = thread + lane * LANES
        yield {**process, "tid": tid, "name": "thread_name", "args": {"name": known}}
        yield {**process, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _slice(call: Call, tid: int, zero: int, number: int | None) -> Event:
    event: Event = {"ph": "X", "cat": USER if is_annotation(call) else OP, "name": call.name}
    event |= {"pid": call.process, "tid": tid, "ts": (call.start - zero) / 1000}
    return event | {"dur": (call.end - call.start) / 1000, "args": _arguments(call, number)}


def _arguments(call: Call, number: int | None) -> Event:
    found: Event = {} if number is None else {"External id": number + 1, "Ev Idx": number}
    details = call.details
    if "shapes" in details:
        found["Input Dims"] = [shape or [] for shape in details["shapes"]]
        found["Input type"] = list(details.get("dtypes", ()))
    if "args" in details:
        found["Concrete Inputs"] = [str(value) for value in details["args"].values()]
    return found


def _instant(instant: Instant, zero: int) -> Event:
    event: Event = {"name": instant.name, "pid": getpid(), "tid": instant.thread}
    event["ts"] = (instant.time - zero) / 1000
    if instant.value is None:
        return event | {"ph": "i", "s": "t", "cat": INSTANT}
    return event | {"ph": "C", "args": {instant.name: instant.value}}
