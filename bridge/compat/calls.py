"""What a session recorded, as one object per call: what the older profilers make their outputs of.

The invariant: times are int64 ns of the monotonic clock; a call whose end was not recorded ends with the
last event, and says that it is open.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from bridge.annotate.instant import COUNTER
from bridge.annotate.stack import CALL_ID_BASE, CALL_ID_BITS

if TYPE_CHECKING:
    from bridge.capture.session.profile import Profile


# -- Files of JSON as the older profilers leave them: replaced without a question, whole or not at all


def write_json(path: str | Path, content: Mapping[str, Any]) -> None:
    """Write a file, through gzip if its name ends in .gz; raises `OutputError` if it cannot be written."""
    from bridge.output import compressed, whole  # what only annotates writes nothing

    target = Path(path)
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, default=str)
    with (
        whole(target, force=True) as draft,
        compressed(draft, gzip=target.suffix == ".gz") as file,
    ):
        file.write(text.encode())


def finite(value: float | None) -> bool:
    """Tell whether JSON can say a value."""
    return value is not None and math.isfinite(value)


# -- Calls on the tracks of a viewer: those of a track nest, and every B has its E


Track = TypeVar("Track", bound=Hashable)
Open = list["Call"]


def laned(
    calls: Iterable[Call], track_of: Callable[[Call], Track]
) -> dict[tuple[Track, int], list[Call]]:
    """Return the calls of each track and lane, outer before inner."""
    lanes: dict[Track, list[Open]] = {}
    found: dict[tuple[Track, int], list[Call]] = {}
    for call in sorted(calls, key=outer_first):
        track = track_of(call)
        number = _lane(lanes.setdefault(track, []), call)
        found.setdefault((track, number), []).append(call)
    return found


def begun_and_ended(calls: Sequence[Call]) -> Iterator[tuple[str, Call, int]]:
    """Give "B" or "E", the call and the time in ns, for calls that nest, outer before inner."""
    above: Open = []
    for call in calls:
        while above and above[-1].end <= call.start:
            yield "E", above[-1], above.pop().end
        yield "B", call, call.start
        above.append(call)
    while above:
        yield "E", above[-1], above.pop().end


def _lane(lanes: list[Open], call: Call) -> int:
    """Open the call on the first lane where it crosses nothing; make one if there is none."""
    for number, above in enumerate(lanes):
        while above and above[-1].end <= call.start:
            above.pop()
        if not above or call.end <= above[-1].end:
            above.append(call)
            return number
    lanes.append([call])
    return len(lanes) - 1


# -- What a session recorded, as one object per call: what the older profilers make their outputs of


THREAD = 0xFFFFFF  # of a thread's number, what the system calls it; the process is above
PROCESS_BITS = 24


@dataclass(slots=True, eq=False)
class Call:
    """A range; ``phase`` is a start/end range, ``again`` a later slice of a call that was suspended."""

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
    """A mark; ``value`` is a counter's sample, None for what is no counter."""

    name: str
    domain: str
    category: str
    thread: int
    time: int
    value: float | None


@dataclass(frozen=True)
class Happened:
    """All that was recorded: calls outer first, marks in order; ``epoch_ns`` is when times are 0."""

    calls: tuple[Call, ...] = ()
    instants: tuple[Instant, ...] = ()
    threads: Mapping[int, str] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    epoch_ns: int = 0

    @property
    def first(self) -> int:
        """The time of the first event in ns, 0 if there is none."""
        return min(
            (*(c.start for c in self.calls[:1]), *(i.time for i in self.instants[:1])), default=0
        )

    @property
    def last(self) -> int:
        """The time of the last event in ns, 0 if there is none."""
        return max((*(c.end for c in self.calls), *(i.time for i in self.instants)), default=0)


def happened(session: Profile | None) -> Happened:
    """Return what a session recorded last; without a session, or with an empty one, nothing."""
    if session is None:
        return Happened()
    try:
        report = session.joined.report
    except Exception as problem:
        # Not by its class: where the program has a package `importers`, ours is imported anew each time.
        if type(problem).__name__ != "NothingRecorded":
            raise
        return Happened()
    threads = zip(report.threads["thread"].tolist(), report.threads["name"], strict=True)
    return Happened(
        tuple(_calls(report)),
        tuple(sorted(_instants(report.marks), key=lambda one: one.time)),
        {number & THREAD: str(name) for number, name in threads},
        report.facts[0].metadata,
        report.facts[0].epoch_ns,
    )


def together(many: Iterable[Happened]) -> Happened:
    """Put what one session after another recorded into one; the clock of a process is one."""
    found = [one for one in many if one.calls or one.instants]
    if len(found) <= 1:
        return found[0] if found else Happened()
    return Happened(
        tuple(call for one in found for call in one.calls),
        tuple(instant for one in found for instant in one.instants),
        {number: name for one in found for number, name in one.threads.items()},
        {key: value for one in found for key, value in one.metadata.items()},
        found[0].epoch_ns,
    )


def spent(calls: Iterable[Call]) -> list[tuple[str, int]]:
    """Return name and ns of every call that has ended; the slices of one are added up."""
    known: dict[tuple[str, int], int] = {}
    found: list[tuple[str, int]] = []
    for call in calls:
        key = call.name, call.payload
        length = call.end - call.start
        if call.again and key in known:
            found[known[key]] = (call.name, found[known[key]][1] + length)
        elif not call.open:
            known[key] = len(found)
            found.append((call.name, length))
    return found


def outer_first(call: Call) -> tuple[int, int]:
    """Sort calls so that each stands before what is in it."""
    return call.start, -call.end


def _calls(report: Any) -> list[Call]:
    ranges = report.ranges
    written = report.texts.decode()
    names = [written[row] for row in ranges["text"].tolist()]
    columns = (
        *(ranges[c].astype(object) for c in ("domain_name", "category")),
        (ranges["kind"] == "start_end").tolist(),
        *(ranges[c].tolist() for c in ("open", "process", "thread", "start", "end", "payload")),
        _details(ranges["json"]),
    )
    calls = [Call(*row) for row in zip(names, *columns, strict=True)]
    for call in calls:
        call.process >>= PROCESS_BITS
        call.thread &= THREAD
    calls.reverse()  # what ends later is recorded later: of equal times the outer one
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
    """Read each distinct text once; what is no object is a payload that is no integer."""
    read = [_object(text) for text in column.cat.categories]
    return (read[code] if code >= 0 else {} for code in column.cat.codes.tolist())


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text) if text.startswith("{") else {}
    return found if isinstance(found, dict) else {}


def _instants(marks: Any) -> Iterator[Instant]:
    columns = (marks[c].astype(object) for c in ("name", "domain_name", "category", "json"))
    numbers = (marks[c].tolist() for c in ("thread", "time", "payload"))
    for name, domain, category, text, thread, time, payload in zip(*columns, *numbers, strict=True):
        counted = name.startswith(COUNTER)
        value = float(text) if counted and text else payload
        known = name.removeprefix(COUNTER)
        yield Instant(known, domain, category, thread & THREAD, time, value if counted else None)
