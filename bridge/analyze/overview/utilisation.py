"""How busy each device was over time: the share of every bin in which anything ran, by kind of work."""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.analyze.devices import Devices
from bridge.analyze.groups import sums
from bridge.analyze.overview.axis import Axis, Bins
from bridge.analyze.roles import is_communication
from bridge.join.attributed import Attributed
from bridge.join.intervals import unions
from bridge.join.order import Flags, Ints
from importers import frames

MOST_BINS = 240
KINDS = ANY, COMPUTE, COMMUNICATION, COPIES = ("any", "compute", "communication", "copies")


def utilisation(joined: Attributed, axis: Axis) -> dict[str, Any] | None:
    """Return for each device and kind of work the time of every bin, in ns, in which any of it ran.

    Kinds that a device has none of are left out, and "any" stands alone where there is one other.
    """
    if not len(joined.report.activities) or not axis.length:
        return None
    bins, devices = axis.bins(MOST_BINS), Devices.of_report(joined)
    series = [_busy(joined, bins, devices, kind) for kind in KINDS]
    return {
        "bin_ns": bins.width,
        "length_ns": axis.length,
        "devices": [
            {
                "name": name,
                "series": _shown(
                    {kind: found[at] for kind, found in zip(KINDS, series, strict=True)}
                ),
            }
            for at, name in enumerate(devices.names)
        ],
    }


def _shown(series: dict[str, Ints]) -> dict[str, list[int]]:
    there = {kind: time.tolist() for kind, time in series.items() if time.any()}
    return there if len(there) != 2 else {ANY: series[ANY].tolist()}  # noqa: PLR2004 (any, and one kind)


def _busy(joined: Attributed, bins: Bins, devices: Devices, kind: str) -> Ints:
    """Return the busy time of each device (a row) in each bin."""
    rows = np.flatnonzero(_are(joined, kind))
    start = frames.ints(joined.report.activities, "start")[rows]
    device, begin, end = unions(devices.of[rows], start, joined.end[rows])
    piece, place, length = bins.spread(begin, end)
    size = len(devices.names)
    return sums(device[piece] * bins.count + place, length, size * bins.count).reshape(size, -1)


def _are(joined: Attributed, kind: str) -> Flags:
    activities = joined.report.activities
    if kind == ANY:
        return np.ones(len(activities), bool)
    is_copy = frames.is_kind(activities, frames.COPY, frames.FILL)
    if kind == COPIES:
        return is_copy
    communicates = is_communication(joined)
    return communicates if kind == COMMUNICATION else ~communicates & ~is_copy
