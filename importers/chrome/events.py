"""The events of a Chrome trace as columns: slices, instants, counters and the ends of arrows.

Begins and ends are paired in the order of the file, per thread and name, so that traces whose
events are not in the order of time are read too. Times are in ns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.importers.arrays import Ints
from bridge.importers.capture import MAX_DISTANCE_NS
from bridge.importers.frames import Names
from bridge.importers.kineto.events import UNKNOWN, clean, nanoseconds
from bridge.importers.records import record

Mask = NDArray[np.bool_]

# Phases of Chrome's format. MXNet writes frames as ( and ).
COMPLETE, META, COUNTER = "X", "M", "C"
NESTED_ENDS = {"B": False, "E": True}
ASYNCHRONOUS_ENDS = {"b": False, "e": True, "S": False, "F": True, "(": False, ")": True}
INSTANTS = frozenset("iIRnN")
FLOW_STARTS, FLOW_ENDS = frozenset("s"), frozenset("f")
NESTED, ASYNCHRONOUS = 0, 1  # kinds of slices

Event = dict[str, Any]


@record
class Slices:
    """Slices in the order of their begins in the file.

    ``first`` and ``last`` are the places of begin and end in the file; those of a slice that has no
    end are equal, it is ``open`` and ends with the last event.
    """

    name: Sequence[str]
    category: Sequence[str]
    where: Sequence[tuple[Any, Any]]  # pid and tid as written
    args: Sequence[Event]
    start: Ints
    end: Ints
    first: Ints
    last: Ints
    kind: Ints
    open: Mask

    def __len__(self) -> int:
        return len(self.name)

    def take(self, rows: Ints) -> Slices:
        places = rows.tolist()
        texts = (
            [column[row] for row in places]
            for column in (self.name, self.category, self.where, self.args)
        )
        numbers = (self.start, self.end, self.first, self.last, self.kind, self.open)
        return Slices(*texts, *(column[rows] for column in numbers))  # type: ignore[arg-type]

    def has_argument(self, key: str) -> Mask:
        """Return the slices that have an argument of this name."""
        return np.array([key in args for args in self.args], bool)


@record
class Points:
    """Events without a duration: instants, samples of counters, or ends of arrows."""

    events: Sequence[Event]
    time: Ints
    place: Ints  # in the file

    def __len__(self) -> int:
        return len(self.events)

    @property
    def where(self) -> list[tuple[Any, Any]]:
        return [_where(event) for event in self.events]


@record
class TraceEvents:
    """All events of a trace; ``broken`` counts those that are invalid or have no other half."""

    slices: Slices
    instants: Points
    counters: Points
    flow_starts: Points
    flow_ends: Points
    meta: Sequence[Event]
    broken: int
    keys: frozenset[str]  # of the events, if all have the same, else empty

    @classmethod
    def of(cls, events: Sequence[Any]) -> TraceEvents:
        """Sort the events of a trace: one loop over them; everything else works on columns."""
        by_sort = _by_sort(events)
        broken = len(by_sort.pop("broken"))
        valid = {}
        for sort in (*SLICES, *POINTS):
            valid[sort], invalid = _valid(by_sort[sort])
            broken += invalid
        slices, unpaired = _slices(valid)
        instants, counters, flow_starts, flow_ends = (valid[sort] for sort in POINTS)
        return cls(
            slices=slices,
            instants=instants,
            counters=counters,
            flow_starts=flow_starts,
            flow_ends=flow_ends,
            meta=[event for _, event in by_sort[META] if _is_plain(event)],
            broken=broken + unpaired,
            keys=_common_keys(events),
        )

    @cached_property
    def process_names(self) -> dict[Any, str]:
        """The names of processes by pid, as written."""
        return {e.get("pid"): name for e, name in self._names("process_name")}

    @cached_property
    def thread_names(self) -> dict[tuple[Any, Any], str]:
        """The names of threads by pid and tid, as written."""
        return {_where(event): name for event, name in self._names("thread_name")}

    def begin_arrows(self, categories: Sequence[str]) -> Mask:
        """Return the slices in which arrows of these categories begin, the innermost ones."""
        row = slice_around(of_categories(self.flow_starts, categories), self.slices)
        mask = np.zeros(len(self.slices), bool)
        mask[row[row >= 0]] = True
        return mask

    def _names(self, kind: str) -> Iterator[tuple[Event, str]]:
        for event in self.meta:
            args = event.get("args")
            if event.get("name") == kind and type(args) is dict and type(args.get("name")) is str:
                yield event, clean(args["name"])


SLICES = ("complete", "nested", "asynchronous")
POINTS = ("instants", "counters", "flow starts", "flow ends")
SORT_OF = {
    COMPLETE: "complete",
    **dict.fromkeys(NESTED_ENDS, "nested"),
    **dict.fromkeys(ASYNCHRONOUS_ENDS, "asynchronous"),
    **dict.fromkeys(INSTANTS, "instants"),
    COUNTER: "counters",
    **dict.fromkeys(FLOW_STARTS, "flow starts"),
    **dict.fromkeys(FLOW_ENDS, "flow ends"),
    META: META,
}
Placed = list[tuple[int, Event]]  # events with their places in the file


def _by_sort(events: Sequence[Any]) -> dict[str, Placed]:
    """Return the events by sort; other phases are skipped, as steps of arrows are."""
    result: dict[str, Placed] = {sort: [] for sort in (*SLICES, *POINTS, META, "skipped", "broken")}
    for place, event in enumerate(events):
        if type(event) is not dict:
            result["broken"].append((place, {}))
        elif event:  # TensorFlow writes an empty one at the end
            phase = event.get("ph")
            sort = SORT_OF.get(phase, "skipped") if type(phase) is str else "broken"
            result[sort].append((place, event))
    return result


def _valid(placed: Placed) -> tuple[Points, int]:
    """Return the events with a valid time and name, and the number of the others."""
    time = nanoseconds([event.get("ts") for _, event in placed])
    is_valid = (time != UNKNOWN) & np.array(
        [type(e.get("name", "")) is str and _is_plain(e) for _, e in placed], bool
    )
    rows = np.flatnonzero(is_valid)
    kept = [placed[row] for row in rows.tolist()]
    places = np.array([place for place, _ in kept], np.int64)
    return Points([event for _, event in kept], time[rows], places), len(placed) - len(kept)


def _is_plain(event: Event) -> bool:
    """Return whether pid, tid and id are numbers or texts, not objects or lists."""
    return not any(type(event.get(key)) in {dict, list} for key in ("pid", "tid", "id"))


def _where(event: Event) -> tuple[Any, Any]:
    return event.get("pid"), event.get("tid")


def _common_keys(events: Sequence[Any]) -> frozenset[str]:
    keys = {frozenset(event) for event in events[:1] if type(event) is dict}
    first = next(iter(keys), frozenset())
    same = all(type(event) is dict and event.keys() == first for event in events)
    return first if same else frozenset()


# -- Slices


def _slices(points: Mapping[str, Points]) -> tuple[Slices, int]:
    """Return the slices of all phases, and the number of events that have no other half."""
    complete, broken = _complete(points["complete"])
    times = (complete.end, *(p.time for p in points.values()))
    last = max((int(column.max()) for column in times if len(column)), default=0)
    nested, lost = _paired(points["nested"], NESTED_ENDS, _track_keys, last)
    phases, lost_too = _paired(points["asynchronous"], ASYNCHRONOUS_ENDS, _async_keys, last)
    parts = [complete, nested, phases]
    kind = np.repeat([NESTED, NESTED, ASYNCHRONOUS], list(map(len, parts)))
    both = _concat(parts, kind)
    order = np.argsort(both.first, kind="stable")
    return both.take(order), broken + lost + lost_too


def _concat(parts: Sequence[Slices], kind: Ints) -> Slices:
    texts = ("name", "category", "where", "args")
    numbers = ("start", "end", "first", "last")
    columns: dict[str, Any] = {c: [x for p in parts for x in getattr(p, c)] for c in texts}
    columns |= {c: np.concatenate([getattr(p, c) for p in parts]) for c in numbers}
    is_open = np.concatenate([p.open for p in parts])
    return Slices(**columns, kind=kind, open=is_open)


def _complete(points: Points) -> tuple[Slices, int]:
    length = nanoseconds([event.get("dur", 0) for event in points.events])
    rows = np.flatnonzero((length >= 0) & (length <= MAX_DISTANCE_NS))
    events = [points.events[row] for row in rows.tolist()]
    start, place = points.time[rows], points.place[rows]
    is_open = np.zeros(len(rows), bool)
    times, places = (start, start + length[rows]), (place, place)
    slices = _of_events(
        events, [_args(event) for event in events], times=times, places=places, is_open=is_open
    )
    return slices, len(points) - len(rows)


def _paired(points: Points, ends: Mapping[str, bool], keys: Any, last: int) -> tuple[Slices, int]:
    """Return the slices of begins and ends, and the number of ends without a begin."""
    events = points.events
    is_end = np.array([ends[event["ph"]] for event in events], bool)
    named = all(type(event.get("name")) is str for event in events)
    begin, end = pairs(_codes(keys(events, named)), is_end)
    in_order = points.time[end] >= points.time[begin]
    begin, end = begin[in_order], end[in_order]
    open_ = np.setdiff1d(np.flatnonzero(~is_end), begin)
    rows = np.concatenate((begin, open_))
    closing = np.concatenate((end, open_))
    is_open = np.arange(len(rows)) >= len(begin)
    opened = [events[row] for row in rows.tolist()]
    args = [
        _args(b) if b is e else _args(b) | _args(e)
        for b, e in zip(opened, (events[row] for row in closing.tolist()), strict=True)
    ]
    times = points.time[rows], np.where(is_open, last, points.time[closing])
    places = points.place[rows], points.place[closing]
    slices = _of_events(opened, args, times=times, places=places, is_open=is_open)
    return slices, len(events) - 2 * len(begin) - len(open_)


def pairs(keys: Ints, is_end: Mask) -> tuple[Ints, Ints]:
    """Return the rows of begins and of their ends: the last begin of the same key that is not ended."""
    order = np.argsort(keys, kind="stable")
    ends = is_end[order]
    depth = np.cumsum(np.where(ends, -1, 1))
    level = np.where(ends, depth + 1, depth)  # the depth that a begin leads to, or an end leaves
    by_level = np.lexsort((np.arange(len(order)), level, keys[order]))
    rows, level = order[by_level], level[by_level]
    same = (keys[rows[:-1]] == keys[rows[1:]]) & (level[:-1] == level[1:])
    at = np.flatnonzero(same & ~is_end[rows[:-1]] & is_end[rows[1:]])
    return rows[at], rows[at + 1]


def _track_keys(events: Sequence[Event], named: bool) -> list[Any]:
    return [(*_where(e), e["name"] if named else "") for e in events]


def _async_keys(events: Sequence[Event], named: bool) -> list[Any]:
    keys = ("pid", "cat", "id")
    return [(*(str(e.get(key)) for key in keys), e["name"] if named else "") for e in events]


def _codes(keys: list[Any]) -> Ints:
    """Return a number per key, equal for equal keys."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)


def _args(event: Event) -> Event:
    args = event.get("args")
    return args if type(args) is dict else {}


def _of_events(
    events: Sequence[Event],
    args: Sequence[Event],
    times: tuple[Ints, Ints],
    places: tuple[Ints, Ints],
    is_open: Mask,
) -> Slices:
    category = [c if type(c := event.get("cat", "")) is str else "" for event in events]
    start, end = times
    first, last = places
    return Slices(
        name=[event.get("name", "") for event in events],
        category=category,
        where=[_where(event) for event in events],
        args=args,
        start=start,
        end=end,
        first=first,
        last=last,
        kind=np.zeros(len(events), np.int64),
        open=is_open,
    )


# -- Arrows


def of_categories(points: Points, categories: Sequence[str]) -> Points:
    rows = [row for row, event in enumerate(points.events) if event.get("cat") in categories]
    at = np.array(rows, np.int64)
    return Points([points.events[row] for row in rows], points.time[at], points.place[at])


def arrow_code(points: Points, ids: dict[Any, int]) -> Ints:
    """Return a number per arrow, from 1, shared by both ends of it; ``ids`` holds known numbers."""
    keys = [tuple(str(e.get(key)) for key in ("scope", "cat", "id")) for e in points.events]
    return np.array([ids.setdefault(key, len(ids) + 1) for key in keys], np.int64)


def slice_around(points: Points, slices: Slices) -> Ints:
    """Return the slice that each point stands in, on its thread and in the file; -1 for none.

    It is the slice of the thread that began last, if that has not ended; no other is looked at.
    """
    numbers: dict[Any, int] = {}
    of_slice = [numbers.setdefault(where, len(numbers)) for where in slices.where]
    of_point = [numbers.get(where, -1) for where in points.where]
    span = int(max(slices.last.max(initial=0), points.place.max(initial=0))) + 1
    key = np.array(of_slice, np.int64) * span + slices.first
    order = np.argsort(key, kind="stable")
    wanted = np.array(of_point, np.int64) * span + points.place
    at = np.searchsorted(key[order], wanted, side="right") - 1
    row = np.where(at >= 0, order[np.maximum(at, 0)] if len(order) else -1, -1)
    fits = (row >= 0) & (np.array(of_point, np.int64) >= 0)
    inside = np.zeros(len(row), bool)
    inside[fits] = (slices.last[row[fits]] >= points.place[fits]) & (
        np.array(of_slice, np.int64)[row[fits]] == np.array(of_point, np.int64)[fits]
    )
    return np.where(inside, row, -1)


def distinct(texts: Sequence[str]) -> tuple[Ints, list[str]]:
    """Return a code per text, and the distinct texts."""
    names = Names.of(texts)
    return names.codes, names.texts
