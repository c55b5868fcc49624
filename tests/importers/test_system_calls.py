"""Calls of the operating system and context switches, as an export has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from join.plain_writer import write

from bridge.importers import load

PID = 7 << 24
THREAD, OTHER = PID | 7, PID | 8
STRINGS = [{"id": 1, "value": "read"}, {"id": 2, "value": "OS runtime libraries profiling started"}]
LAUNCH = {"start": 10, "end": 20, "globalTid": THREAD, "correlationId": 1, "nameId": 1}


@pytest.fixture
def loaded(tmp_path: Path):
    """Write an export with an API call and these tables, and load it."""
    tables = {"StringIds": STRINGS, "CUPTI_ACTIVITY_KIND_RUNTIME": [LAUNCH]}
    return lambda more, **options: load(write(tmp_path / "r.sqlite", {**tables, **more}), **options)


def call(start: int, end: int | None, event: int = 27, name: int = 1) -> dict[str, int | None]:
    return {"start": start, "end": end, "globalTid": OTHER, "nameId": name, "eventClass": event}


def test_the_begin_and_the_end_of_tracing_are_no_calls(loaded) -> None:
    rows = [call(3, 3, 31, 2), call(4, 9), call(9, None), call(11, 11, 32, 2)]
    calls = loaded({"OSRT_API": rows}).system_calls.to_pandas()
    assert calls[["start", "end", "thread", "process"]].to_numpy().tolist() == [
        [4, 9, OTHER, PID],
        [9, 8, OTHER, PID],  # it never ended
    ]
    assert calls["name"].tolist() == ["read", "read"]


def test_older_exports_do_not_tell_what_an_event_is(loaded) -> None:
    rows = [{k: v for k, v in call(4, 9).items() if k != "eventClass"}]
    assert len(loaded({"OSRT_API": rows}).system_calls) == 1


def switch(time: int, on_cpu: int, thread: int) -> dict[str, int]:
    return {"start": time, "cpu": 3, "isSchedIn": on_cpu, "globalTid": thread}


def test_context_switches_are_those_of_threads_with_work(loaded) -> None:
    rows = [switch(1, 1, THREAD), switch(2, 1, OTHER), switch(5, 0, THREAD), switch(6, 0, OTHER)]
    switches = loaded({"SCHED_EVENTS": rows}).context_switches.to_pandas()
    assert switches[["time", "cpu", "thread", "process"]].to_numpy().tolist() == [
        [1, 3, THREAD, PID],
        [5, 3, THREAD, PID],
    ]
    assert switches["on_cpu"].tolist() == [True, False]
    assert not len(loaded({"SCHED_EVENTS": rows}, details=False).context_switches)
