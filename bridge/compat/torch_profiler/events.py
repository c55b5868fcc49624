"""One object per call, as PyTorch's profiler gives them, and their averages.

The invariant: times are µs, `self` times add up to the time of the outermost calls of each thread, and
what is not recorded on the host (device times, memory) is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import getpid
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from bridge.analyze.tables.average_text import Cut, table
from bridge.annotate import nvtx_op
from bridge.compat.calls import (
    Call,
    Happened,
    Instant,
    finite,
    laned,
    outer_first,
    write_json,
)

# -- Ranges that a program names itself


F = TypeVar("F", bound=Callable[..., Any])

USER = "user_annotation"


class record_function:  # noqa: N801 - theirs
    """Surround a block, or decorate a function; ``args`` is a text that is kept with the call."""

    def __init__(self, name: str, args: str | None = None) -> None:
        self.name, self.args = name, args
        self._op = nvtx_op(name, category=USER, args={} if args is None else {"args": args})
        self._entered = 0

    def __enter__(self) -> Self:
        self._entered += 1
        self._op.__enter__()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if not self._entered:
            raise AssertionError("record_function was left, but not entered")
        self._entered -= 1
        self._op.__exit__(kind, error, trace)

    def __call__(self, function: F) -> F:
        """Decorate a function, a coroutine function, a generator function."""
        return nvtx_op(self.name, category=USER)(function)


# -- One object per call, as PyTorch's profiler gives them, and their averages


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


# -- Lists of calls or averages, with the methods that PyTorch's have


One = TypeVar("One", bound=Measured)
TOTAL = "Total"


class EventList(list[One]):
    """Calls in the order of their begin, or averages."""

    def __init__(
        self,
        events: Iterable[One] = (),
        *,
        with_flops: bool = False,
        recorded: Happened | None = None,
    ) -> None:
        super().__init__(events)
        self._with_flops = with_flops
        self._recorded = recorded or Happened()

    @property
    def self_cpu_time_total(self) -> float:
        """The sum of the self times, in µs."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,  # noqa: ARG002 - no stacks are recorded: all are alike
        group_by_overload_name: bool = False,  # noqa: ARG002 - nor are overloads
    ) -> EventList[FunctionEventAvg]:
        """Return one row per name, or per name and shapes."""
        calls: Any = self
        found = averages(calls, shapes=group_by_input_shapes)
        return EventList(found, with_flops=self._with_flops, recorded=self._recorded)

    def total_average(self) -> FunctionEventAvg:
        """Return one row of all; self times alone make sense in it."""
        calls: Iterable[Any] = self
        total: FunctionEventAvg | None = None
        for event in calls:
            total = total or FunctionEventAvg(event, TOTAL, shapes=False)
            total.add(event)
        if total is None:
            raise ValueError("there is no total of nothing")
        return total

    def table(  # noqa: PLR0913, PLR0917 - theirs
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int | None = 75,
        max_name_column_width: int | None = 55,
        max_shapes_column_width: int | None = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """Return a table, largest first by ``sort_by``; a limit of -1 shows all.

        Raises AttributeError for a key that there is not.
        """
        del max_src_column_width  # of a column that there is not
        cut = Cut(row_limit, max_name_column_width, max_shapes_column_width, top_level_events_only)
        return table(self, sort_by, cut, header, time_unit, self._with_flops)

    def export_chrome_trace(self, path: str | Path) -> None:
        """Write a timeline, replacing the file."""
        calls: Any = self
        export(path, calls, self._recorded, {})

    def __str__(self) -> str:
        return self.table()


Events = EventList[FunctionEvent]
Averages = EventList[FunctionEventAvg]


# -- The timeline that PyTorch's profiler writes: one X per call, ts in µs from `baseTimeNanoseconds`


LANES = 1 << 24  # beyond the numbers of threads


OP, INSTANT = "cpu_op", "cpu_instant_event"


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
