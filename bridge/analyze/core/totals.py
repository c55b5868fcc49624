"""Totals of a capture: how much GPU time is attributed, and why the rest is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NotRequired, TypedDict

import numpy as np

from bridge.analyze.core.groups import counts, sums
from bridge.importers import frames
from bridge.join.arrays import Flags, Ints
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import ATTRIBUTED, OF_ANOTHER_THREAD, REASONS


class Share(TypedDict):
    """Number of activities and their time in ns."""

    activities: int
    gpu_ns: int


class Totals(TypedDict):
    """The entry ``totals`` of `bridge report --format json`; times in ns.

    ``adopted`` is the part of what is attributed whose op is of another thread, if there is any.
    """

    activities: int
    gpu_ns: int
    attributed_ns: int
    unattributed: dict[str, Share]
    adopted: NotRequired[Share]


def totals(attributed: AttributedCapture) -> Totals:
    """Return the totals over all activities; reasons without an activity are left out."""
    return _totals_of(attributed, attributed.accounted)


def graph_totals(attributed: AttributedCapture) -> Totals:
    """Return the totals over the CUDA graphs that were recorded as a whole."""
    is_graph = attributed.capture.activities.kind.among(frames.GRAPH)
    return _totals_of(attributed, is_graph & attributed.accounted)


def add_totals(every: Sequence[Totals]) -> Totals:
    """Return the totals of several parts as one."""
    rest = {
        reason: _add_shares(shares)
        for reason in REASONS
        if (shares := [t["unattributed"][reason] for t in every if reason in t["unattributed"]])
    }
    result = Totals(
        activities=sum(t["activities"] for t in every),
        gpu_ns=sum(t["gpu_ns"] for t in every),
        attributed_ns=sum(t["attributed_ns"] for t in every),
        unattributed=rest,
    )
    if adopted := [t["adopted"] for t in every if "adopted" in t]:
        result["adopted"] = _add_shares(adopted)
    return result


def _add_shares(shares: Sequence[Share]) -> Share:
    return Share(
        activities=sum(share["activities"] for share in shares),
        gpu_ns=sum(share["gpu_ns"] for share in shares),
    )


def _totals_of(attributed: AttributedCapture, mask: Flags) -> Totals:
    reason, time = attributed.attribution.reason[mask], attributed.duration[mask]
    adopted = mask & np.isin(attributed.attribution.rule, OF_ANOTHER_THREAD)
    count, time = counts(reason, len(REASONS)), sums(reason, time, len(REASONS))
    unattributed = {
        name: Share(activities=int(n), gpu_ns=int(ns))
        for code, (name, n, ns) in enumerate(zip(REASONS, count, time, strict=True))
        if code != ATTRIBUTED and n
    }
    result = Totals(
        activities=len(reason),
        gpu_ns=int(time.sum()),
        attributed_ns=int(time[ATTRIBUTED]),
        unattributed=unattributed,
    )
    if n := int(np.count_nonzero(adopted)):
        result["adopted"] = Share(activities=n, gpu_ns=int(attributed.duration[adopted].sum()))
    return result


def call_time(attributed: AttributedCapture) -> Ints:
    """Return the time of each API call in ns; 0 for a call that ends before it starts."""
    launches = attributed.capture.launches
    length: Ints = np.maximum(launches.end - launches.start, 0)
    return length
