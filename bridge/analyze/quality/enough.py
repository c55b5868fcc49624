"""Reasons that lie with how much was captured: too little to be a measure, or more than the part that counts."""

from __future__ import annotations

import numpy as np

from bridge.analyze.metrics import timeless
from bridge.analyze.quality.overhead import Capture
from bridge.analyze.quality.reason import COUNT, NS, SHARE, Measured, Reason
from bridge.analyze.steps.pace import WARM_UP, judged
from bridge.join.intervals import busy
from importers import frames

MILLI = 1_000_000


def short_capture(seen: Capture) -> Measured | None:
    """How long the GPUs were busy, all together."""
    if not seen.of_kind(frames.KERNEL, frames.GRAPH).any() or not timeless.has_timeline(
        seen.report
    ):
        return None
    rows = np.flatnonzero(seen.counted)
    start, of = frames.ints(seen.report.activities, "start")[rows], seen.devices.of[rows]
    lasted = int(busy(of, start, seen.joined.end[rows], len(seen.devices.names)).sum())
    return Measured(lasted, "the GPU was busy for {busy_ns} in all", {"busy_ns": lasted})


def few_steps(seen: Capture) -> Measured | None:
    """How many steps of a process were captured, of that which has most."""
    steps = seen.joined.steps
    if not len(steps):
        return None
    most = max(last - first for first, last in steps.by_process())
    return Measured(
        most, "{steps} steps: one that stands out is not told from the others", {"steps": most}
    )


def warm_up(seen: Capture) -> Measured | None:
    """The share of the steps' time by which those of the warm-up are longer than the others."""
    steps = seen.joined.steps
    if not len(steps):
        return None
    length = steps.end - steps.start
    change, state = judged(steps, length)
    warming = state == WARM_UP
    excess = length[warming] * (1 - 1 / (1 + change[warming]))
    share = float(excess.sum() / max(1, length.sum()))
    longest = float(np.max(1 + change[warming], initial=1.0))
    said = "{steps} steps of warm-up, the longest {times} times as long as a usual one: {work_share} of the time of all steps is that"
    figures = {"steps": int(warming.sum()), "times": f"{longest:.1f}", "work_share": share}
    return Measured(share, said, figures)


REASONS = (
    Reason(
        "short-capture",
        "time that GPUs were busy",
        NS,
        20 * MILLI,
        0,
        15,
        "capture more of the program: more steps, a larger part",
        short_capture,
    ),
    Reason(
        "few-steps",
        "steps, where steps are named",
        COUNT,
        5,
        0,
        10,
        "capture at least 5 steps: bridge run --schedule wait=1,warmup=1,active=5",
        few_steps,
    ),
    Reason(
        "warm-up",
        "time of steps by which those of the warm-up are longer than a usual one",
        SHARE,
        0.05,
        0.5,
        10,
        "capture later: bridge run --schedule wait=1,warmup=2,active=5; or leave them out: --step 3..9",
        warm_up,
    ),
)
