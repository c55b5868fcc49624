"""Totals of a capture: how much GPU time is attributed, and why the rest is not."""

from __future__ import annotations

from typing import TypedDict

from bridge.analyze.groups import counts, sums
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import ATTRIBUTED, REASONS


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
    reason, time = (
        c[attributed.accounted] for c in (attributed.attribution.reason, attributed.duration)
    )
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
