"""One object per call, as PyTorch's profiler gives them, and their averages.

The invariant: times are µs, `self` times add up to the time of the outermost calls of each thread, and
what is not recorded on the host (device times, memory) is 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple

from bridge.compat.calls import Call, Happened, outer_first
from bridge.compat.torch_profiler.user import USER

STEP, STEPS = "ProfilerStep#", "ProfilerStep*"


class Interval(NamedTuple):
    """From when to when, in µs."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Return its length."""
        return self.end - self.start


class Measured:
    """What calls and averages have in common; all that a table can be sorted by."""

    key: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    input_shapes: Any
    flops: float
    # Of what the host does not know, or this profiler does not record:
    device_time = device_time_total = self_device_time_total = 0.0
    cpu_memory_usage = self_cpu_memory_usage = 0
    device_memory_usage = self_device_memory_usage = 0
    node_id = -1
    overload_name = ""
    is_async = is_remote = is_legacy = False
    use_device = None
    stack: ClassVar[list[str]] = []

    @property
    def cpu_time(self) -> float:
        """The mean of a call, in µs."""
        return self.cpu_time_total / self.count if self.count else 0.0


class FunctionEvent(Measured):
    """One call; of a call in slices each slice, of which the first counts."""

    def __init__(self, number: int, call: Call, zero: int) -> None:
        self.id = number
        self.key = self.name = self.trace_name = call.name
        self.call = call
        self.thread, self.process = call.thread, call.process
        self.time_range = Interval((call.start - zero) / 1000, (call.end - zero) / 1000)
        self.is_user_annotation = is_annotation(call)
        self.cpu_parent: FunctionEvent | None = None
        self.cpu_children: list[FunctionEvent] = []
        self.input_shapes = [shape or [] for shape in call.details.get("shapes", ())]
        self.flops = call.details.get("flops") or 0
        self.count = 0 if call.again else 1
        self.sequence_nr = -1
        self.cpu_time_total = (call.end - call.start) / 1000

    @property
    def self_cpu_time_total(self) -> float:  # type: ignore[override]
        """The time that no call in it took, in µs."""
        inner = sum(child.call.end - child.call.start for child in self.cpu_children)
        return (self.call.end - self.call.start - inner) / 1000

    def __repr__(self) -> str:
        return f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_total:.3f}us thread={self.thread}>"


class FunctionEventAvg(Measured):
    """All calls of one key."""

    def __init__(self, first: FunctionEvent, key: str, *, shapes: bool) -> None:
        self.key = key
        self.is_user_annotation = first.is_user_annotation
        self.input_shapes = first.input_shapes if shapes else ""
        self.cpu_parent: FunctionEvent | None = first.cpu_parent
        self.cpu_children: list[FunctionEvent] = []
        self.count = 0
        self.flops = self.cpu_time_total = self.self_cpu_time_total = 0.0

    def add(self, event: FunctionEvent) -> None:
        """Count one more."""
        self.count += event.count
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total
        self.flops += event.flops
        self.cpu_children += event.cpu_children

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} count={self.count} cpu_time={self.cpu_time:.3f}us>"
        )


def events_of(recorded: Happened) -> list[FunctionEvent]:
    """Return all calls that have ended, those on a thread's stack as a tree; times from the first event."""
    calls = [call for call in recorded.calls if not (call.open or call.phase)]
    calls.sort(key=outer_first)
    events = [FunctionEvent(n, call, recorded.first) for n, call in enumerate(calls)]
    _nest(events)
    return events


def averages(events: Iterable[FunctionEvent], *, shapes: bool) -> list[FunctionEventAvg]:
    """Return one row per name, of steps one for all, in the order of their first calls."""
    rows: dict[tuple[str, bool, str], FunctionEventAvg] = {}
    for event in events:
        name = STEPS if event.name.startswith(STEP) else event.name
        key = (name, event.is_user_annotation, str(event.input_shapes) if shapes else "")
        if key not in rows:
            rows[key] = FunctionEventAvg(event, name, shapes=shapes)
        rows[key].add(event)
    return list(rows.values())


def is_annotation(call: Call) -> bool:
    """Tell whether a call is the program's own range, and no op of the dispatcher's."""
    return call.category == USER or "::" not in call.name


def metadata_of(recorded: Happened) -> Mapping[str, Any]:
    """Return what launchers said of this process's place, as PyTorch names it."""
    return {
        name: recorded.metadata[name]
        for name in ("rank", "world_size")
        if name in recorded.metadata
    }


def _nest(events: Iterable[FunctionEvent]) -> None:
    """Tell each call what it is in; calls that overlap only in part are in none of each other."""
    stacks: dict[tuple[int, int], list[FunctionEvent]] = {}
    for event in events:
        above = stacks.setdefault((event.process, event.thread), [])
        while above and not _holds(above[-1].call, event.call):
            above.pop()
        if above:
            event.cpu_parent = above[-1]
            above[-1].cpu_children.append(event)
        above.append(event)


def _holds(outer: Call, inner: Call) -> bool:
    return inner.start < outer.end and inner.end <= outer.end
