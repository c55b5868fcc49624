"""Where the level of a sequence of runs changed: the likelihood-ratio test of a step in the mean.

For each split of the runs into those before and those after, Student's t compares the two means; the
largest t is that of the most likely change. A run that was disturbed must not make a change, so t is the
least of those that are left when any one run is left out. Besides the whole sequence, windows of a half, a quarter …
of it are searched, so that two changes do not hide each other. p of the largest t is corrected for all
splits by Bonferroni: it bounds the probability that a sequence without a change has one, if the
runs are independent and vary normally. docs/trend.md says how well that holds for others.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bridge.analyze.compare.statistics import CONFIDENCE, SIGNIFICANCE, false_discovery_rates
from bridge.analyze.core.groups import Floats
from bridge.importers.records import record
from bridge.join.arrays import Ints

MIN_RUNS = 5  # of a sequence; fewer leave no degrees of freedom
MIN_SIDE = 2  # runs before a change and after it: one alone may have been disturbed
MIN_WINDOW = 8  # runs of a window that is searched besides the whole
MAX_VALUES = 1 << 19  # of each of some arrays at a time
LIKELIHOOD = 2 * np.log(1 / (1 - np.sqrt(CONFIDENCE)))  # of two random walks: see `_places`


@record
class ChangePoint:
    """A change of the level of a sequence: run ``at`` is the first after it.

    With 95 % confidence that run is one of ``first`` to ``last``. The level lasted from run ``start`` and lasts to
    ``end``, exclusive. ``p`` is that of the test, corrected for the splits that were tried.
    """

    at: int
    first: int
    last: int
    start: int
    end: int
    p: float


def change_points(values: Floats) -> tuple[Floats, list[list[ChangePoint]]]:
    """Return q of the most likely change of each row, and the changes of each row in order.

    q is p after Benjamini and Hochberg over the rows. A row whose q is at most `SIGNIFICANCE` is cut at its change,
    and its parts are searched in the same way.
    """
    p, _ = strongest(values)
    q = false_discovery_rates(p)
    has_change = q <= SIGNIFICANCE
    level = SIGNIFICANCE * float(has_change.mean()) if len(p) else 0.0
    cuts = [
        _cuts(row, level, 0, len(row)) if any_ else []
        for row, any_ in zip(values, has_change.tolist(), strict=True)
    ]
    return q, [_placed(row, of_row) for row, of_row in zip(values, cuts, strict=True)]


def strongest(values: Floats) -> tuple[Floats, Ints]:
    """Return p of the most likely change of each row, and the first run after it."""
    rows, runs = values.shape
    p, at = np.ones(rows), np.zeros(rows, np.int64)
    if runs < MIN_RUNS:
        return p, at
    size = max(1, MAX_VALUES // runs**2)
    for first in range(0, rows, size):
        chunk = slice(first, first + size)
        p[chunk], at[chunk] = _strongest(values[chunk])
    return p, at


def _strongest(values: Floats) -> tuple[Floats, Ints]:
    from scipy.special import stdtr

    searched = list(_windows(values.shape[1]))
    splits = sum(end - start - 2 * MIN_SIDE + 1 for start, end in searched)
    p, at = np.ones(len(values)), np.zeros(len(values), np.int64)
    for start, end in searched:
        t = _least_t(values[:, start:end])
        best = t.argmax(axis=1)
        found = 2 * stdtr(end - start - 3, -t.max(axis=1)) * splits
        at = np.where(found < p, start + MIN_SIDE + best, at)
        p = np.minimum(p, found)
    return p, at


def _windows(runs: int) -> Iterator[tuple[int, int]]:
    """Yield the whole sequence, and windows of a half, a quarter … of it, each half over the one before."""
    length = runs
    while length == runs or length >= MIN_WINDOW:
        last = runs - length
        for start in sorted({*range(0, last, max(1, length // 2)), last}):
            yield start, start + length
        length //= 2


def _least_t(values: Floats) -> Floats:
    """Return the least |t| of each row and split over the runs that may be left out."""
    values = values - values.mean(axis=1, keepdims=True)  # of large times that differ little
    runs = values.shape[1]
    split = np.arange(MIN_SIDE, runs - MIN_SIDE + 1)
    is_before = np.arange(runs) < split[:, np.newaxis]
    left, square = values[:, np.newaxis], values[:, np.newaxis] ** 2
    sums, squares = np.cumsum(values, axis=1), np.cumsum(values**2, axis=1)
    means, errors, sizes = [], [], []
    for is_on, of_sums, of_squares in (
        (is_before, sums[:, split - 1], squares[:, split - 1]),
        (~is_before, sums[:, -1:] - sums[:, split - 1], squares[:, -1:] - squares[:, split - 1]),
    ):
        size = is_on.sum(axis=1, keepdims=True) - is_on
        total = of_sums[..., np.newaxis] - left * is_on
        means.append(total / size)
        errors.append(of_squares[..., np.newaxis] - square * is_on - total**2 / size)
        sizes.append(size)
    variance = np.maximum(errors[0] + errors[1], 0) / (runs - 3)
    difference = np.abs(means[1] - means[0])
    spread = np.sqrt(variance * (1 / sizes[0] + 1 / sizes[1]))
    same = np.where(difference > 0, np.inf, 0.0)  # runs that do not vary
    t = np.divide(
        difference, spread, out=np.broadcast_to(same, spread.shape).copy(), where=spread > 0
    )
    least: Floats = t.min(axis=2)
    return least


def _cuts(row: Floats, level: float, start: int, end: int) -> list[tuple[int, float]]:
    """Return the first runs after the changes between two runs, and p of each."""
    (p,), (at,) = strongest(row[np.newaxis, start:end])
    if end - start < MIN_RUNS or p > level:
        return []
    cut = start + int(at)
    return [*_cuts(row, level, start, cut), (cut, float(p)), *_cuts(row, level, cut, end)]


def _placed(row: Floats, cuts: list[tuple[int, float]]) -> list[ChangePoint]:
    ends = [0, *(cut for cut, _ in cuts), len(row)]
    return [
        ChangePoint(cut, *_places(row, start, end, cut), start=start, end=end, p=p)
        for (cut, p), start, end in zip(cuts, ends, ends[2:], strict=False)
    ]


def _places(row: Floats, start: int, end: int, cut: int) -> tuple[int, int]:
    """Return the first and the last split between two runs that are nearly as likely as the best one.

    Nearly: twice the logarithm of the ratio of the likelihoods is at most `LIKELIHOOD`. Where the change is
    clear, that ratio is the larger maximum of two random walks, of which each exceeds x with probability exp(-x / 2).
    """
    values = row[start:end] - row[start:end].mean()
    split = np.arange(MIN_SIDE, len(values) - MIN_SIDE + 1)
    before = np.cumsum(values)[split - 1]
    error = (values**2).sum() - before**2 / split - before**2 / (len(values) - split)
    error = np.maximum(error, 0)
    near = start + split[error <= error.min() * np.exp(LIKELIHOOD / len(values))]
    return min(cut, int(near[0])), max(cut, int(near[-1]))
