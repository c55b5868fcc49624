"""Compare two captures as wholes: the iteration time, how busy the GPUs were, and why they were idle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from bridge.analyze.compare.parts import are_alike, idle_parts
from bridge.analyze.compare.statistics import confidence_bounds, mann_whitney, row_states
from bridge.analyze.compare.steps import MIN_STEPS, Samples
from bridge.analyze.core.groups import Floats, sums
from bridge.analyze.run.account import runs
from bridge.analyze.run.gpu_use import Use
from bridge.analyze.run.idle.causes import WORDS
from bridge.analyze.run.parts import iteration_times
from bridge.analyze.run.steps import is_counted
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints
from bridge.join.attributed import AttributedCapture

MIN_IDLE_CHANGE = 0.05  # share of the larger idle time from which on the change of a cause is large
Sides = tuple[AttributedCapture, AttributedCapture]


@record
class Change:
    """A mean time over steps before and after, in ns, or a total where a side has no steps.

    ``samples`` are the numbers of steps, 1 for a total. ``ratio_low`` and ``ratio_high`` bound after / before with
    95 % confidence, and ``p`` is that of a Mann-Whitney test: all -1 with fewer than 4 steps on a
    side. ``state`` is as in the rows of a comparison.
    """

    before_ns: float
    after_ns: float
    samples: tuple[int, int]
    ratio_low: float = NONE
    ratio_high: float = NONE
    p: float = NONE
    state: str = ""

    @property
    def is_tested(self) -> bool:
        """Whether there are enough steps for an interval."""
        return self.ratio_low != NONE

    @property
    def ratio(self) -> float:
        """After divided by before, -1 if before is 0."""
        return self.after_ns / self.before_ns if self.before_ns else NONE

    @property
    def diff_ns(self) -> float:
        """After minus before."""
        return self.after_ns - self.before_ns

    @classmethod
    def of_samples(cls, before: Ints, after: Ints, noise: float) -> Change:
        """Return the change of the mean of samples, at least one on each side."""
        samples = before[np.newaxis], after[np.newaxis]
        means = [side.mean(axis=1) for side in samples]
        sizes = len(before), len(after)
        change = cls(float(means[0][0]), float(means[1][0]), sizes)
        if min(sizes) < MIN_STEPS or not change.before_ns:
            return change
        (low, high), (p, shift) = confidence_bounds(*samples), mann_whitney(*samples)
        figures = {
            "before_ns": means[0],
            "after_ns": means[1],
            "step_before_ns": means[0],
            "step_after_ns": means[1],
            "low_ns": low,
            "high_ns": high,
            "p": p,
            "shift": shift,
        }
        present = np.ones(1, bool)
        state = row_states(figures, present, present, noise, per_step=True)
        return replace(
            change,
            ratio_low=_ratio(low, means[0]),
            ratio_high=_ratio(high, means[0]),
            p=float(p[0]),
            state=str(state[0]),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return values that JSON can hold."""
        return asdict(self) | {"diff_ns": self.diff_ns, "ratio": self.ratio}


def _ratio(change: Floats, before: Floats) -> float:
    return max(0.0, float(1 + change[0] / before[0]))


@dataclass(frozen=True)
class Overall:
    """The two captures as wholes.

    Attributes:
        iteration: the time of an iteration of the loop that takes longest; None unless both sides have
            iterations that follow one another.
        use: the GPUs on both sides; None where a side has no timeline of GPU work.
        of_run: whether busy and idle times are those of the run; else of the time from the first
            work of each GPU to the last, where other kinds of events tell when each run begins.
        idle: the idle time of all GPUs, per step (without warm-up) if ``idle_per_step``.
        causes: the same by cause, the largest change first.
        idle_per_step: whether both sides have steps.

    """

    iteration: Change | None = None
    use: tuple[Use, Use] | None = None
    idle: Change | None = None
    causes: Mapping[str, Change] = field(default_factory=dict)
    idle_per_step: bool = False
    of_run: bool = True

    @classmethod
    def of(cls, sides: Sides, noise: float) -> Overall:
        """Compare two captures; changes of at most ``noise``, a fraction, count as none."""
        before, after = (iteration_samples(side) for side in sides)
        both = before.sum() and after.sum()
        iteration = Change.of_samples(before, after, noise) if both else None
        uses = Use(runs(sides[0])), Use(runs(sides[1]))
        if not all(use.gpus for use in uses):
            return cls(iteration)
        return cls(iteration, uses, *_idle_changes(sides, noise), of_run=are_alike(sides))

    @property
    def busy(self) -> list[dict[str, int]]:
        """The busy time of the GPUs of each side, the length of their runs or spans, and the idle rest, in ns."""
        result = []
        for use in self.use or ():
            length = use.length_ns if self.of_run else use.span_ns
            idle = use.idle_ns if self.of_run else length - use.busy_ns
            result.append({"busy_ns": use.busy_ns, "span_ns": length, "idle_ns": idle})
        return result

    @property
    def large_causes(self) -> Mapping[str, Change]:
        """The causes whose change is a considerable part of the idle time, the largest change first."""
        if self.idle is None:
            return {}
        limit = MIN_IDLE_CHANGE * max(self.idle.before_ns, self.idle.after_ns)
        return {name: change for name, change in self.causes.items() if abs(change.diff_ns) > limit}

    def as_dict(self) -> Mapping[str, Any]:
        """Return values that JSON can hold."""
        gpu = dict(zip(("before", "after"), self.busy, strict=True)) if self.use else None
        return {
            "iteration": self.iteration.as_dict() if self.iteration else None,
            "gpu": gpu,
            "idle": self.idle.as_dict() if self.idle else None,
            "idle_per_step": self.idle_per_step,
            "causes": [{"cause": name, **change.as_dict()} for name, change in self.causes.items()],
        }


def iteration_samples(side: AttributedCapture) -> Ints:
    """Return the times of the selected iterations, those of the loop that takes longest, in ns."""
    times = [time.samples for time in iteration_times(side, is_counted(side))]
    return max(times, key=lambda one: int(one.sum()), default=np.empty(0, np.int64))


def _idle_changes(sides: Sides, noise: float) -> tuple[Change, dict[str, Change], bool]:
    """Return the change of the idle time, the same by cause, and whether it is per step."""
    parts = idle_parts(sides)
    place = {cause: row for row, cause in enumerate(WORDS)}
    causes = [
        np.array([place.get(cause, NONE) for cause in part.labels["cause"]]) for part in parts
    ]
    samples = [Samples.of(part, row) for part, row in zip(parts, causes, strict=True)]
    per_step = all(map(len, samples))
    if per_step:
        first, second = (side.times(np.arange(len(WORDS))) for side in samples)
    else:
        first, second = (
            sums(row, part.totals, len(WORDS))[:, np.newaxis]
            for part, row in zip(parts, causes, strict=True)
        )
    changes = (Change.of_samples(*pair, noise) for pair in zip(first, second, strict=True))
    by_cause = {
        cause: change
        for cause, change in zip(WORDS, changes, strict=True)
        if change.before_ns or change.after_ns
    }
    ordered = sorted(by_cause.items(), key=lambda item: -abs(item[1].diff_ns))
    total = Change.of_samples(first.sum(axis=0), second.sum(axis=0), noise)
    return total, dict(ordered), per_step
