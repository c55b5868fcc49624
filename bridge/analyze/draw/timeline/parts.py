"""The elements of a timeline: slices on tracks, curves, and arrows between slices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.draw.tracks import Track, Tracks
from bridge.importers import frames
from bridge.importers.arrays import scatter
from bridge.importers.frames import Names
from bridge.importers.records import record
from bridge.join.arrays import (
    NONE,
    Flags,
    Ints,
    each,
    is_sorted,
    order_by,
    outer_first_order,
    repeated,
    run_edges,
)
from bridge.join.attributed import AttributedCapture
from bridge.join.forest import levels

# -- Curves of devices


MAX_CHANGES = 10_000  # changes of a curve; longer ones are thinned
BINS = 5_000  # of a thinned curve, with two samples each
BUSY_BINS = 1_000
MIN_BIN_NS = 1_000  # ns
PERCENT = 100
# HolisticTraceAnalysis and NVIDIA define the queue length and the launch latency in these ways.
CONCURRENCY, QUEUE, BUSY, LATENCY = (
    "GPU concurrency",
    "queue length",
    "GPU busy (%)",
    "launch latency (ns)",
)

Span = tuple[int, int]  # first ns, and first ns after it
ALL_TIME = (int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max))
Curve = tuple[Ints, Ints]  # times in ns, and the value from each time on


def all_time(_report: int) -> Span:
    """Return the unlimited span of a file."""
    return ALL_TIME


def device_curves(
    attributed: AttributedCapture, tracks: Tracks, span: Callable[[int], Span] = all_time
) -> list[Slices]:
    """Return the curves of all devices within a span of time of each file, grouped by kind."""
    activities = attributed.capture.activities
    device, homes = tracks.devices_of(activities)
    result: dict[str, list[tuple[int, Curve]]] = {
        name: [] for name in (CONCURRENCY, QUEUE, BUSY, LATENCY)
    }
    order = order_by(device, activities.start)
    for home, (first, last) in zip(homes, pairwise(run_edges(device[order]).tolist()), strict=True):
        report = int(activities.report[order[first]])
        for name, curve in _curves_of_device(attributed, order[first:last], span(report)):
            result[name].append((home, curve))
    return [curve_slices(name, curves) for name, curves in result.items() if curves]


def _curves_of_device(
    attributed: AttributedCapture, rows: Ints, span: Span
) -> Iterator[tuple[str, Curve]]:
    """Yield the curves of the activities of one device, which are sorted by start."""
    start, end = attributed.capture.activities.start[rows], attributed.end[rows]
    yield CONCURRENCY, thin_curve(*clip_curve(open_counts(start, end), span))
    yield BUSY, busy_share(start, end, span)
    launch = attributed.attribution.launch[rows]
    with_launch = np.flatnonzero(launch != NONE)
    if len(with_launch):
        call_start = attributed.capture.launches.start[launch[with_launch]]
        yield QUEUE, thin_curve(*clip_curve(open_counts(call_start, end[with_launch]), span))
        latency = start[with_launch], start[with_launch] - call_start
        yield LATENCY, thin_curve(*_filter_curve(latency, span))


def clip_curve(curve: Curve, span: Span) -> Curve:
    """Return a curve within a span; it begins with the value before the span."""
    time, value = curve
    previous = int(np.searchsorted(time, span[0], side="right")) - 1
    inside = _filter_curve(curve, span)
    if previous < 0 or time[previous] == span[0]:
        return inside
    return np.append(span[0], inside[0]), np.append(value[previous], inside[1])


def _filter_curve(curve: Curve, span: Span) -> Curve:
    time, value = curve
    inside = (time >= span[0]) & (time < span[1])
    return time[inside], value[inside]


def open_counts(start: Ints, end: Ints) -> Curve:
    """Return the number of open intervals as a curve."""
    has_length = end > start
    if not has_length.all():
        start, end = start[has_length], end[has_length]
    time = np.concatenate((start, end))
    order = order_by(time)
    time, change = time[order], np.where(order < len(start), np.int8(1), np.int8(-1))
    value = np.cumsum(change, dtype=np.int64)
    is_last = np.append(time[1:] != time[:-1], True)[: len(time)]
    return time[is_last], value[is_last]


def thin_curve(time: Ints, value: Ints, most: int | None = None) -> Curve:
    """Return a curve with at most `MAX_CHANGES` or ``most`` points, which keeps the maximum of each bin."""
    most, bins_at_most = (MAX_CHANGES, BINS) if most is None else (most, most // 2)
    if len(time) <= most:
        return time, value
    span = int(time[-1] - time[0]) + 1
    bins = (time - time[0]) // max(1, -(-span // bins_at_most))
    edges = run_edges(bins)
    first, last = edges[:-1], edges[1:] - 1
    peak = np.maximum.reduceat(value, first)
    times = np.stack((time[first], time[last]), axis=1).ravel()
    values = np.stack((peak, value[last]), axis=1).ravel()
    is_kept = np.append(times[1:] != times[:-1], True)  # one point for a bin with a single change
    return times[is_kept], values[is_kept]


def busy_share(start: Ints, end: Ints, span: Span = ALL_TIME) -> Curve:
    """Return the share of each of equal bins in which anything runs, in rounded percent."""
    first, last = max(int(start.min()), span[0]), min(int(end.max()), span[1])
    if last < first:
        return start[:0], start[:0]
    width = max(MIN_BIN_NS, -(-(last - first) // BUSY_BINS))
    bins = max(1, -(-(last - first) // width))
    edges = first + width * np.arange(bins + 1)
    share = np.rint(PERCENT * busy_times(start, end, edges) / width).astype(np.int64)
    return np.append(edges[:-1], last), np.append(share, 0)


def busy_times(start: Ints, end: Ints, edges: Ints) -> Ints:
    """Return the time in each bin during which any of the intervals is open."""
    starts, ends = _union(start, end)
    total_before = np.concatenate(([0], np.cumsum(ends - starts)))
    edge_position = np.searchsorted(starts, edges, side="right")
    remaining = np.maximum(ends[np.maximum(edge_position - 1, 0)] - edges, 0) * (edge_position > 0)
    result: Ints = np.diff(total_before[edge_position] - remaining)
    return result


def _union(start: Ints, end: Ints) -> Curve:
    """Return starts and ends of the union of intervals, which are sorted by start."""
    latest_end = np.maximum.accumulate(end)
    is_start = np.append(True, start[1:] > latest_end[:-1])
    return start[is_start], latest_end[np.append(is_start[1:], True)]


def curve_slices(name: str, curves: list[tuple[int, Curve]]) -> Slices:
    """Return curves with the same name, each on a track, as samples."""
    track = np.concatenate([np.full(len(time), home) for home, (time, _) in curves])
    time, value = (np.concatenate([curve[n] for _, curve in curves]) for n in (0, 1))
    name_column = NameColumn(np.zeros(len(time), np.int64), [name])
    spans = time, np.zeros_like(time)
    return make_slices(
        "counter",
        np.arange(len(time)),
        track=track,
        times=spans,
        name=name_column,
        args={"value": value},
    )


# -- Slices, arrows and timelines


DEVICE = ("kernel", "memcpy", "memset", "graph")  # kinds of slices on devices


@record
class NameColumn:
    """A column of names: a code per row of a frame, NONE for no name.

    The codes are of any integer type that has room for the names and NONE.
    """

    codes: Ints
    names: list[str]


@record
class Chain:
    """A path per row: the name of ``node`` after the path of its ``parent``."""

    node: Ints
    parent: Ints
    name: NameColumn

    def levels(self, rows: Ints) -> list[Ints]:
        """Return the nodes on the paths of some rows, level by level from the roots down."""
        nodes = self._reached(rows)
        level = levels(self.parent)[nodes]
        narrow = level.astype(np.min_scalar_type(level.max(initial=0)))  # NumPy sorts it by radix
        order = np.argsort(narrow, kind="stable")
        return np.split(nodes[order], np.cumsum(np.bincount(level))[:-1])

    def _reached(self, rows: Ints) -> Ints:
        """Return the nodes of some rows and their ancestors, in order."""
        reached = np.zeros(len(self.parent) + 1, bool)
        reached[self.node[rows]] = True  # the last entry is for rows without a node
        nodes = np.flatnonzero(reached[:-1])
        reached[-1] = True
        while len(nodes):
            above = self.parent[nodes]
            above = above[~reached[above]]
            # Siblings are beside each other: those above them once.
            nodes = above[run_edges(above)[:-1]]
            reached[nodes] = True
        return np.flatnonzero(reached[:-1])


@record
class Json:
    """A column of JSON values: a code per row into ``texts``, NONE for no value.

    ``numbers`` is whether all values are numbers.
    """

    codes: Ints
    texts: list[str]
    numbers: bool = False

    @classmethod
    def reals(cls, values: NDArray[np.float64], digits: int) -> Json:
        """Return numbers rounded to ``digits``; NaN becomes no value."""
        rows = ~np.isnan(values)
        distinct, codes = np.unique(np.round(values[rows], digits), return_inverse=True)
        result = scatter(codes, rows, len(values))
        return cls(result, [repr(value) for value in distinct.tolist()])


@record
class ListColumn:
    """A list of integers per row, such as the three sizes of a grid."""

    columns: tuple[Ints, ...]


Column = Ints | NameColumn | Chain | Json | ListColumn


@record
class Slices:
    """Slices of one kind, drawn from the rows of a frame.

    ``rows`` are the rows to draw, sorted by track and start, outer before inner; the other columns
    are those of the whole frame. ``args`` are shown when a slice is clicked. ``kind`` is the name
    of the category; ``role`` is what the slices are in every dialect: op, api, kernel (any
    activity), step, phase, mark, …
    """

    kind: str
    rows: Ints
    track: Ints
    start: Ints
    duration: Ints
    name: NameColumn
    args: Mapping[str, Column] = field(default_factory=dict)
    role: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, has_flag: Flags) -> Slices:
        """Return the slices whose row has the flag; there is a flag per row of the frame."""
        if has_flag.all():
            return self
        return replace(self, rows=self.rows[has_flag[self.rows]])

    def rows_by_end(self) -> Ints:
        """Return the rows that have a length, in order of their ends per track."""
        rows = self.rows[self.duration[self.rows] > 0]
        return rows[order_by(self.track[rows], self.start[rows] + self.duration[rows])]

    def boundaries(self) -> tuple[Ints, Flags]:
        """Return the rows at each begin and end, in order per track, and whether each is an end.

        At the same time slices end first, inner before outer, then slices begin, outer before
        inner; a slice of length 0 ends at once.
        """
        rows, position = self.rows, np.arange(1, len(self.rows) + 1)
        track, start, length = self.track[rows], self.start[rows], self.duration[rows]
        rank = np.concatenate((position, np.where(length > 0, -position, position)))
        is_end = np.repeat(np.array([0, 1]), len(rows))
        order = order_by(np.tile(track, 2), np.concatenate((start, start + length)), rank, is_end)
        return np.tile(rows, 2)[order], is_end[order] == 1


@record
class Arrows:
    """Arrows op → API call → activity, one for each of the ``rows`` of activities with a call.

    ``call`` is the row of the call of each activity, ``op`` that of the range around the call, or
    NONE.
    """

    rows: Ints
    op: Ints
    call: Ints
    ops: Slices
    calls: Slices
    activities: Slices

    @classmethod
    def to_launched(cls, call: Ints, ops: Slices, calls: Slices, activities: Slices) -> Arrows:
        """Return arrows from calls to all activities that they launched, without ops."""
        op = repeated(NONE, len(call))
        return cls(
            rows=np.flatnonzero(call != NONE),
            op=op,
            call=call,
            ops=ops,
            calls=calls,
            activities=activities,
        )

    @property
    def single_calls(self) -> Flags:
        """Which calls are the only one of their op, or have none, and precede what they launched."""
        call, op = self.call[self.rows], self.op[self.rows]
        last_call = scatter(call, op, len(self.ops.start) + 1)  # with an entry for no op
        is_other = (op != NONE) & (call != last_call[op])
        has_others = np.zeros(len(last_call), bool)
        has_others[op[is_other]] = True
        runs_back = self.activities.start[self.rows] < self.calls.start[call]
        result = np.ones(len(self.calls.start), bool)
        result[call[has_others[op] | runs_back]] = False
        return result


@record
class Links:
    """Arrows between slices of one kind, from the row ``first`` to the row ``second``."""

    kind: str
    first: Ints
    second: Ints
    slices: Slices

    def among(self, slices: Slices) -> Links:
        """Return the links between slices that have a track."""
        is_drawn = (slices.track[self.first] != NONE) & (slices.track[self.second] != NONE)
        return replace(
            self, first=self.first[is_drawn], second=self.second[is_drawn], slices=slices
        )


@dataclass(frozen=True)
class Timeline:
    """Everything to draw; ``base`` is the time in ns that is subtracted from all others.

    ``counters`` are curves: slices of length 0 whose argument ``value``, integers or JSON, is
    drawn. ``links`` are arrows other than those to activities, ``instants`` are events of length 0
    with arguments. ``left_out`` is the number of slices beyond the limit.
    """

    base: int
    tracks: list[Track]
    slices: list[Slices]
    phases: Slices
    marks: Slices
    counters: list[Slices]
    arrows: Arrows
    links: tuple[Links, ...] = ()
    instants: tuple[Slices, ...] = ()
    left_out: int = 0

    def largest(self) -> list[tuple[str, int]]:
        """Return the roles of slices and how many there are of each, the most first."""
        count: dict[str, int] = {}
        for slices in self.all_slices():
            count[slices.role] = count.get(slices.role, 0) + len(slices)
        return sorted(count.items(), key=lambda item: (-item[1], item[0]))

    def of_process(self, report: int, process: int) -> Timeline:
        """Return what belongs to one process of a file, with tracks renumbered."""
        return self.of_processes([(report, process)])

    def of_processes(self, selected: Collection[tuple[int, int]]) -> Timeline:
        """Return what belongs to these processes, each (file, process), with tracks renumbered."""
        is_selected = [(t.group.report, t.group.process) in selected for t in self.tracks]
        new_number = np.append(np.where(is_selected, np.cumsum(is_selected) - 1, NONE), NONE)

        def filter_slices(s: Slices) -> Slices:
            track = new_number[s.track]
            return replace(s, track=track, rows=s.rows[track[s.rows] != NONE])

        activities, calls, ops = map(
            filter_slices, (self.arrows.activities, self.arrows.calls, self.arrows.ops)
        )
        rows = self.arrows.rows[activities.track[self.arrows.rows] != NONE]
        return replace(
            self,
            tracks=[
                track for track, is_owned in zip(self.tracks, is_selected, strict=True) if is_owned
            ],
            slices=[filter_slices(s) for s in self.slices],
            phases=filter_slices(self.phases),
            marks=filter_slices(self.marks),
            counters=[filter_slices(s) for s in self.counters],
            instants=tuple(filter_slices(s) for s in self.instants),
            arrows=replace(self.arrows, rows=rows, activities=activities, calls=calls, ops=ops),
            links=tuple(links.among(filter_slices(links.slices)) for links in self.links),
        )

    def by(self, offset: Ints) -> Timeline:
        """Return the timeline on a common clock: ``offset`` in ns is added per file."""
        offset_of_track = np.append([offset[t.group.report] for t in self.tracks], 0).astype(
            np.int64
        )

        def shift(s: Slices) -> Slices:
            return replace(s, start=s.start + offset_of_track[s.track])

        arrows = replace(
            self.arrows,
            ops=shift(self.arrows.ops),
            calls=shift(self.arrows.calls),
            activities=shift(self.arrows.activities),
        )
        return replace(
            self,
            slices=[shift(s) for s in self.slices],
            phases=shift(self.phases),
            marks=shift(self.marks),
            counters=[shift(s) for s in self.counters],
            instants=tuple(shift(s) for s in self.instants),
            links=tuple(replace(links, slices=shift(links.slices)) for links in self.links),
            arrows=arrows,
        )

    def all_slices(self) -> Iterator[Slices]:
        """Yield all kinds of slices, including phases."""
        yield from self.slices
        yield self.phases


def make_slices(
    kind: str,
    rows: Ints,
    track: Ints,
    times: tuple[Ints, Ints],
    name: NameColumn,
    args: Mapping[str, Column] | None = None,
) -> Slices:
    """Return slices with rows in drawing order; their role is their kind."""
    start, duration = times
    if is_sorted(rows) and len(rows) == len(start):  # all rows: what follows needs no copies
        rows = outer_first_order(track, start, start + duration)
    else:
        rows = rows[outer_first_order(track[rows], start[rows], (start + duration)[rows])]
    return Slices(
        kind=kind,
        rows=rows,
        track=track,
        start=start,
        duration=duration,
        name=name,
        args=args or {},
        role=kind,
    )


def shift_tracks(s: Slices, *, by: int) -> Slices:
    """Return slices with track numbers shifted by ``by``."""
    return replace(s, track=each(lambda track: np.where(track == NONE, NONE, track + by), s.track))


def times(table: frames.Timed) -> tuple[Ints, Ints]:
    """Return starts and durations; the duration is 0 where the end is before the start."""
    start, end = table.start, table.end
    duration = end - start
    return start, np.maximum(duration, 0, out=duration)


def name_column(column: Names, empty: str | None = None) -> NameColumn:
    """Return a column of names of a frame; the name ``empty`` counts as no name.

    The codes are as narrow as those of the frame, and not copied.
    """
    names, codes = column.texts, column.compact
    if empty in names:
        codes = np.where(codes == names.index(empty), NONE, codes)
    return NameColumn(codes, names)
