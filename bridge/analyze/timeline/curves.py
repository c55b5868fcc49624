"""Curves of each device: activities running, waiting in its queue, how busy it is, how far behind the host.

Exact up to `MOST` changes of a curve. Where there are more, time is cut in equal bins, and each gives its
highest value and the last one, so that no peak and no level is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from bridge.analyze.timeline.parts import Named, Slices, drawn
from bridge.analyze.tracks import Tracks
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints, by, runs
from importers import frames

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
