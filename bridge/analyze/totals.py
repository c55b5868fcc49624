"""The accounting of a report: where every activity went, whatever is shown of it."""

from __future__ import annotations

from typing import TypedDict

from bridge.analyze.groups import counts, sums
from bridge.join.attributed import Attributed
from bridge.join.attribution import ATTRIBUTED, REASONS


class Share(TypedDict):
    """Activities and their time in ns."""

    activities: int
    gpu_ns: int


class Totals(TypedDict):
    """What `bridge report` prints under ``totals``."""

    activities: int
    gpu_ns: int
    attributed_ns: int
    unattributed: dict[str, Share]


def totals(joined: Attributed) -> Totals:
    """Return the accounting; reasons that nothing has are left out."""
    reason, time = (c[joined.accounted] for c in (joined.attribution.reason, joined.duration))
    count, time = counts(reason, len(REASONS)), sums(reason, time, len(REASONS))
    rest = {
        name: Share(activities=int(n), gpu_ns=int(ns))
        for code, (name, n, ns) in enumerate(zip(REASONS, count, time, strict=True))
        if code != ATTRIBUTED and n
    }
    return Totals(
        activities=len(reason),
        gpu_ns=int(time.sum()),
        attributed_ns=int(time[ATTRIBUTED]),
        unattributed=rest,
    )
