"""Totals of a capture: how much GPU time is attributed, and why the rest is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from bridge.analyze.groups import counts, sums
from bridge.join.arrays import Flags
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import ATTRIBUTED, REASONS
from importers import frames


class Share(TypedDict):
    """Number of activities and their time in ns."""

    activities: int
    gpu_ns: int


class Totals(TypedDict):
    """The entry ``totals`` of `bridge report --format json`; times in ns."""

    activities: int
    gpu_ns: int
    attributed_ns: int
    unattributed: dict[str, Share]


def totals(attributed: AttributedCapture) -> Totals:
    """Return the totals over all activities; reasons without an activity are left out."""
    return _totals_of(attributed, attributed.accounted)


def graph_totals(attributed: AttributedCapture) -> Totals:
    """Return the totals over the CUDA graphs that were recorded as a whole."""
    is_graph = frames.is_kind(attributed.capture.activities, frames.GRAPH)
    return _totals_of(attributed, is_graph & attributed.accounted)


def add_totals(every: Sequence[Totals]) -> Totals:
    """Return the totals of several parts as one."""
    rest = {
        reason: Share(
            activities=sum(t["unattributed"][reason]["activities"] for t in with_reason),
            gpu_ns=sum(t["unattributed"][reason]["gpu_ns"] for t in with_reason),
        )
        for reason in REASONS
        if (with_reason := [t for t in every if reason in t["unattributed"]])
    }
    return Totals(
        activities=sum(t["activities"] for t in every),
        gpu_ns=sum(t["gpu_ns"] for t in every),
        attributed_ns=sum(t["attributed_ns"] for t in every),
        unattributed=rest,
    )


def _totals_of(attributed: AttributedCapture, mask: Flags) -> Totals:
    reason, time = (c[mask] for c in (attributed.attribution.reason, attributed.duration))
    count, time = counts(reason, len(REASONS)), sums(reason, time, len(REASONS))
    unattributed = {
        name: Share(activities=int(n), gpu_ns=int(ns))
        for code, (name, n, ns) in enumerate(zip(REASONS, count, time, strict=True))
        if code != ATTRIBUTED and n
    }
    return Totals(
        activities=len(reason),
        gpu_ns=int(time.sum()),
        attributed_ns=int(time[ATTRIBUTED]),
        unattributed=unattributed,
    )
