"""RAF's profiler: start and stop at a level, get or dump the events until they are cleared.

A later `start` keeps what was recorded before; only `clear` deletes it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from bridge.capture.session.profile import Session, profile
from bridge.compat.calls import (
    Call,
    RecordedEvents,
    assign_lanes,
    begin_end_events,
    merge_recorded,
    recorded_events,
    write_json,
)

OPERATOR = "ComputationOperator"  # of calls without a category
MAX_LEVEL = 2
_sessions: list[Session] = []


def start(prof_level: int = 1) -> None:
    """Start to record: ops at level 1, also calls of PyTorch's Python API at 2, nothing at 0.

    If it is recording already, the level changes. Raises RuntimeError while another session runs.
    """
    stop()
    level = min(int(prof_level), MAX_LEVEL)
    if level <= 0:
        return
    session = profile(level=level, record_shapes=True, with_modules=False, device="auto")
    session.start()
    _sessions.append(session)


def stop() -> None:
    """Stop to record; keep what was recorded."""
    if _sessions:
        _sessions[-1].stop()


def clear() -> None:
    """Delete what was recorded; recording continues if it is on."""
    running = [session for session in _sessions if session.is_profiling]
    for session in running:
        session.clear()
    _sessions[:] = running


def get() -> dict[str, Any]:
    """Return the recorded events in Chrome's trace format: B and E per call, ts in whole µs.

    Times count from the Unix epoch, as RAF's do.
    """
    recorded = merge_recorded(map(recorded_events, _sessions))
    events = sorted([*_events(recorded), *_kernels(recorded)], key=lambda event: event["ts"])
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def dump(filename: str = "profile.json") -> None:
    """Write the result of `get` to a file, replacing it."""
    write_json(filename, get())


def get_duration(data: Mapping[str, Any], event: str, category: str | None = None) -> float:
    """Return the duration in ms of the event with this name, and category if given.

    Raises AssertionError if there are several, ValueError if there is none.
    """
    times: dict[str, int] = {}
    for record in data["traceEvents"]:
        if record["name"] == event and category in {None, record["cat"]}:
            if record["ph"] in times:
                raise AssertionError(f"event {event!r} occurs more than once")
            times[record["ph"]] = record["ts"]
    if not {"B", "E"} <= times.keys():
        raise ValueError(f"event {event!r} does not occur")
    return (times["E"] - times["B"]) / 1000


def _events(recorded: RecordedEvents) -> Iterator[dict[str, Any]]:
    for (category, lane), calls in assign_lanes(recorded.calls, _category).items():
        track = f"{category} ({lane + 1})" if lane else category
        for phase, call, time in begin_end_events(calls):
            yield {
                "name": call.name,
                "cat": category,
                "ph": phase,
                "ts": (time + recorded.epoch_ns) // 1000,
                "args": {"args_string": argument_text(call)},
                "pid": call.process,
                "tid": track,
            }


def _kernels(recorded: RecordedEvents) -> Iterator[dict[str, Any]]:
    """Yield the events of GPU work, on a track per stream."""
    pid = os.getpid()
    for activity in recorded.activities:
        track = f"Stream {activity.stream}"
        for phase, time in (("B", activity.start), ("E", activity.end)):
            yield {
                "name": activity.name,
                "cat": track,
                "ph": phase,
                "ts": (time + recorded.epoch_ns) // 1000,
                "args": {"args_string": ""},
                "pid": pid,
                "tid": track,
            }


def _category(call: Call) -> str:
    return call.category or call.domain or OPERATOR


def argument_text(call: Call) -> str:
    """Return the types of inputs and outputs as RAF writes them, then other arguments by name.

    An example is ``T<2x3xf32>,T<3x4xf32>,|T<2x4xf32>;axis=1``.
    """
    inputs, outputs = (_types(call.details, kind) for kind in ("", "output_"))
    types = [f"{''.join(f'{t},' for t in inputs)}|{','.join(outputs)}"] if inputs or outputs else []
    named = [f"{name}={value}" for name, value in call.details.get("args", {}).items()]
    return ";".join([*types, *named])


def _types(details: Mapping[str, Any], kind: str) -> list[str]:
    shapes, dtypes = details.get(f"{kind}shapes", ()), details.get(f"{kind}dtypes", ())
    return [_type(s, d) for s, d in zip(shapes, dtypes, strict=False) if s is not None]


DTYPE = re.compile(r"([a-z])[a-z]*?(\d+)")  # float32: f32


def _type(shape: list[int], dtype: str) -> str:
    return f"T<{'x'.join([*map(str, shape), _short_name(dtype)])}>"


def _short_name(dtype: str) -> str:
    """Return the short name of a dtype: f32, i64, u8, bf16; bool keeps its name."""
    if dtype.startswith("bfloat"):
        return dtype.replace("bfloat", "bf")
    match = DTYPE.fullmatch(dtype)
    return dtype if match is None else "".join(match.groups())
