"""The timeline of MegEngine's profiler: Chrome's trace format, with the names and curves of MegEngine."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import getpid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.compat.calls import (
    Activity,
    Call,
    Instant,
    RecordedEvents,
    assign_lanes,
    begin_end_events,
    is_finite,
    outer_first,
)

if TYPE_CHECKING:
    from bridge.frameworks.torch.tensors import OpStack, TensorMemory

Event = dict[str, Any]
ALIVE = "nr_alive_tensor"
# Counters of sampled memory, and the ends of their names in MegEngine.
HOST_MEMORY, GPU_MEMORY = "host resident", " allocated"
STOP_STEP = "StopStep"


def timeline(
    recorded: RecordedEvents,
    memory: Sequence[TensorMemory] = (),
    stacks: Sequence[OpStack] = (),
) -> dict[str, Any]:
    """Return the events in Chrome's trace format: B and E of calls, i of marks, C of counters.

    ``memory`` gives the curve of alive tensors, ``stacks`` the frames of ops.
    """
    stack_of = stacks_of_calls(recorded.calls, stacks)
    tracks = assign_lanes(recorded.calls, lambda call: call.thread)
    tid = {track: number for number, track in enumerate(tracks)}
    for instant in recorded.instants:
        tid.setdefault((instant.thread, 0), len(tid))
    events = [
        *(
            event
            for track, calls in tracks.items()
            for event in _calls(calls, tid[track], recorded.first, stack_of)
        ),
        *(
            _instant(instant, tid[instant.thread, 0], recorded.first)
            for instant in _representable(recorded)
        ),
        *_alive(memory, recorded.first, recorded.last),
        *(event for a in recorded.activities for event in _kernel(a, recorded.first, len(tid))),
    ]
    events.sort(key=lambda event: event["ts"])
    names = [_thread_name(number, *track, recorded.threads) for track, number in tid.items()]
    names += _stream_names(recorded, len(tid))
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


def _calls(
    calls: list[Call], tid: int, zero: int, stacks: Mapping[int, Sequence[str]]
) -> Iterator[Event]:
    for phase, call, time in begin_end_events(calls):
        event = {"name": call.name, "ph": phase, "ts": (time - zero) / 1000}
        event |= {"pid": call.process, "tid": tid, "cat": call.category or "Op"}
        if phase == "B":
            event["args"] = _arguments(call)
            if id(call) in stacks:
                event["stack"] = list(stacks[id(call)])
        yield event


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
    name = _curve(instant.name)
    return event | {"name": name, "ph": "C", "args": {name: instant.value}}


def _curve(name: str) -> str:
    """Return MegEngine's name of a curve of memory, any other name unchanged."""
    if name == HOST_MEMORY:
        return "cpu0_alloc_mem"
    if name.startswith("cuda:") and name.endswith(GPU_MEMORY):
        return f"gpu{name.removeprefix('cuda:').removesuffix(GPU_MEMORY)}_alloc_mem"
    return name


def _alive(memory: Sequence[TensorMemory], first: int, last: int) -> Iterator[Event]:
    """Yield the curve of alive tensors; tensors that share memory count once."""
    changes = [(max(m.start, first), 1) for m in memory]
    changes += [(m.end, -1) for m in memory if m.end >= 0]
    count = 0
    for time, change in sorted(changes):
        count += change
        if time <= last:
            event = {
                "name": ALIVE,
                "ph": "C",
                "ts": (time - first) / 1000,
                "pid": getpid(),
                "tid": 0,
            }
            yield event | {"args": {"value": count}}


def stacks_of_calls(calls: Iterable[Call], stacks: Sequence[OpStack]) -> dict[int, Sequence[str]]:
    """Return the frames of calls by the identity of the call: each stack is of the innermost one."""
    result: dict[int, Sequence[str]] = {}
    if not stacks:
        return result
    by_thread: dict[int, list[Call]] = {}
    for call in sorted(calls, key=outer_first):
        by_thread.setdefault(call.thread, []).append(call)
    starts = {thread: [call.start for call in own] for thread, own in by_thread.items()}
    for entry in stacks:
        own = by_thread.get(entry.thread, [])
        at = bisect_right(starts.get(entry.thread, []), entry.time) - 1
        if at >= 0 and own[at].end >= entry.time:
            result[id(own[at])] = entry.frames
    return result


def _kernel(activity: Activity, zero: int, first_tid: int) -> Iterator[Event]:
    """Yield the events of GPU work, whose track is that of its stream."""
    for phase, time in (("B", activity.start), ("E", activity.end)):
        yield {
            "name": activity.name,
            "cat": "Kernel",
            "ph": phase,
            "ts": (time - zero) / 1000,
            "pid": getpid(),
            "tid": first_tid + activity.stream,
            "args": {"__device__": f"gpu{activity.device}"},
        }


def _stream_names(recorded: RecordedEvents, first_tid: int) -> list[Event]:
    """Return the names of the tracks of streams."""
    streams = dict.fromkeys((a.device, a.stream) for a in recorded.activities)
    return [
        {
            "name": "thread_name",
            "ph": "M",
            "pid": getpid(),
            "tid": first_tid + stream,
            "args": {"name": f"gpu{device}:{stream}"},
        }
        for device, stream in streams
    ]


def _thread_name(tid: int, thread: int, lane: int, names: Mapping[int, str]) -> Event:
    name = names.get(thread) or f"thread {thread}"
    label = f"{name} ({lane + 1})" if lane else name
    return {"name": "thread_name", "ph": "M", "pid": getpid(), "tid": tid, "args": {"name": label}}
