"""The calls of a session as PyTorch's profiler returns them, and their averages.

Times are in µs; `self` times add up to the time of the outermost calls of each thread. What the
host does not record (device times, memory) is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from os import getpid
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

from bridge.analyze.tables.average_rows import Cut, table
from bridge.annotate import nvtx_op
from bridge.compat.calls import (
    Call,
    Instant,
    RecordedEvents,
    assign_lanes,
    is_finite,
    outer_first,
    write_json,
)

# -- Ranges


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

USER = "user_annotation"


class record_function:  # noqa: N801 - PyTorch's name
    """Surround a block, or decorate a function; the text ``args`` is stored with the call."""

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

    def __call__(self, function: FunctionT) -> FunctionT:
        """Decorate a function, coroutine function or generator function."""
        return nvtx_op(self.name, category=USER)(function)


# -- Calls and averages


STEP, STEPS = "ProfilerStep#", "ProfilerStep*"


class Interval(NamedTuple):
    """An interval in µs."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        """Return the length."""
        return self.end - self.start


class Measures:
    """The fields that calls and averages have in common; a table can be sorted by each."""

    key: str
    count: int
    cpu_time_total: float
    self_cpu_time_total: float
    input_shapes: Any
    flops: float
    # Not recorded on the host:
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
        """The mean time of a call, in µs."""
        return self.cpu_time_total / self.count if self.count else 0.0


class FunctionEvent(Measures):
    """A call; of a call in slices each slice, of which the first counts."""

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
        """The time without that of inner calls, in µs."""
        inner = sum(child.call.end - child.call.start for child in self.cpu_children)
        return (self.call.end - self.call.start - inner) / 1000

    def __repr__(self) -> str:
        return (
            f"<FunctionEvent id={self.id} name={self.name} cpu_time={self.cpu_time_total:.3f}us"
            f" thread={self.thread}>"
        )


class FunctionEventAvg(Measures):
    """All calls with the same key."""

    def __init__(self, first: FunctionEvent, key: str, *, shapes: bool) -> None:
        self.key = key
        self.is_user_annotation = first.is_user_annotation
        self.input_shapes = first.input_shapes if shapes else ""
        self.cpu_parent: FunctionEvent | None = first.cpu_parent
        self.cpu_children: list[FunctionEvent] = []
        self.count = 0
        self.flops = self.cpu_time_total = self.self_cpu_time_total = 0.0

    def add(self, event: FunctionEvent) -> None:
        """Add a call."""
        self.count += event.count
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total
        self.flops += event.flops
        self.cpu_children += event.cpu_children

    def __repr__(self) -> str:
        return (
            f"<FunctionEventAvg key={self.key} count={self.count} cpu_time={self.cpu_time:.3f}us>"
        )


def events_of(recorded: RecordedEvents) -> list[FunctionEvent]:
    """Return all calls that have ended, nested by thread; times from the first event."""
    calls = [call for call in recorded.calls if not (call.open or call.phase)]
    calls.sort(key=outer_first)
    events = [FunctionEvent(number, call, recorded.first) for number, call in enumerate(calls)]
    _nest(events)
    return events


def averages(events: Iterable[FunctionEvent], *, shapes: bool) -> list[FunctionEventAvg]:
    """Return one row per name, one for all steps, in the order of their first calls."""
    rows: dict[tuple[str, bool, str], FunctionEventAvg] = {}
    for event in events:
        name = STEPS if event.name.startswith(STEP) else event.name
        key = (name, event.is_user_annotation, str(event.input_shapes) if shapes else "")
        if key not in rows:
            rows[key] = FunctionEventAvg(event, name, shapes=shapes)
        rows[key].add(event)
    return list(rows.values())


def is_annotation(call: Call) -> bool:
    """Return whether a call is a range of the program, and not an op of the dispatcher."""
    return call.category == USER or "::" not in call.name


def rank_metadata(recorded: RecordedEvents) -> Mapping[str, Any]:
    """Return rank and world size of the process, by PyTorch's names."""
    return {
        name: recorded.metadata[name]
        for name in ("rank", "world_size")
        if name in recorded.metadata
    }


def _nest(events: Iterable[FunctionEvent]) -> None:
    """Set the parent of each call; calls that overlap partly have no such relation."""
    stacks: dict[tuple[int, int], list[FunctionEvent]] = {}
    for event in events:
        above = stacks.setdefault((event.process, event.thread), [])
        while above and not _contains(above[-1].call, event.call):
            above.pop()
        if above:
            event.cpu_parent = above[-1]
            above[-1].cpu_children.append(event)
        above.append(event)


def _contains(outer: Call, inner: Call) -> bool:
    return inner.start < outer.end and inner.end <= outer.end


# -- Lists of calls or averages


MeasuresT = TypeVar("MeasuresT", bound=Measures)
TOTAL = "Total"


class EventList(list[MeasuresT]):
    """Calls by begin, or averages."""

    def __init__(
        self,
        events: Iterable[MeasuresT] = (),
        *,
        with_flops: bool = False,
        recorded: RecordedEvents | None = None,
    ) -> None:
        super().__init__(events)
        self._with_flops = with_flops
        self._recorded = recorded or RecordedEvents()

    @property
    def self_cpu_time_total(self) -> float:
        """The sum of self times in µs."""
        return sum(event.self_cpu_time_total for event in self)

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,  # noqa: ARG002 - no stacks are recorded
        group_by_overload_name: bool = False,  # noqa: ARG002 - nor overloads
    ) -> EventList[FunctionEventAvg]:
        """Return one row per name, or per name and shapes."""
        calls: Any = self
        result = averages(calls, shapes=group_by_input_shapes)
        return EventList(result, with_flops=self._with_flops, recorded=self._recorded)

    def total_average(self) -> FunctionEventAvg:
        """Return one row of all calls; only its self times are meaningful."""
        calls: Iterable[Any] = self
        total: FunctionEventAvg | None = None
        for event in calls:
            total = total or FunctionEventAvg(event, TOTAL, shapes=False)
            total.add(event)
        if total is None:
            raise ValueError("no events: there is no total")
        return total

    def table(  # noqa: PLR0913, PLR0917 - PyTorch's
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
        """Return a table, sorted descending by ``sort_by``; a row_limit of -1 shows all rows.

        Raises AttributeError for an unknown key.
        """
        del max_src_column_width  # of a column that does not exist here
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


# -- Timelines: one X per call, ts in µs from `baseTimeNanoseconds`


LANES = 1 << 24  # above the numbers of threads


OP, INSTANT = "cpu_op", "cpu_instant_event"


Event = dict[str, Any]


def export(
    path: str | Path,
    events: Iterable[FunctionEvent],
    recorded: RecordedEvents,
    about: Mapping[str, Any],
) -> None:
    """Write a timeline of calls, phases, marks and counters; ``about`` are top-level fields."""
    numbers = {id(event.call): event.id for event in events}
    rank = rank_metadata(recorded)
    head = {"schemaVersion": 1, "deviceProperties": []} | dict(about)
    if rank:
        head["distributedInfo"] = dict(rank)
    tail = {
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": recorded.epoch_ns + recorded.first,
        "traceName": str(path),
    }
    write_json(path, head | {"traceEvents": list(_events(recorded, numbers))} | tail)


def _events(recorded: RecordedEvents, numbers: Mapping[int, int]) -> Iterator[Event]:
    tracks = assign_lanes(recorded.calls, lambda call: call.thread)
    yield from _names(recorded, tracks)
    for (thread, lane), calls in tracks.items():
        for call in calls:
            yield _slice(call, thread + lane * LANES, recorded.first, numbers.get(id(call)))
    for instant in recorded.instants:
        if instant.value is None or is_finite(instant.value):
            yield _instant(instant, recorded.first)
    end = (recorded.last - recorded.first) / 1000
    yield {"ph": "i", "s": "g", "name": "Record Window End", "pid": getpid(), "tid": 0, "ts": end}


def _names(recorded: RecordedEvents, tracks: Iterable[tuple[int, int]]) -> Iterator[Event]:
    process = {"ph": "M", "pid": getpid(), "ts": 0.0}
    program = recorded.metadata.get("program") or "python"
    yield {**process, "tid": 0, "name": "process_name", "args": {"name": program}}
    yield {**process, "tid": 0, "name": "process_labels", "args": {"labels": "CPU"}}
    yield {**process, "tid": 0, "name": "process_sort_index", "args": {"sort_index": getpid()}}
    for thread, lane in tracks:
        name = f"thread {thread} ({recorded.threads.get(thread, '')})"
        label = f"{name} ({lane + 1})" if lane else name
        tid = thread + lane * LANES
        yield {**process, "tid": tid, "name": "thread_name", "args": {"name": label}}
        yield {**process, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}


def _slice(call: Call, tid: int, zero: int, number: int | None) -> Event:
    event: Event = {"ph": "X", "cat": USER if is_annotation(call) else OP, "name": call.name}
    event |= {"pid": call.process, "tid": tid, "ts": (call.start - zero) / 1000}
    return event | {"dur": (call.end - call.start) / 1000, "args": _arguments(call, number)}


def _arguments(call: Call, number: int | None) -> Event:
    result: Event = {} if number is None else {"External id": number + 1, "Ev Idx": number}
    details = call.details
    if "shapes" in details:
        result["Input Dims"] = [shape or [] for shape in details["shapes"]]
        result["Input type"] = list(details.get("dtypes", ()))
    if "args" in details:
        result["Concrete Inputs"] = [str(value) for value in details["args"].values()]
    return result


def _instant(instant: Instant, zero: int) -> Event:
    event: Event = {"name": instant.name, "pid": getpid(), "tid": instant.thread}
    event["ts"] = (instant.time - zero) / 1000
    if instant.value is None:
        return event | {"ph": "i", "s": "t", "cat": INSTANT}
    return event | {"ph": "C", "args": {instant.name: instant.value}}
