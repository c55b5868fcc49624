"""What a timeline is made of: slices on tracks, curves, and arrows between slices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.analyze.tracks import Track, Tracks
from bridge.join.arrays import NONE, Flags, Ints, by, outer_first, runs
from bridge.join.attributed import Attributed
from importers import frames

# -- Curves of each device: activities running, waiting in its queue, how busy it is, how far behind the host


MOST = 10_000  # changes of a curve that are drawn one by one
BINS = 5_000  # of two samples each
BUSY_BINS = 1_000
SHORTEST_BIN = 1_000  # ns
PERCENT = 100
RUNNING, QUEUED, BUSY, BEHIND = "running", "queued", "GPU busy (%)", "behind the host (ns)"

Span = tuple[int, int]  # from the first to before the last, in ns
EVER = (int(np.iinfo(np.int64).min), int(np.iinfo(np.int64).max))
Curve = tuple[Ints, Ints]  # times in ns, and the value from each on


def ever(_report: int) -> Span:
    """Return the whole time of a report."""
    return EVER


def of_devices(
    joined: Attributed, tracks: Tracks, span: Callable[[int], Span] = ever
) -> list[Slices]:
    """Return the curves of all devices within a span of time of each report, a kind at a time."""
    activities = joined.report.activities
    device, homes = tracks.devices_of(activities)
    found: dict[str, list[tuple[int, Curve]]] = {RUNNING: [], QUEUED: [], BUSY: [], BEHIND: []}
    order = by(device, frames.ints(activities, "start"))
    for home, (first, last) in zip(homes, pairwise(runs(device[order]).tolist()), strict=True):
        report = int(activities["report"].iloc[order[first]])
        for name, curve in _of_device(joined, order[first:last], span(report)):
            found[name].append((home, curve))
    return [shown(name, of) for name, of in found.items() if of]


def _of_device(joined: Attributed, rows: Ints, span: Span) -> Iterator[tuple[str, Curve]]:
    """Return the curves of one device's activities, given in order of their starts."""
    start, end = frames.ints(joined.report.activities, "start")[rows], joined.end[rows]
    yield RUNNING, thinned(*within(level(start, end), span))
    yield BUSY, busy_share(start, end, span)
    launch = joined.attribution.launch[rows]
    launched = np.flatnonzero(launch != NONE)
    if len(launched):
        calls = joined.report.launches
        called = frames.ints(calls, "start")[launch[launched]]
        returned = frames.ints(calls, "end")[launch[launched]]
        yield QUEUED, thinned(*within(level(called, end[launched]), span))
        behind = start[launched], start[launched] - returned
        yield BEHIND, thinned(*_inside(behind, span))


def within(curve: Curve, span: Span) -> Curve:
    """Return a curve within a span, that begins with the value it had before."""
    time, value = curve
    before = int(np.searchsorted(time, span[0], side="right")) - 1
    inside = _inside(curve, span)
    if before < 0 or time[before] == span[0]:
        return inside
    return np.append(span[0], inside[0]), np.append(value[before], inside[1])


def _inside(curve: Curve, span: Span) -> Curve:
    time, value = curve
    inside = (time >= span[0]) & (time < span[1])
    return time[inside], value[inside]


def level(start: Ints, end: Ints) -> Curve:
    """Return how many intervals are open, at each time when that changes."""
    long = end > start
    when = np.concatenate((start[long], end[long]))
    change = np.concatenate((np.ones(long.sum(), np.int64), np.full(long.sum(), -1)))
    order = by(when)
    when, value = when[order], np.cumsum(change[order])
    last = np.append(when[1:] != when[:-1], True)[: len(when)]
    return when[last], value[last]


def thinned(time: Ints, value: Ints) -> Curve:
    """Return a curve that is short enough to be drawn."""
    if len(time) <= MOST:
        return time, value
    span = int(time[-1] - time[0]) + 1
    bins = (time - time[0]) // max(1, -(-span // BINS))
    edges = runs(bins)
    first, last = edges[:-1], edges[1:] - 1
    peak = np.maximum.reduceat(value, first)
    when = np.stack((time[first], time[last]), axis=1).ravel()
    what = np.stack((peak, value[last]), axis=1).ravel()
    kept = np.append(when[1:] != when[:-1], True)  # of a bin with one change only that
    return when[kept], what[kept]


def busy_share(start: Ints, end: Ints, span: Span = EVER) -> Curve:
    """Return the share of each of equal bins in which anything runs, in per cent, rounded."""
    begin, over = max(int(start.min()), span[0]), min(int(end.max()), span[1])
    if over < begin:
        return start[:0], start[:0]
    width = max(SHORTEST_BIN, -(-(over - begin) // BUSY_BINS))
    bins = max(1, -(-(over - begin) // width))
    edges = begin + width * np.arange(bins + 1)
    share = np.rint(PERCENT * in_bins(start, end, edges) / width).astype(np.int64)
    return np.append(edges[:-1], over), np.append(share, 0)


def in_bins(start: Ints, end: Ints, edges: Ints) -> Ints:
    """Return the time in each bin between edges in which any of the intervals is open, exactly."""
    opened, closed = _union(start, end)
    before = np.concatenate(([0], np.cumsum(closed - opened)))
    place = np.searchsorted(opened, edges, side="right")
    inside = np.maximum(closed[np.maximum(place - 1, 0)] - edges, 0) * (place > 0)
    spent: Ints = np.diff(before[place] - inside)
    return spent


def _union(start: Ints, end: Ints) -> Curve:
    """Return where the union of intervals, given in order of their starts, begins and ends."""
    reached = np.maximum.accumulate(end)
    new = np.append(True, start[1:] > reached[:-1])
    return start[new], reached[np.append(new[1:], True)]


def shown(name: str, of: list[tuple[int, Curve]]) -> Slices:
    """Return curves of one name, each on a track, as samples."""
    track = np.concatenate([np.full(len(time), home) for home, (time, _) in of])
    time, value = (np.concatenate([curve[n] for _, curve in of]) for n in (0, 1))
    named = Named(np.zeros(len(time), np.int64), [name])
    spans = time, np.zeros_like(time)
    return drawn("counter", np.arange(len(time)), track, spans, named, {"value": value})


# -- What a timeline is made of: slices on tracks, curves, and arrows between slices


DEVICE = ("kernel", "memcpy", "memset", "graph")  # kinds of slices that ran on a device


@dataclass(frozen=True)
class Named:
    """A column of names: a code per row of a frame, NONE for no name."""

    codes: Ints
    names: list[str]


@dataclass(frozen=True)
class Chain:
    """A path per row: the name of ``node``, after those of its ``parent``, and so on up."""

    node: Ints
    parent: Ints
    name: Named


@dataclass(frozen=True)
class Json:
    """A column of JSON values: a code per row into their texts, NONE for none; whether all are ``numbers``."""

    codes: Ints
    texts: list[str]
    numbers: bool = False

    @classmethod
    def reals(cls, values: NDArray[np.float64], digits: int) -> Json:
        """Return numbers rounded to so many digits; NaN is none."""
        there = ~np.isnan(values)
        distinct, codes = np.unique(np.round(values[there], digits), return_inverse=True)
        found = np.full(len(values), NONE)
        found[there] = codes
        return cls(found, [repr(value) for value in distinct.tolist()])


@dataclass(frozen=True)
class Listed:
    """A list of integers per row, such as the three sizes of a grid."""

    columns: tuple[Ints, ...]


Column = Ints | Named | Chain | Json | Listed


@dataclass(frozen=True)
class Slices:
    """Slices of one kind, drawn from the rows of a frame.

    ``rows`` are those drawn, by track and start, outer before inner; all columns are the frame's own,
    untouched. ``args`` are shown when a slice is clicked. ``kind`` is what it is called, ``role`` what it
    is, in every dialect: op, api, kernel (whatever ran on a device), step, phase, mark, …
    """

    kind: str
    rows: Ints
    track: Ints
    start: Ints
    duration: Ints
    name: Named
    args: Mapping[str, Column] = field(default_factory=dict)
    role: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def only(self, drawn: Flags) -> Slices:
        """Return those whose row is to be drawn; a flag per row of the frame."""
        return replace(self, rows=self.rows[drawn[self.rows]])

    def boundaries(self) -> tuple[Ints, Flags]:
        """Return the rows that begin or end, those of a track in order, and which of the two each does.

        At one time first ends what began before, inner before outer, then begins what begins, outer before
        inner; what has no length ends at once.
        """
        rows, place = self.rows, np.arange(1, len(self.rows) + 1)
        track, start, length = self.track[rows], self.start[rows], self.duration[rows]
        rank = np.concatenate((place, np.where(length > 0, -place, place)))
        is_end = np.repeat(np.array([0, 1]), len(rows))
        order = by(np.tile(track, 2), np.concatenate((start, start + length)), rank, is_end)
        return np.tile(rows, 2)[order], is_end[order] == 1


@dataclass(frozen=True)
class Arrows:
    """Arrows op → API call → activity: one per row of ``activities`` that has a call.

    ``call`` is the row of each activity's call, ``op`` that of the range around the call, or NONE.
    """

    rows: Ints
    op: Ints
    call: Ints
    ops: Slices
    calls: Slices
    activities: Slices

    @classmethod
    def to_launched(cls, call: Ints, ops: Slices, calls: Slices, activities: Slices) -> Arrows:
        """Return arrows from calls to all that they launched, from no op."""
        op = np.full(len(call), NONE)
        return cls(np.flatnonzero(call != NONE), op, call, ops, calls, activities)


@dataclass(frozen=True)
class Links:
    """Arrows between slices of one kind, from the row ``first`` to the row ``then``."""

    kind: str
    first: Ints
    then: Ints
    slices: Slices

    def among(self, slices: Slices) -> Links:
        """Return those between slices that have a track."""
        both = (slices.track[self.first] != NONE) & (slices.track[self.then] != NONE)
        return replace(self, first=self.first[both], then=self.then[both], slices=slices)


@dataclass(frozen=True)
class Timeline:
    """All there is to draw; ``base`` is the time in ns to be taken off every other.

    ``counters`` are curves: slices without length whose argument ``value``, integers or JSON, is drawn. ``links`` are arrows
    beside those that lead to activities, ``instants`` events without length that have arguments. ``left_out`` counts the
    slices that were too many.
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

    def of_process(self, report: int, process: int) -> Timeline:
        """Return what one process of one capture has, on tracks numbered anew."""
        return self.of_processes([(report, process)])

    def of_processes(self, kept: Collection[tuple[int, int]]) -> Timeline:
        """Return what some processes (of a capture each) have, on tracks numbered anew."""
        owned = [(t.group.report, t.group.process) in kept for t in self.tracks]
        place = np.append(np.where(owned, np.cumsum(owned) - 1, NONE), NONE)

        def own(s: Slices) -> Slices:
            track = place[s.track]
            return replace(s, track=track, rows=s.rows[track[s.rows] != NONE])

        activities, calls, ops = map(
            own, (self.arrows.activities, self.arrows.calls, self.arrows.ops)
        )
        rows = self.arrows.rows[activities.track[self.arrows.rows] != NONE]
        return replace(
            self,
            tracks=[track for track, mine in zip(self.tracks, owned, strict=True) if mine],
            slices=[own(s) for s in self.slices],
            phases=own(self.phases),
            marks=own(self.marks),
            counters=[own(s) for s in self.counters],
            instants=tuple(own(s) for s in self.instants),
            arrows=replace(self.arrows, rows=rows, activities=activities, calls=calls, ops=ops),
            links=tuple(links.among(own(links.slices)) for links in self.links),
        )

    def by(self, offset: Ints) -> Timeline:
        """Return the same on one clock: ``offset`` is what each report's lacks of it, in ns."""
        of = np.append([offset[t.group.report] for t in self.tracks], 0).astype(np.int64)

        def timed(s: Slices) -> Slices:
            return replace(s, start=s.start + of[s.track])

        arrows = replace(
            self.arrows,
            ops=timed(self.arrows.ops),
            calls=timed(self.arrows.calls),
            activities=timed(self.arrows.activities),
        )
        return replace(
            self,
            slices=[timed(s) for s in self.slices],
            phases=timed(self.phases),
            marks=timed(self.marks),
            counters=[timed(s) for s in self.counters],
            instants=tuple(timed(s) for s in self.instants),
            links=tuple(replace(one, slices=timed(one.slices)) for one in self.links),
            arrows=arrows,
        )

    def every(self) -> Iterator[Slices]:
        """Return all kinds of slices, those of phases too."""
        yield from self.slices
        yield self.phases


def drawn(
    kind: str,
    rows: Ints,
    track: Ints,
    times: tuple[Ints, Ints],
    name: Named,
    args: Mapping[str, Column] | None = None,
) -> Slices:
    """Put rows into drawing order; their role is their kind."""
    start, duration = times
    rows = rows[outer_first(track[rows], start[rows], (start + duration)[rows])]
    return Slices(kind, rows, track, start, duration, name, args or {}, kind)


def moved(s: Slices, *, by: int) -> Slices:
    """Return slices whose tracks come behind so many others."""
    return replace(s, track=np.where(s.track == NONE, NONE, s.track + by))


def times(table: pd.DataFrame) -> tuple[Ints, Ints]:
    """Return starts and durations; what ends before it starts is drawn without length."""
    start, end = frames.ints(table, "start"), frames.ints(table, "end")
    return start, np.maximum(end - start, 0)


def named(column: pd.Series, empty: str | None = None) -> Named:
    """Return a frame's names; ``empty`` ones count as none."""
    names, codes = list(column.cat.categories), frames.codes(column)
    if empty in names:
        codes = np.where(codes == names.index(empty), NONE, codes)
    return Named(codes, names)
