"""What is drawn of devices: their work per stream, and above it the ops as the device saw them."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pandas as pd

from bridge.analyze.groups import Floats, counts, highest, lowest, sums
from bridge.analyze.metrics.values import HEADLINES, MATCH, SURE, wanted
from bridge.analyze.timeline.parts import Chain, Column, Json, Named, Slices, drawn, named, times
from bridge.analyze.tracks import Tracks, apart, nested
from bridge.join.arrays import NONE, Ints, number, stable
from bridge.join.attributed import Attributed
from bridge.join.attribution import ATTRIBUTED, REASONS
from importers import frames

# -- What Nsight Compute measured of kernels, as arguments of their slices: the metrics with short names


DIGITS = 6  # that tell


def metric_args(joined: Attributed) -> dict[str, Column]:
    """Return a column per metric that any kernel has, called ``occupancy (%)``, and how sure they are its own."""
    metrics = joined.report.metrics
    if not len(metrics):
        return {}
    found: dict[str, Column] = {}
    for name, one in zip(HEADLINES, wanted(joined.report, tuple(HEADLINES)), strict=True):
        there = ~np.isnan(one.numbers)
        if there.any():
            codes = np.append(np.where(there, np.arange(len(there)), NONE), NONE)
            called = f"{name} ({one.unit})" if one.unit else name
            found[called] = Json(codes[metrics.of], _written(one.numbers), numbers=True)
    if found and len(metrics.sure):
        found[MATCH] = Named(metrics.sure, list(SURE))
    return found


def _written(numbers: Floats) -> list[str]:
    """Write counts whole, others with the digits that tell."""
    return [
        str(int(n)) if n == int(n) else f"{float(f'{n:.{DIGITS}g}')!r}"
        for n in np.nan_to_num(numbers).tolist()
    ]


# -- What is drawn of devices: their work per stream, and above it the ops as the device saw them


SHOWN = {  # what each kind of activity shows besides its op
    "kernel": (
        "grid_x grid_y grid_z block_x block_y block_z registers shared_static shared_dynamic".split()
    ),
    "memcpy": ["bytes", "from", "to"],
    "memset": ["bytes", "to"],
    "graph": ["graph"],
}
COUNTED = ("kernel", "graph")  # of which Nsight Compute has metrics
MEMORIES = {"from": "source_kind", "to": "target_kind"}
FEWEST = 2  # activities of a projected op: a single one tells its op itself


def activities(joined: Attributed, tracks: Tracks) -> Slices:
    """Draw all work of devices on its streams."""
    table = joined.report.activities
    stream = tracks.of_activities
    start, duration = times(table)
    track = tracks.lane(stream, apart(stream, start, start + duration), "stream")
    node, reason = joined.attribution.node, joined.attribution.reason
    ops = list(joined.ops)
    args: dict[str, Column] = {
        "op": Named(joined.activity_op, ops),
        "path": Chain(node, joined.attribution.nesting.parent, Named(joined.node_op, ops)),
        "reason": Named(np.where(reason == ATTRIBUTED, NONE, reason), list(REASONS)),
        "correlation": frames.ints(table, "correlation"),
    }
    rows = np.arange(len(table))
    return drawn("kernel", rows, track, (start, duration), named(table["name"]), args)


def kinds(joined: Attributed, everything: Slices) -> list[Slices]:
    """Part what ran on devices by kind; each shows its own arguments, kernels also what was measured of them."""
    table, counters = joined.report.activities, metric_args(joined)
    return [
        replace(
            everything.only(frames.is_kind(table, word)),
            kind=word,
            args={
                **everything.args,
                **{name: _shown(table, name) for name in shown},
                **(counters if word in COUNTED else {}),
            },
        )
        for word, shown in SHOWN.items()
    ]


def projections(joined: Attributed, tracks: Tracks) -> Slices:
    """Draw each op range on every stream where it has work: from its first activity's start to the last one's end.

    One with a single activity there is left out: the activity itself names its op.
    """
    found = _Projected.of(joined, tracks)
    nesting = joined.attribution.nesting
    lane = nested(found.stream, found.start, found.end)
    track = tracks.lane(found.stream, lane, "projection")
    name = named(joined.report.ranges["name"])
    shown = Named(name.codes[nesting.range[found.node]], name.names)
    rows = np.arange(len(found.node))
    spans = found.start, found.end - found.start
    return drawn("projection", rows, track, spans, shown, {"activities": found.activities})


class _Projected:
    """Projections as columns: node, stream (a home of tracks), first start, last end, activities."""

    def __init__(self, node: Ints, stream: Ints, start: Ints, end: Ints, activities: Ints) -> None:
        self.node, self.stream, self.start, self.end = node, stream, start, end
        self.activities = activities

    @classmethod
    def of(cls, joined: Attributed, tracks: Tracks) -> _Projected:
        """Project all ranges, level by level up from those that launched."""
        rows = np.flatnonzero(joined.node != NONE)
        start = frames.ints(joined.report.activities, "start")[rows]
        stream = tracks.of_activities[rows]
        ones = np.ones(len(rows), np.int64)
        nesting = joined.attribution.nesting
        own = joined.node[rows]
        # What is alone in its range is drawn from the next one up: most ranges launch one kernel.
        alone = counts(own, len(nesting))[own] == 1
        alone &= ~np.isin(own, nesting.parent)
        left = cls(np.where(alone, nesting.parent[own], own), stream, start, joined.end[rows], ones)
        left = left.taken(left.node != NONE)
        found, above = [], left.taken(np.zeros(0, np.int64))
        for level in reversed(left.parted(nesting.levels()[left.node])):
            one = _joined([level, above]).grouped()
            found.append(one.taken(one.activities >= FEWEST))
            above = cls(nesting.parent[one.node], *one.figures)
        # Outer ones first: of equal intervals the earlier is drawn around the later.
        return _joined(found[::-1] or [left])

    @property
    def figures(self) -> tuple[Ints, Ints, Ints, Ints]:
        """All columns but the node."""
        return self.stream, self.start, self.end, self.activities

    def taken(self, rows: np.ndarray) -> _Projected:
        """Return some of them."""
        return _Projected(self.node[rows], *(column[rows] for column in self.figures))

    def parted(self, level: Ints) -> list[_Projected]:
        """Return those of each level, from 0 on."""
        order = stable(level)
        edges = np.searchsorted(level[order], np.arange(level.max(initial=NONE) + 2))
        return [self.taken(order[first:last]) for first, last in pairwise(edges)]

    def grouped(self) -> _Projected:
        """Make one of all that have a node and a stream in common."""
        group, row = number(self.node, self.stream)
        size = len(row)
        return _Projected(
            self.node[row],
            self.stream[row],
            lowest(group, self.start, size),
            highest(group, self.end, size),
            sums(group, self.activities, size),
        )


def _joined(parts: list[_Projected]) -> _Projected:
    columns = zip(*((part.node, *part.figures) for part in parts), strict=True)
    return _Projected(*map(np.concatenate, columns))


def _shown(table: pd.DataFrame, name: str) -> Column:
    if name in MEMORIES:
        return Named(frames.ints(table, MEMORIES[name]), list(frames.MEMORY_KINDS))
    return frames.ints(table, name)
