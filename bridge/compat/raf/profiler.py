"""The calls of RAF's profiler: start and stop at a level, get or dump what happened until it is cleared.

The invariant: what one `start` recorded is kept when the next begins; only `clear` forgets it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import monotonic_ns
from typing import Any

from bridge.capture.session.profile import Profile, profile
from bridge.compat.calls import (
    Call,
    Happened,
    begun_and_ended,
    happened,
    laned,
    together,
    write_json,
)

OPERATOR = "ComputationOperator"  # the category of what has none
HIGHEST = 2
_sessions: list[Profile] = []
_zero: list[int] = []  # when the first of them began, ns


def start(prof_level: int = 1) -> None:
    """Record from now on: at level 1 ops, at 2 what the host's runtime does as well, at 0 nothing.

    While it records already, the level changes. Raises RuntimeError while another session runs.
    """
    stop()
    level = min(int(prof_level), HIGHEST)
    if level <= 0:
        return
    session = profile(level=level, record_shapes=True)
    session.start()
    _sessions.append(session)
    _zero[:] = _zero or [monotonic_ns()]


def stop() -> None:
    """Record no more; what was recorded is kept."""
    if _sessions:
        _sessions[-1].stop()


def clear() -> None:
    """Forget what was recorded; recording goes on, if it does."""
    running = [one for one in _sessions if one.is_profiling]
    for one in running:
        one.clear()
    _sessions[:] = running
    _zero[:] = [monotonic_ns()] if running else []


def get() -> dict[str, Any]:
    """Return what was recorded, as Chrome's trace format: a pair of B and E for each call, ts in whole µs."""
    recorded = together(map(happened, _sessions))
    events = sorted(_events(recorded), key=lambda event: event["ts"])
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def dump(filename: str = "profile.json") -> None:
    """Write what `get` returns to a file, replacing it."""
    write_json(filename, get())


def get_duration(data: Mapping[str, Any], event: str, category: str | None = None) -> float:
    """Return how long an event took, in ms: the one of this name, and of this category if one is given.

    Raises AssertionError if there are several, ValueError if there is none.
    """
    times: dict[str, int] = {}
    for one in data["traceEvents"]:
        if one["name"] == event and category in {None, one["cat"]}:
            if one["ph"] in times:
                raise AssertionError(f"event {event!r} is there more than once")
            times[one["ph"]] = one["ts"]
    if not {"B", "E"} <= times.keys():
        raise ValueError(f"event {event!r} is not there")
    return (times["E"] - times["B"]) / 1000


def _events(recorded: Happened) -> Iterator[dict[str, Any]]:
    zero = min([*_zero, recorded.first])
    for (category, lane), calls in laned(recorded.calls, _category).items():
        track = f"{category} ({lane + 1})" if lane else category
        for phase, call, time in begun_and_ended(calls):
            yield {
                "name": call.name,
                "cat": category,
                "ph": phase,
                "ts": (time - zero) // 1000,
                "args": {"args_string": arguments(call)},
                "pid": call.process,
                "tid": track,
            }


def _category(call: Call) -> str:
    return call.category or call.domain or OPERATOR


def arguments(call: Call) -> str:
    """Write what a call was given: types such as T<2x3xfloat32>, then arguments by name."""
    shapes, dtypes = call.details.get("shapes", ()), call.details.get("dtypes", ())
    types = [_type(*one) for one in zip(shapes, dtypes, strict=False) if one[0] is not None]
    named = [f"{name}={value}" for name, value in call.details.get("args", {}).items()]
    return ";".join([*types, *named])


def _type(shape: list[int], dtype: str) -> str:
    return f"T<{'x'.join([*map(str, shape), dtype])}>"
