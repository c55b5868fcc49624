"""The timeline that MXNet's profiler writes: Chrome's trace format.

A process for the operators, one per domain.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bridge.compat.calls import (
    Instant,
    RecordedEvents,
    assign_lanes,
    begin_end_events,
    is_finite,
)
from bridge.compat.mxnet.aggregate import OPERATORS, domain_of
from bridge.compat.mxnet.objects import SCOPES

HOST = "cpu/0"
FIRST_GPU_PID = 1
FIRST_DOMAIN_PID = 1000  # above the numbers of devices
LANES = 1 << 24  # above the numbers of threads
MARK_SCOPES = dict(zip(SCOPES, "gptpp", strict=True))  # of Chrome's trace format
TraceEvent = dict[str, Any]


class Processes:
    """Numbers the processes of a trace: the operators of the host first, then the domains."""

    def __init__(self) -> None:
        self.numbers = {OPERATORS: 0}
        self.gpus: dict[int, int] = {}

    def of(self, domain: str) -> int:
        """Return the number of a domain."""
        return self.numbers.setdefault(domain, FIRST_DOMAIN_PID + len(self.numbers))

    def of_gpu(self, device: int) -> int:
        """Return the number of a GPU."""
        self.gpus[device] = FIRST_GPU_PID + device
        return FIRST_GPU_PID + device

    def names(self) -> Iterator[TraceEvent]:
        """Yield the events that name the processes."""
        for domain, pid in self.numbers.items():
            args = {"name": HOST if domain == OPERATORS else domain}
            yield {"name": "process_name", "ph": "M", "pid": pid, "args": args}
        for device, pid in self.gpus.items():
            args = {"name": f"gpu/{device}"}
            yield {"name": "process_name", "ph": "M", "pid": pid, "args": args}


def trace(recorded: RecordedEvents) -> dict[str, Any]:
    """Return the events as a trace; ts in µs from the first event."""
    processes = Processes()
    events = [
        *_ranges(recorded, processes),
        *_phases(recorded, processes),
        *_kernels(recorded, processes),
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


def _kernels(recorded: RecordedEvents, processes: Processes) -> Iterator[TraceEvent]:
    """Yield the events of GPU work, in the processes that MXNet names gpu/0, gpu/1 …."""
    for activity in recorded.activities:
        place = {"pid": processes.of_gpu(activity.device), "tid": activity.stream, "cat": OPERATORS}
        for phase, time in (("B", activity.start), ("E", activity.end)):
            ts = (time - recorded.first) / 1000
            yield {"name": activity.name, "ph": phase, **place, "ts": ts}


def _is_representable(instant: Instant) -> bool:
    return instant.value is None or is_finite(instant.value)


def _instant(instant: Instant, processes: Processes, zero: int) -> TraceEvent:
    domain = instant_domain(instant)
    event: TraceEvent = {"name": instant.name, "cat": domain, "pid": processes.of(domain)}
    event |= {"tid": instant.thread, "ts": (instant.time - zero) / 1000}
    if instant.value is None:
        return event | {"ph": "i", "s": MARK_SCOPES.get(instant.category, "p")}
    return event | {"ph": "C", "args": {instant.name: instant.value}}


MARKERS = "instant_marker"  # MXNet's suffix of the domain of markers


def instant_domain(instant: Instant) -> str:
    """Return the domain of a sample of a counter, or that of a marker with its suffix."""
    if instant.value is None and instant.domain and instant.category in SCOPES:
        return f"{instant.domain},{MARKERS}"
    return instant.domain or instant.category or OPERATORS
