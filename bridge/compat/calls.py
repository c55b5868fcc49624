"""The calls of a session as objects: the input of the other profilers' outputs.

Times are int64 ns of the monotonic clock. A call whose end was not recorded is open and ends with
the last event.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bridge.annotate.instant import COUNTER
from bridge.annotate.stack import CALL_ID_BASE, CALL_ID_BITS

if TYPE_CHECKING:
    from bridge.capture.session.profile import Session


# -- JSON files: an existing file is replaced


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, with gzip if its name ends in .gz; raises `OutputError` on failure."""
    from bridge.output import compressed, whole  # not needed by programs that only annotate

    target = Path(path)
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, default=str)
    with (
        whole(target, force=True) as draft,
        compressed(draft, gzip=target.suffix == ".gz") as file,
    ):
        file.write(text.encode())


def is_finite(value: float | None) -> bool:
    """Return whether JSON can represent a value."""
    return value is not None and math.isfinite(value)


# -- Lanes: calls of a lane nest


Track = TypeVar("Track", bound=Hashable)
OpenCalls = list["Call"]


def assign_lanes(
    calls: Iterable[Call], track_of: Callable[[Call], Track]
) -> dict[tuple[Track, int], list[Call]]:
    """Return the calls by track and lane, outer before inner; calls of a lane nest."""
    lanes: dict[Track, list[OpenCalls]] = {}
    result: dict[tuple[Track, int], list[Call]] = {}
    for call in sorted(calls, key=outer_first):
        track = track_of(call)
        number = _lane(lanes.setdefault(track, []), call)
        result.setdefault((track, number), []).append(call)
    return result


def begin_end_events(calls: Sequence[Call]) -> Iterator[tuple[str, Call, int]]:
    """Yield "B" or "E", the call and the time in ns, for nested calls, outer before inner."""
    above: OpenCalls = []
    for call in calls:
        while above and above[-1].end <= call.start:
            yield "E", above[-1], above.pop().end
        yield "B", call, call.start
        above.append(call)
    while above:
        yield "E", above[-1], above.pop().end


def _lane(lanes: list[OpenCalls], call: Call) -> int:
    """Put the call on the first lane where it nests; add a lane if there is none."""
    for number, above in enumerate(lanes):
        while above and above[-1].end <= call.start:
            above.pop()
        if not above or call.end <= above[-1].end:
            above.append(call)
            return number
    lanes.append([call])
    return len(lanes) - 1


# -- Recorded events


THREAD_MASK = 0xFFFFFF  # bits of the system's thread id; the process is in the bits above
PROCESS_BITS = 24


@dataclass(slots=True, eq=False)
class Call:
    """A range; ``phase`` is a start/end range, ``again`` a later slice of a suspended call."""

    name: str
    domain: str
    category: str
    phase: bool
    open: bool
    process: int
    thread: int
    start: int
    end: int
    payload: int
    details: Mapping[str, Any]
    again: bool = False


@dataclass(slots=True, eq=False)
class Instant:
    """A mark; ``value`` is a sample of a counter, None for other marks."""

    name: str
    domain: str
    category: str
    thread: int
    time: int
    value: float | None


class Activity(NamedTuple):
    """Work on a GPU, recorded by CUPTI in the process."""

    name: str
    device: int
    stream: int
    start: int
    end: int


@dataclass(frozen=True)
class RecordedEvents:
    """Recorded events: calls outer first, marks and GPU work by time; ``epoch_ns`` is the time 0."""

    calls: tuple[Call, ...] = ()
    instants: tuple[Instant, ...] = ()
    activities: tuple[Activity, ...] = ()
    threads: Mapping[int, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    epoch_ns: int = 0

    @property
    def first(self) -> int:
        """The time of the first event in ns, 0 without events."""
        return min(
            (*(c.start for c in self.calls[:1]), *(i.time for i in self.instants[:1])), default=0
        )

    @property
    def last(self) -> int:
        """The time of the last event in ns, 0 without events."""
        return max((*(c.end for c in self.calls), *(i.time for i in self.instants)), default=0)


def recorded_events(session: Session | None) -> RecordedEvents:
    """Return what a session recorded last; nothing without a session or without events."""
    if session is None:
        return RecordedEvents()
    from bridge.importers.errors import NothingRecorded  # loads pandas

    try:
        capture = session.report.capture
    except NothingRecorded:
        return RecordedEvents()
    threads = zip(capture.threads.thread.tolist(), capture.threads.name, strict=True)
    return RecordedEvents(
        calls=tuple(_calls(capture)),
        instants=tuple(sorted(_instants(capture.marks), key=lambda instant: instant.time)),
        activities=tuple(
            sorted(_activities(capture.activities), key=lambda activity: activity.start)
        ),
        threads={number & THREAD_MASK: str(name) for number, name in threads},
        metadata=capture.facts[0].metadata,
        epoch_ns=capture.facts[0].epoch_ns,
    )


def merge_recorded(sessions: Iterable[RecordedEvents]) -> RecordedEvents:
    """Return the events of consecutive sessions; they have the same clock."""
    non_empty = [events for events in sessions if events.calls or events.instants]
    if len(non_empty) <= 1:
        return non_empty[0] if non_empty else RecordedEvents()
    return RecordedEvents(
        calls=tuple(call for part in non_empty for call in part.calls),
        instants=tuple(instant for part in non_empty for instant in part.instants),
        activities=tuple(activity for part in non_empty for activity in part.activities),
        threads={number: name for part in non_empty for number, name in part.threads.items()},
        metadata={key: value for part in non_empty for key, value in part.metadata.items()},
        epoch_ns=non_empty[0].epoch_ns,
    )


OP = "aten::"  # prefix of PyTorch's ops
NODE = re.compile(r"\w+Backward\d*")  # a node of autograd


def innermost_ops(recorded: RecordedEvents) -> RecordedEvents:
    """Return events without the ops that consist of other ops, and without the nodes of autograd around ops.

    Profilers of other frameworks have a level of ops, where PyTorch has `aten::linear` around `aten::addmm`.
    """
    open_calls: dict[int, OpenCalls] = {}
    around_ops: set[int] = set()
    for call in recorded.calls:
        above = open_calls.setdefault(call.thread, [])
        while above and above[-1].end <= call.start:
            above.pop()
        if above and call.name.startswith(OP) and _is_op_or_node(above[-1]):
            around_ops.add(id(above[-1]))
        if not call.phase:
            above.append(call)
    kept = tuple(call for call in recorded.calls if id(call) not in around_ops)
    return replace(recorded, calls=kept)


def _is_op_or_node(call: Call) -> bool:
    """Return whether a call is an op of PyTorch or a node of autograd, which has the same category: none."""
    return call.name.startswith(OP) or (not call.category and NODE.fullmatch(call.name) is not None)


def call_times(calls: Iterable[Call]) -> list[tuple[str, int]]:
    """Return name and ns of every call that has ended; the slices of a call are added up."""
    places: dict[tuple[str, int], int] = {}
    result: list[tuple[str, int]] = []
    for call in calls:
        key = call.name, call.payload
        length = call.end - call.start
        if call.again and key in places:
            result[places[key]] = (call.name, result[places[key]][1] + length)
        elif not call.open:
            places[key] = len(result)
            result.append((call.name, length))
    return result


def outer_first(call: Call) -> tuple[int, int]:
    """Return the sort key that puts each call before the calls in it."""
    return call.start, -call.end


def _calls(capture: Any) -> list[Call]:
    ranges = capture.ranges
    texts = capture.texts.decode()
    names = [texts[row] for row in ranges.text.tolist()]
    columns = (
        *(ranges[c] for c in ("domain_name", "category")),
        ranges.kind.among("start_end").tolist(),
        *(ranges[c].tolist() for c in ("open", "process", "thread", "start", "end", "payload")),
        _details(ranges.json),
    )
    calls = [Call(*row) for row in zip(names, *columns, strict=True)]
    for call in calls:
        call.process >>= PROCESS_BITS
        call.thread &= THREAD_MASK
    calls.reverse()  # inner calls are recorded first: of equal times the outer one comes first
    calls.sort(key=outer_first)
    _mark_slices(calls)
    return calls


def _mark_slices(calls: Sequence[Call]) -> None:
    seen: set[int] = set()
    for call in calls:
        if call.payload >> CALL_ID_BITS == CALL_ID_BASE >> CALL_ID_BITS:
            call.again = call.payload in seen
            seen.add(call.payload)


def _details(column: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the details of each row; each distinct text is parsed once."""
    objects = [_json_object(text) for text in column.texts]
    return (objects[code] if code >= 0 else {} for code in column.compact.tolist())


def _json_object(text: str) -> dict[str, Any]:
    result = json.loads(text) if text.startswith("{") else {}
    return result if isinstance(result, dict) else {}


def _activities(table: Any) -> Iterator[Activity]:
    columns = (table[c].tolist() for c in ("device", "stream", "start", "end"))
    return map(Activity._make, zip(table.name, *columns, strict=True))


def _instants(marks: Any) -> Iterator[Instant]:
    columns = (marks[c] for c in ("name", "domain_name", "category", "json"))
    numbers = (marks[c].tolist() for c in ("thread", "time", "payload"))
    for name, domain, category, text, thread, time, payload in zip(*columns, *numbers, strict=True):
        is_counter = name.startswith(COUNTER)
        value = float(text) if is_counter and text else payload
        label = name.removeprefix(COUNTER)
        yield Instant(
            name=label,
            domain=domain,
            category=category,
            thread=thread & THREAD_MASK,
            time=time,
            value=value if is_counter else None,
        )
