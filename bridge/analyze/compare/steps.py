"""Steps as samples: whether what a row takes per step differs between two runs by more than steps do among themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, mannwhitneyu

from bridge.analyze.compare.parts import Parts
from bridge.analyze.filters import COMPARE, column_named, matching, parsed
from bridge.analyze.groups import Floats, counts
from bridge.analyze.steps.pace import WARM_UP, Walls, judged
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.attributed import Attributed

# -- Tests on samples per step; alone imports SciPy


EXACT_UP_TO = 8  # samples on the smaller side; beyond that the normal approximation is good
EXACT_PAIRS = 10_000  # pairs of samples up to which the exact distribution is quick to count


def differs(before: Matrix, after: Matrix) -> tuple[Floats, Floats]:
    """Return p of a two-sided Mann-Whitney U test per row, and the share of pairs with ``after`` larger, less a half.

    Exact where a side has few samples, the other not very many, and no two are equal, else the normal approximation with its corrections
    for ties and continuity: each row as if it were alone. p is -1 for one without any time in any step.
    """
    p, shift = np.full(len(before), float(NONE)), np.zeros(len(before))
    both = np.concatenate((before, after), axis=1)
    least, most = both.min(axis=1), both.max(axis=1)
    p[most > 0] = 1.0  # where all are alike the approximation would divide by nothing
    tied, varied = _tied(both), least < most
    steps = before.shape[1], after.shape[1]
    few = min(steps) <= EXACT_UP_TO and steps[0] * steps[1] <= EXACT_PAIRS
    for rows, method in (
        (varied & (tied | (not few)), "asymptotic"),
        (varied & ~tied & few, "exact"),
    ):
        if rows.any():
            found = mannwhitneyu(after[rows], before[rows], axis=1, method=method)
            p[rows] = np.minimum(found.pvalue, 1.0)
            shift[rows] = found.statistic / (before.shape[1] * after.shape[1]) - 0.5
    return p, shift


def bounds(before: Matrix, after: Matrix) -> tuple[Floats, Floats]:
    """Return the bounds of the difference of means per row, by the percentile bootstrap with a fixed seed."""
    random = np.random.default_rng(SEED)
    one, other = (_means(side, random) for side in (before, after))
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(other - one, (tail, 100 - tail), axis=1)
    return low, high


def _means(samples: Matrix, random: np.random.Generator) -> NDArray[np.float64]:
    """Return the means of resampled steps: how often each step is drawn is the same for all rows."""
    many = samples.shape[1]
    drawn = random.multinomial(many, np.full(many, 1 / many), size=RESAMPLES)
    means: NDArray[np.float64] = samples.astype(np.float64) @ drawn.T / many
    return means


def _tied(samples: Matrix) -> Flags:
    ordered = np.sort(samples, axis=1)
    tied: Flags = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    return tied


# -- Steps as samples: whether what a row takes per step differs between two runs by more than steps do among themselves


LEAST = 4  # steps on each side: of fewer no test finds anything at 5 %
ROOM = 1 << 22  # figures held at a time
RESAMPLES = 1000
CONFIDENCE = 0.95
SEED = 20_240_229
UNKNOWN = ("p", "q", "step_ratio")  # -1 there is none
Matrix = NDArray[np.int64]


@dataclass(frozen=True)
class Samples:
    """The steps of one side that count: all but those of its warm-up, of what is looked at."""

    parts: Parts
    row: Ints
    steps: Flags

    @classmethod
    def of(cls, parts: Parts, row_of_part: Ints) -> Samples:
        """Take the steps of a report."""
        row = np.append(row_of_part, NONE)[parts.part]
        return cls(parts, row, steady(parts.joined))

    def __len__(self) -> int:
        return int(self.steps.sum())

    @cached_property
    def sample(self) -> Ints:
        """The sample that each thing with a time is in, NONE for none."""
        place = np.where(self.steps, np.cumsum(self.steps) - 1, NONE)
        sample: Ints = np.append(place, NONE)[self.parts.step]
        return sample

    def times(self, rows: Ints) -> Matrix:
        """Return what some rows take in each step, in ns: a row each, a column per step."""
        place = np.full(int(max(self.row.max(initial=0), rows.max())) + 2, NONE)
        place[rows] = np.arange(len(rows))
        row = place[self.row]
        some = np.flatnonzero((row != NONE) & (self.sample != NONE))
        found = np.zeros(len(rows) * len(self), np.int64)
        np.add.at(found, row[some] * len(self) + self.sample[some], self.parts.ns[some])
        return found.reshape(len(rows), len(self))


def steady(joined: Attributed) -> Flags:
    """Return which iterations of a report are samples: those after warm-up that have anything that is counted."""
    steps = joined.iterations
    if not len(steps):
        return np.zeros(0, bool)
    _, state = judged(steps, Walls.of(joined).length)
    of_activity = joined.activity_iteration[joined.accounted]
    worked = counts(of_activity[of_activity != NONE], len(steps)) > 0
    if joined.chosen is not None:
        worked |= np.append(joined.chosen.ranges, False)[steps.range]
    steady: Flags = (state != WARM_UP) & (worked if joined.chosen is not None else True)
    return steady


def step_figures(before: Samples, after: Samples, rows: int, *, tested: bool) -> dict[str, Floats]:
    """Return figures per row; -1 in those of `UNKNOWN`, 0 in the others, unless they are ``tested``, for which it takes steps on both sides.

    ``step_before_ns`` and ``step_after_ns`` are means per step, ``step_ratio`` the one over the other; ``low_ns`` and ``high_ns`` bound their difference with
    95 % confidence, by bootstrap over steps; ``p`` is of a two-sided Mann-Whitney U test, ``q`` that after Benjamini and Hochberg over the
    rows that were tested: those that take any time in a step; ``shift`` is the share of pairs of steps in which the later one takes longer (ties half), less a half.
    """
    names = (
        "step_before_ns",
        "step_after_ns",
        "low_ns",
        "high_ns",
        "p",
        "shift",
        "step_ratio",
        "q",
    )
    found = {name: np.full(rows, float(NONE) if name in UNKNOWN else 0.0) for name in names}
    if not tested or not rows:
        return found

    for some in _portions(_lasting(before, after), len(before) + len(after)):
        one, other = before.times(some), after.times(some)
        means = one.mean(axis=1), other.mean(axis=1)
        columns = (*means, *bounds(one, other), *differs(one, other))
        for name, column in zip(names[:-2], columns, strict=True):
            found[name][some] = column
    known = found["step_before_ns"] > 0
    found["step_ratio"][known] = found["step_after_ns"][known] / found["step_before_ns"][known]
    tried = found["p"] != NONE
    if tried.any():
        found["q"][tried] = false_discovery_control(found["p"][tried])
    return found


def _lasting(*sides: Samples) -> Ints:
    """Return the rows that take any time in a step of either side."""
    some = [
        side.row[(side.row != NONE) & (side.sample != NONE) & (side.parts.ns > 0)] for side in sides
    ]
    return np.unique(np.concatenate(some))


def _portions(rows: Ints, width: int) -> Iterator[Ints]:
    """Return the rows in parts that there is room for, with their steps and with their resamples."""
    size = max(1, ROOM // max(width, RESAMPLES))
    return (rows[first : first + size] for first in range(0, len(rows), size))


# -- What is chosen of two reports compared: the same steps of both, and rows whose figures are known


MAY_BE_UNKNOWN = (*UNKNOWN, "ratio")
OF_SIZE = frozenset(COMPARE) - {"=", "!="}


def of_known(rows: pd.DataFrame, conditions: str) -> pd.DataFrame:
    """Return the rows of a comparison that meet conditions; an unknown ratio or p is neither small nor large.

    Raises ValueError for what cannot be read.
    """
    told = parsed(conditions)
    for one in told:
        column = column_named(rows, one.column)
        if column in MAY_BE_UNKNOWN and one.how in OF_SIZE:
            rows = rows[rows[column] != NONE]
    return matching(rows, told)


def same_steps(before: Attributed, after: Attributed, first: int, last: int) -> None:
    """Refuse steps, from ``first`` to ``last``, of which a process on one side has others than those on the other.

    Raises ValueError, in words for the user.
    """
    sides = [_numbers(side, first, last) for side in (before, after)]
    if sides[0] == sides[1]:
        return
    said = [", ".join(sorted(map(_listed, side))) for side in sides]
    common = set.intersection(*map(set, sides[0] | sides[1]))
    more = f"; all have {min(common)}..{max(common)}" if common else ""
    raise ValueError(
        f"not the same steps of {first}..{last} on both sides:"
        f" {said[0]} before, {said[1]} after, by process{more}"
    )


def _numbers(side: Attributed, first: int, last: int) -> set[tuple[int, ...]]:
    """Return which of some steps the processes have: the same ones once, however many processes have them."""
    steps = side.iterations
    of_each = (np.sort(steps.number[start:end]) for start, end in steps.by_process())
    return {tuple(of[(of >= first) & (of <= last)].tolist()) for of in of_each}


def _listed(numbers: tuple[int, ...]) -> str:
    """Return numbers of steps for people."""
    if not numbers:
        return "none"
    whole = len(numbers) == numbers[-1] - numbers[0] + 1
    return f"{numbers[0]}..{numbers[-1]}" + ("" if whole else f" ({len(numbers)} steps)")
