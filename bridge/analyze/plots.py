"""What pictures of a report show, as arrays: bars of ops, work over time, distributions of durations."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from bridge.analyze.devices import Devices
from bridge.analyze.groups import Floats, counts, sums
from bridge.analyze.overview.axis import Axis
from bridge.join.arrays import NONE, Ints, by, number
from bridge.join.attributed import Attributed
from bridge.join.attribution import ATTRIBUTED, REASONS
from importers import frames

PARTS = ("kernels, forward", "kernels, backward", "memcpys", "memsets", "graphs")
OTHER, OTHERS = "other op", "other ops"
NO_OP = "no op"
BINS = 400  # of time: finer than a column of a page can show
PER_DECADE = 20  # bins of durations
MOST_STREAMS = 12


@dataclass(frozen=True)
class Bars:
    """Time in ns by name (rows) and by part of `PARTS` (columns); the last ``reasons`` names are reasons."""

    names: list[str]
    parts: Ints
    reasons: int

    @property
    def total_ns(self) -> Ints:
        """Time in ns by name."""
        total: Ints = self.parts.sum(axis=1)
        return total

    @property
    def whole_ns(self) -> int:
        """Time in ns of all names."""
        return int(self.parts.sum())


@dataclass(frozen=True)
class Lanes:
    """How much of each bin of ``width_ns`` a lane works: shares by lane, group and bin.

    ``steps`` are the beginnings of steps, in ns from the start as all else; ``left`` counts lanes that are not shown.
    """

    lanes: list[str]
    groups: list[str]
    shares: Floats
    width_ns: int
    steps: Ints
    left: int

    @property
    def group_shares(self) -> list[float]:
        """How much each group works, over all lanes and bins."""
        shares: list[float] = self.shares.sum(axis=(0, 2)).tolist()
        return shares


@dataclass(frozen=True)
class Durations:
    """How many activities of each name took how long: counts by name and bin between ``edges_ns``."""

    names: list[str]
    counts: Ints
    total_ns: Ints
    edges_ns: Floats

    @property
    def activities(self) -> Ints:
        """How many activities there are by name."""
        total: Ints = self.counts.sum(axis=1)
        return total


def breakdown(joined: Attributed, top: int) -> Bars:
    """Return the ops with most time of their own, the others as one, then what has no op by its reason."""
    ops, reason, time = len(joined.ops), joined.attribution.reason, joined.duration
    group = np.where(reason == ATTRIBUTED, joined.activity_op, ops + reason)
    size = ops + len(REASONS)
    parts = sums(group * len(PARTS) + _part(joined), time, size * len(PARTS))
    parts = parts.reshape(size, len(PARTS))
    total = parts.sum(axis=1)
    ranked = by(-total[:ops])
    ranked = ranked[total[ranked] > 0]
    rows, rest = ranked[:top], ranked[top:]
    names = [joined.ops[row] for row in rows.tolist()]
    shown = [parts[rows]]
    if len(rest):
        names.append(f"{len(rest):,} {OTHER if len(rest) == 1 else OTHERS}")
        shown.append(parts[rest].sum(axis=0, keepdims=True))
    without = ops + np.flatnonzero(total[ops:] > 0)
    names += [list(REASONS)[row - ops].replace("_", " ") for row in without.tolist()]
    return Bars(names, np.concatenate([*shown, parts[without]]), len(without))


def over_time(joined: Attributed, top: int) -> Lanes:
    """Return what ran on each stream over time: the ops with most time apart, the others as one."""
    activities, time = joined.report.activities, joined.duration
    start, end = frames.ints(activities, "start"), joined.end
    axis = Axis(int(start.min(initial=0)), int(end.max(initial=0)))
    if len(start):
        axis = Axis(int(start.min()), int(end.max()))
    bins = axis.bins(BINS)
    lane, lanes = _lanes(joined)
    busiest = by(-sums(lane, time, len(lanes)))[:MOST_STREAMS]
    rank = np.full(len(lanes), NONE)
    rank[np.sort(busiest)] = np.arange(len(busiest))
    group, groups = _top_ops(joined, top)
    rows = np.flatnonzero(rank[lane] != NONE)
    piece, place, length = bins.spread(start[rows], end[rows])
    key = (rank[lane[rows]] * len(groups) + group[rows])[piece] * bins.count + place
    spent = sums(key, length, len(busiest) * len(groups) * bins.count)
    # Work that shares a stream may overlap: a bin is full at most.
    shares = spent.reshape(len(busiest), len(groups), bins.count) / bins.width
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
    began = joined.steps.start
    began = began[(began >= axis.start) & (began < axis.end)] - axis.start
    names = [lanes[n] for n in np.sort(busiest).tolist()]
    return Lanes(names, groups, shares, bins.width, began, len(lanes) - len(busiest))


def durations(joined: Attributed, top: int, op: str = "*") -> Durations:
    """Return how long activities took, of the names with most time, in ops that match a pattern.

    The pattern is of `fnmatch`; ``*`` also takes what has no op. What took no time has no place on a
    scale of logarithms and is left out.
    """
    wanted = np.array([*(fnmatchcase(name, op) for name in joined.ops), op == "*"], bool)
    rows = np.flatnonzero(wanted[joined.activity_op] & (joined.duration > 0))
    named = joined.report.activities["name"]
    name, time = frames.codes(named)[rows], joined.duration[rows]
    total = sums(name, time, len(named.cat.categories))
    ranked = by(-total)
    ranked = ranked[total[ranked] > 0][:top]
    rank = np.full(len(total), NONE)
    rank[ranked] = np.arange(len(ranked))
    shown = rank[name] != NONE
    place = np.floor(np.log10(time[shown]) * PER_DECADE).astype(np.int64)
    first, last = int(place.min(initial=0)), int(place.max(initial=0))
    if len(place):
        first = int(place.min())
    width = last - first + 1
    found = counts(rank[name[shown]] * width + place - first, len(ranked) * width)
    edges = 10.0 ** (np.arange(first, last + 2) / PER_DECADE)
    names = [named.cat.categories[n] for n in ranked.tolist()]
    return Durations(names, found.reshape(len(ranked), width), total[ranked], edges)


def _part(joined: Attributed) -> Ints:
    """Return which of `PARTS` each activity is."""
    kind = frames.codes(joined.report.activities["kind"])
    backward = np.append(joined.directions.backward, False)[joined.attribution.node]
    return np.where(kind == 0, backward.astype(np.int64), kind + 1)


def _top_ops(joined: Attributed, top: int) -> tuple[Ints, list[str]]:
    """Return the group of each activity: one of so many ops with most time, other ops, or no op."""
    op, ops = joined.activity_op, len(joined.ops)
    own = sums(op[op != NONE], joined.duration[op != NONE], ops)
    ranked = by(-own)
    ranked = ranked[own[ranked] > 0][:top]
    rank = np.full(ops + 1, len(ranked))
    rank[ranked] = np.arange(len(ranked))
    rank[ops] = len(ranked) + 1
    return rank[op], [*(joined.ops[o] for o in ranked.tolist()), OTHERS, NO_OP]


def _lanes(joined: Attributed) -> tuple[Ints, list[str]]:
    """Return the stream of each activity and the names of streams, devices in order."""
    devices, activities = Devices.of_report(joined), joined.report.activities
    process, stream = (frames.ints(activities, c) for c in ("process", "stream"))
    lane, rows = number(devices.of, process, stream)
    several = len(np.unique(process)) > 1
    names = [
        f"{devices.names[devices.of[row]]}, stream {stream[row]}"
        + (f", process {process[row] >> 24 & 0xFFFFFF}" if several else "")
        for row in rows.tolist()
    ]
    return lane, names
