"""From when to when a step took: on the host, and until the last work that it launched was done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.analyze.groups import highest
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
        steps, step = joined.iterations, _issued_in(joined)
        ran = step != NONE
        done = highest(step[ran], joined.end[ran], len(steps), empty=np.iinfo(np.int64).min)
        end = np.maximum(steps.end, done)
        before = steps.start.copy()
        for first, last in steps.by_process():
            end[first:last] = np.maximum.accumulate(end[first:last])
            before[first] = max(before[first], _left_over(joined, step, first))
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


def _issued_in(joined: Attributed) -> Ints:
    """Return the step that each activity was launched in, NONE for what was launched before the report began.

    That is what has no launch where other work of its process has one; where none has, what ran in a step is of it.
    """
    steps, step, launch = joined.iterations, joined.activity_iteration, joined.attribution.launch
    if not (launch == NONE).any():
        return step
    has = np.append(np.zeros(len(steps), bool), False)
    has[step[(launch != NONE) & (step != NONE)]] = True
    for first, last in steps.by_process():
        has[first:last] = has[first:last].any()
    return np.where((launch == NONE) & has[step], NONE, step)


def _left_over(joined: Attributed, step: Ints, first: int) -> int:
    """Return when the work was done that is of no step and ended before the first step's work began."""
    activities, steps = joined.report.activities, joined.iterations
    start, never = frames.ints(activities, "start"), int(np.iinfo(np.int64).min)
    own = start[step == first]
    if not len(own):
        return never
    ours = (step == NONE) & (joined.end < own.min())
    for key in ("report", "process"):
        ours &= frames.ints(activities, key) == getattr(steps, key)[first]
    return int(joined.end[ours].max(initial=never))
