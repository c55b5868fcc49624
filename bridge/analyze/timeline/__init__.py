"""The unified timeline: what is drawn on which track, and the arrows between.

Host tracks are grouped by process, device tracks by (process, device); every capture has its own.
Times are rebased to the first event, for viewers read them as doubles of microseconds.
"""

from __future__ import annotations

import numpy as np

from bridge.analyze.timeline import curves, device, host
from bridge.analyze.timeline.parts import (
    Arrows,
    Chain,
    Column,
    Json,
    Links,
    Listed,
    Named,
    Slices,
    Timeline,
)
from bridge.analyze.timeline.selection import WHOLE, Selection
from bridge.analyze.tracks import Tracks
from bridge.join.attributed import Attributed
from bridge.join.order import NONE

__all__ = [
    "WHOLE",
    "Arrows",
    "Chain",
    "Column",
    "Json",
    "Links",
    "Listed",
    "Named",
    "Selection",
    "Slices",
    "Timeline",
    "timeline",
]


def timeline(joined: Attributed, selection: Selection = WHOLE) -> Timeline:
    """Lay out a report, or what is selected of it."""
    base = min(facts.span[0] for facts in joined.report.facts)
    tracks = Tracks(joined.report)
    steps, ops, calls = (draw(joined, tracks) for draw in (host.steps, host.ops, host.calls))
    everything = device.activities(joined, tracks)
    slices = [steps, ops, calls, *device.kinds(joined, everything)]
    samples = []
    if not selection.slim:
        slices.append(device.projections(joined, tracks))
        samples = curves.of_devices(joined, tracks, selection.span)
    phases = host.phases(joined, tracks)
    marks, counters = host.marks(joined, tracks)
    arrows = _arrows(joined, ops, calls, everything)
    samples += counters
    return selection.of(Timeline(base, tracks.made, slices, phases, marks, samples, arrows))


def _arrows(joined: Attributed, ops: Slices, calls: Slices, activities: Slices) -> Arrows:
    found = joined.attribution
    of_node = np.append(found.nesting.range, NONE)
    rows = np.flatnonzero(found.launch != NONE)
    return Arrows(rows, of_node[found.launched_in], found.launch, ops, calls, activities)
