"""The unified timeline: what is drawn on which track, and the arrows between.

Host tracks are grouped by process, device tracks by (process, device); every capture has its own.
Times are rebased to the first event, for viewers read them as doubles of microseconds.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from bridge.analyze.timeline import allocated, curves, device, host, parts
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
    tracks = Tracks(joined.report)
    of_devices = tracks.of_devices()
    with ThreadPoolExecutor(1) as other:  # sorting goes on beside sorting
        started = other.submit(_of_devices, joined, of_devices, selection)
        steps, ops, calls = (draw(joined, tracks) for draw in (host.steps, host.ops, host.calls))
        phases = host.phases(joined, tracks)
        marks, counters = host.marks(joined, tracks)
        everything, on_devices, samples = started.result()
    own = [] if selection.slim else [host.overhead(joined, tracks)]
    held = [] if selection.slim else _memory(joined, tracks, of_devices, selection)
    behind = partial(parts.moved, by=len(tracks.made))
    everything, on_devices = behind(everything), [behind(s) for s in on_devices]
    whole = Timeline(
        base=joined.report.began,
        tracks=[*tracks.made, *of_devices.made],
        slices=[steps, ops, calls, *own, *on_devices],
        phases=phases,
        marks=marks,
        counters=[*(behind(s) for s in samples), *held, *counters],
        arrows=_arrows(joined, ops, calls, everything),
    )
    return selection.of(whole)


def _of_devices(
    joined: Attributed, tracks: Tracks, selection: Selection
) -> tuple[Slices, list[Slices], list[Slices]]:
    """Draw all activities, then these by kind and what is above them, and the curves."""
    everything = device.activities(joined, tracks)
    kinds = device.kinds(joined, everything)
    if selection.slim:
        return everything, kinds, []
    kinds.append(device.projections(joined, tracks))
    return everything, kinds, curves.of_devices(joined, tracks, selection.span)


def _memory(
    joined: Attributed, tracks: Tracks, of_devices: Tracks, selection: Selection
) -> list[Slices]:
    return allocated.of_memory(joined, of_devices, tracks.made, selection.span)


def _arrows(joined: Attributed, ops: Slices, calls: Slices, activities: Slices) -> Arrows:
    found = joined.attribution
    of_node = np.append(found.nesting.range, NONE)
    arrows = Arrows.to_launched(found.launch, ops, calls, activities)
    return replace(arrows, op=of_node[found.launched_in])
