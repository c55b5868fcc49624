"""Capture quality: how far a report can be trusted, as a score from 0 to 100 and the reasons for what is missing.

docs/quality.md lists the reasons. The same report gives the same score.
"""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from bridge.analyze.quality import content, profiler
from bridge.analyze.quality import reasons as enough
from bridge.analyze.quality.reasons import Capture, Found, Measured, Reason
from bridge.join.attributed import Attributed

BEST = 100
REASONS = (*profiler.REASONS, *content.REASONS, *enough.REASONS)


@dataclass(frozen=True)
class Quality:
    """What a capture is worth: ``score`` is 100 less the costs of the ``reasons``, 0 at least.

    ``reasons`` come by their cost, the largest first; ``judged`` are the names of all that apply. ``overhead`` has a row per
    kind of the profiler's own work: name, count, total_ns and inside_ns, what of it counts.
    """

    source: tuple[str, ...]
    score: int
    reasons: tuple[Found, ...]
    judged: tuple[str, ...]
    overhead: pd.DataFrame


def quality(joined: Attributed) -> Quality:
    """Judge the capture of a report."""
    seen = Capture(joined)
    measured = [(reason, one) for reason in REASONS if (one := reason.find(seen)) is not None]
    found = [Found(reason, m, cost) for reason, m in measured if (cost := reason.cost(m.value))]
    found.sort(key=lambda one: -one.cost)  # of equal costs in the order of REASONS
    return Quality(
        joined.report.source,
        max(0, BEST - sum(one.cost for one in found)),
        tuple(found),
        tuple(reason.name for reason, _ in measured),
        _overhead(seen),
    )


def _overhead(seen: Capture) -> pd.DataFrame:
    """Return the profiler's own work by what it was, that with most time first."""
    table = seen.report.overhead
    whole = (table["end"] - table["start"]).clip(lower=0)
    rows = pd.DataFrame(
        {
            "name": table["name"].astype(object),
            "total_ns": whole,
            "inside_ns": seen.overhead.inside,
        }
    )
    found = rows.groupby("name", sort=True).agg(
        count=("total_ns", "size"), total_ns=("total_ns", "sum"), inside_ns=("inside_ns", "sum")
    )
    return found.reset_index().sort_values("total_ns", ascending=False, kind="stable")


__all__ = ["BEST", "REASONS", "Found", "Measured", "Quality", "Reason", "quality"]
