"""From when to when a step took: on the host, and until the last work that it launched was done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.analyze.groups import highest, lowest
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints
from importers import frames

NEVER = int(np.iinfo(np.int64).min)


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
        done = highest(step[ran], joined.end[ran], len(steps), empty=NEVER)
        end = np.maximum(steps.end, done)
        before = steps.start.copy()
        turns = [*steps.by_process()]
        left_over = _left_over(joined, step, [first for first, _ in turns])
        for (first, last), done_before in zip(turns, left_over, strict=True):
            end[first:last] = np.maximum.accumulate(end[first:last])
            before[first] = max(before[first], done_before)
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


def _left_over(joined: Attributed, step: Ints, firsts: list[int]) -> list[int]:
    """Return for each first step when the work of its process was done that is of no step and ended before its own began."""
    activities, steps = joined.report.activities, joined.iterations
    ran, loose = np.flatnonzero(step != NONE), np.flatnonzero(step == NONE)
    start, end = frames.ints(activities, "start"), joined.end[loose]
    began = lowest(step[ran], start[ran], len(steps), empty=NEVER)
    report, process = (frames.ints(activities, key)[loose] for key in ("report", "process"))
    found = []
    for first in firsts:  # a turn per process
        ours = (report == steps.report[first]) & (process == steps.process[first])
        found.append(int(end[ours & (end < began[first])].max(initial=NEVER)))
    return found
