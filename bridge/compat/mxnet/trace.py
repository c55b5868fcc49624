"""The timeline that MXNet's profiler writes: a viewer's process for the operators and one for each domain.

The invariant: pid and tid are numbers that a viewer can hold, and every beginning has its end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bridge.compat.calls import Happened, Instant, begun_and_ended, finite, laned
from bridge.compat.mxnet.aggregate import domain_of
from bridge.compat.mxnet.objects import SCOPES

OPERATORS, HOST = "operator", "cpu/0"
DOMAINS = 1000  # the numbers of their processes begin here, beyond those of devices
LANES = 1 << 24  # beyond the numbers of threads
VIEWERS = dict(zip(SCOPES, "gptpp", strict=True))  # how far a viewer draws a mark
Event = dict[str, Any]


class Processes:
    """Numbers the processes of a viewer: the host's operators first, then each domain as it comes."""

    def __init__(self) -> None:
        self.numbers = {OPERATORS: 0}

    def of(self, domain: str) -> int:
        """Return the number of a domain."""
        return self.numbers.setdefault(domain, DOMAINS + len(self.numbers))

    def names(self) -> Iterator[Event]:
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


def _ranges(recorded: Happened, processes: Processes) -> Iterator[Event]:
    ranges = (call for call in recorded.calls if not call.phase)
    tracks = laned(ranges, lambda call: (domain_of(call), call.thread))
    for ((domain, thread), lane), calls in tracks.items():
        place = {"pid": processes.of(domain), "tid": thread + lane * LANES, "cat": domain}
        for phase, call, time in begun_and_ended(calls):
            yield {"name": call.name, "ph": phase, **place, "ts": (time - recorded.first) / 1000}


def _phases(recorded: Happened, processes: Processes) -> Iterator[Event]:
    phases = [call for call in recorded.calls if call.phase]
    for number, call in enumerate(phases):
        own = {"name": call.name, "id": number, "cat": domain_of(call), "tid": call.thread}
        own["pid"] = processes.of(domain_of(call))
        yield {**own, "ph": "b", "ts": (call.start - recorded.first) / 1000}
        yield {**own, "ph": "e", "ts": (call.end - recorded.first) / 1000}


def _sayable(instant: Instant) -> bool:
    return instant.value is None or finite(instant.value)


def _instant(instant: Instant, processes: Processes, zero: int) -> Event:
    domain = instant.domain or instant.category or OPERATORS
    event: Event = {"name": instant.name, "cat": domain, "pid": processes.of(domain)}
    event |= {"tid": instant.thread, "ts": (instant.time - zero) / 1000}
    if instant.value is None:
        return event | {"ph": "i", "s": VIEWERS.get(instant.category, "p")}
    return event | {"ph": "C", "args": {instant.name: instant.value}}
