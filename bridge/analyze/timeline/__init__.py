"""The unified timeline: what is drawn on which track, and the arrows between.

Host tracks are grouped by process, device tracks by (process, device); every capture has its own.
Times are rebased to the first event, for viewers read them as doubles of microseconds; several captures are drawn
on one clock.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np

from bridge.analyze.concurrency.clocks import Clocks
from bridge.analyze.ranks import Ranks
from bridge.analyze.timeline import device, host, parts
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
from bridge.join.arrays import NONE
from bridge.join.attributed import Attributed

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
    "lasting",
    "of_ranks",
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
    whole = of_ranks(joined, aligned(joined, whole), selection)
    return (selection.by(Clocks.of(joined)) if selection.windows else selection).of(whole)


def aligned(joined: Attributed, whole: Timeline) -> Timeline:
    """Draw all captures on the clock of the reference."""
    clocks = Clocks.of(joined)
    if not clocks.moves:
        return whole
    return replace(whole.by(clocks.offset), base=_edges(joined, clocks)[0])


def lasting(joined: Attributed) -> int:
    """Return how long all captures together last on one clock, in ns."""
    first, last = _edges(joined, Clocks.of(joined))
    return last - first


def _edges(joined: Attributed, clocks: Clocks) -> tuple[int, int]:
    spans = [*zip(joined.report.facts, clocks.offset.tolist(), strict=True)]
    firsts, lasts = ([facts.span[n] + more for facts, more in spans] for n in (0, 1))
    return min(firsts), max(lasts)


def of_ranks(joined: Attributed, whole: Timeline, selection: Selection) -> Timeline:
    """Return what the ranks asked for have, all without any; ValueError, for the user, for one that is not there."""
    if not selection.ranks:
        return whole
    return whole.of_processes(Ranks.of(joined.report, joined.place).chosen(selection.ranks))


def _of_devices(
    joined: Attributed, tracks: Tracks, selection: Selection
) -> tuple[Slices, list[Slices], list[Slices]]:
    """Draw all activities, then these by kind and what is above them, and the curves."""
    everything = device.activities(joined, tracks)
    kinds = device.kinds(joined, everything)
    if selection.slim:
        return everything, kinds, []
    kinds.append(device.projections(joined, tracks))
    return everything, kinds, parts.of_devices(joined, tracks, selection.span)


def _memory(
    joined: Attributed, tracks: Tracks, of_devices: Tracks, selection: Selection
) -> list[Slices]:
    return host.of_memory(joined, of_devices, tracks.made, selection.span)


def _arrows(joined: Attributed, ops: Slices, calls: Slices, activities: Slices) -> Arrows:
    found = joined.attribution
    of_node = np.append(found.nesting.range, NONE)
    arrows = Arrows.to_launched(found.launch, ops, calls, activities)
    return replace(arrows, op=of_node[found.launched_in])
