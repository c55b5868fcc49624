"""From when to when a step took: on the host, and until the last work that it launched was done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.analyze.groups import highest, lowest
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints
from importers import frames


@dataclass(frozen=True)
class Walls:
    """When each step started and ended, and the one before it ended (the first: itself started), in ns.

    A step whose work ran on while the host began the next one is followed by that where it ends.
    """

    before: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, joined: Attributed) -> Walls:
        """Measure the steps as TensorBoard's PyTorch plugin does."""
        steps, step = joined.iterations, joined.activity_iteration
        ran = step != NONE
        done = highest(step[ran], joined.end[ran], len(steps), empty=np.iinfo(np.int64).min)
        end = np.maximum(steps.end, done)
        before = steps.start.copy()
        for first, last in steps.by_process():
            end[first:last] = np.maximum.accumulate(end[first:last])
            before[first] = max(before[first], _left_over(joined, first))
            before[first + 1 : last] = end[first : last - 1]
        start = np.maximum(steps.start, before)
        return cls(before, start, np.maximum(start, end))

    @property
    def length(self) -> Ints:
        """How long each took, in ns."""
        return self.end - self.start

    @property
    def between(self) -> Ints:
        """How long after the end of the one before each started, in ns."""
        return self.start - self.before


def _left_over(joined: Attributed, first: int) -> int:
    """Return when the work was done that is of no step and ended before the first step's work began."""
    activities, steps = joined.report.activities, joined.iterations
    step, never = joined.activity_iteration, np.iinfo(np.int64).min
    start = frames.ints(activities, "start")
    own = step == first
    if not own.any():
        return int(never)
    began = int(lowest(np.zeros(int(own.sum()), np.int64), start[own], 1)[0])
    ours = (step == NONE) & (joined.end < began)
    for key in ("report", "process"):
        ours &= frames.ints(activities, key) == getattr(steps, key)[first]
    return int(joined.end[ours].max(initial=never))
