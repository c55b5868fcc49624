"""Rules on the capture itself: what it does not tell, and so no other rule can judge."""

from __future__ import annotations

import numpy as np

from bridge.analyze.advice import evidence
from bridge.analyze.advice.rule import HERE, NOT_ESTIMATED, Finding, Rule
from bridge.analyze.advice.seen import Seen
from bridge.join.attribution import NO_RANGE
from bridge.join.order import Ints
from importers import frames

OUTSIDE = 0.1  # of the time of all work


def opaque(seen: Seen) -> Ints:
    """Return the graphs that were recorded as a whole."""
    return np.flatnonzero(seen.of_kind(frames.GRAPH))


def outside(seen: Seen) -> Ints:
    """Return the activities that were launched where no range was open."""
    return np.flatnonzero(seen.counted & (seen.joined.attribution.reason == NO_RANGE))


def share(seen: Seen, rows: Ints) -> float:
    """Return which part of the time of all work that of some activities is."""
    return int(seen.time[rows].sum()) / max(1, int(seen.time[seen.counted].sum()))


def opaque_graphs(seen: Seen) -> Finding | None:
    """CUDA graphs that were recorded as a whole."""
    rows = opaque(seen)
    if not len(rows):
        return None
    figures = {"graphs": len(rows), "work_share": share(seen, rows)}
    return Finding(figures, evidence.of_activities(seen, rows))


def outside_ops(seen: Seen) -> Finding | None:
    """Work launched where no range was open."""
    rows = outside(seen)
    of_all = share(seen, rows)
    if of_all <= OUTSIDE:
        return None
    figures = {"activities": len(rows), "work_share": of_all}
    return Finding(figures, evidence.of_activities(seen, rows))


RULES = (
    Rule(
        "opaque-graphs",
        "CUDA graphs hide their kernels",
        "a CUDA graph is recorded as a whole",
        "graphs recorded as a whole: {graphs}, {work_share} of all work: their kernels are not known",
        "nsys profile --cuda-graph-trace=node",
        NOT_ESTIMATED,
        HERE,
        ("work",),
        opaque_graphs,
    ),
    Rule(
        "outside-ops",
        "Much work belongs to no op",
        f"more than {OUTSIDE:.0%} of the time of all work was launched outside ops",
        "{work_share} of all work was launched outside any op",
        "annotate it: @nvtx_op, bridge.torch.annotate(model); bridge why names what is missing",
        NOT_ESTIMATED,
        HERE,
        ("work", "calls", "ops"),
        outside_ops,
    ),
)
