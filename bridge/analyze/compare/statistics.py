"""Statistics of two samples of steps: a rank test, the interval of the change, and the state of a row.

Each function takes rows of two matrices, a row per row of the comparison and a column per step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.groups import Floats, texts
from bridge.join.arrays import NONE, Flags

Matrix = NDArray[np.number[Any]]

# -- Whether steps differ: the test of Mann and Whitney


SIGNIFICANCE = 0.05  # maximum of p
EXACT_UP_TO = 8  # samples on the smaller side; above, the normal approximation is good
EXACT_PAIRS = 10_000  # pairs of samples; above, the exact distribution is slow


def mann_whitney(before: Matrix, after: Matrix) -> tuple[Floats, Floats]:
    """Return p of a two-sided Mann-Whitney U test per row, and the shift.

    The shift is the share of pairs with ``after`` larger, less one half. The test is exact if a
    side has few samples, the other not too many, and no two are equal; otherwise it uses the normal
    approximation with corrections for ties and continuity. p is -1 for a row without any time.
    """
    p, shift = np.full(len(before), float(NONE)), np.zeros(len(before))
    samples = np.concatenate((before, after), axis=1)
    low, high = samples.min(axis=1), samples.max(axis=1)
    p[high > 0] = 1.0  # if all are equal, the approximation would divide by zero
    varies, steps = low < high, (before.shape[1], after.shape[1])
    is_exact = np.zeros(len(p), bool)
    if min(steps) <= EXACT_UP_TO and steps[0] * steps[1] <= EXACT_PAIRS:
        is_exact = ~_has_ties(samples)
    for rows, test in ((varies & ~is_exact, _approximate), (varies & is_exact, _exact)):
        if rows.any():
            p[rows], u = test(after[rows], before[rows])
            shift[rows] = u / (before.shape[1] * after.shape[1]) - 0.5
    return p, shift


def _exact(first: Matrix, second: Matrix) -> tuple[Floats, Floats]:
    """Return p and U of rows without ties."""
    from scipy.stats import mannwhitneyu  # takes most of a second

    result = mannwhitneyu(first, second, axis=1, method="exact")
    return np.minimum(result.pvalue, 1.0), result.statistic


def _approximate(first: Matrix, second: Matrix) -> tuple[Floats, Floats]:
    """Return p and U of rows by the normal approximation: as `scipy.stats.mannwhitneyu`, which takes long to load."""
    from scipy.special import ndtr

    samples = np.concatenate((first, second), axis=1)
    (rows, size), sizes = samples.shape, (first.shape[1], second.shape[1])
    order = np.argsort(samples, axis=1, kind="stable")
    ordered = np.take_along_axis(samples, order, axis=1)
    is_new = np.ones((rows, size), bool)
    is_new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    starts = np.flatnonzero(is_new)  # of equal values
    tied = np.diff(starts, append=rows * size)
    rank = np.repeat(starts % size + (tied + 1) / 2, tied).reshape(rows, size)
    u = np.where(order < sizes[0], rank, 0.0).sum(axis=1) - sizes[0] * (sizes[0] + 1) / 2
    pairs = sizes[0] * sizes[1]
    ties = np.bincount(starts // size, tied.astype(float) ** 3 - tied, rows)
    deviation = np.sqrt(pairs / 12 * ((size + 1) - ties / (size * (size - 1))))
    above = np.maximum(u, pairs - u) - pairs / 2 - 0.5  # less one half: the values are whole
    return np.minimum(2 * ndtr(-above / deviation), 1.0), u


def _has_ties(samples: Matrix) -> Flags:
    ordered = np.sort(samples, axis=1)
    tied: Flags = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
    return tied


def false_discovery_rates(p: Floats) -> Floats:
    """Return for each p the share of false discoveries among it and all smaller ones, by Benjamini and Hochberg."""
    order = np.argsort(p)
    share = p[order] * (len(p) / np.arange(1, len(p) + 1))
    q = np.empty(len(p))
    q[order] = np.minimum(np.minimum.accumulate(share[::-1])[::-1], 1.0)
    return q


# -- How much the means differ: the interval of Welch


CONFIDENCE = 0.95


def confidence_bounds(before: Matrix, after: Matrix) -> tuple[Floats, Floats]:
    """Return the bounds of the difference of the means, by Welch's t interval.

    Both sides need two samples. Steps that are equal one by one, as those of a report and itself,
    differ by nothing: both bounds are 0. (A percentile bootstrap covers the truth too rarely with
    the few steps of a profile, and a shift of medians says nothing about a few slow steps.)
    """
    from scipy.special import stdtrit

    difference = after.mean(axis=1) - before.mean(axis=1)
    variance = [side.var(axis=1, ddof=1) / side.shape[1] for side in (before, after)]
    total = variance[0] + variance[1]
    terms = [v**2 / (side.shape[1] - 1) for v, side in zip(variance, (before, after), strict=True)]
    varies = total > 0
    degrees = np.divide(total**2, terms[0] + terms[1], out=np.ones_like(total), where=varies)
    margin = stdtrit(degrees, 0.5 + CONFIDENCE / 2) * np.sqrt(total)
    if before.shape == after.shape:
        margin[(before == after).all(axis=1)] = 0.0
    return difference - margin, difference + margin


# -- States of rows


STATES = SAME, FASTER, SLOWER, NEW, VANISHED, UNCLEAR = (
    "same",
    "faster",
    "slower",
    "new",
    "vanished",
    "unclear",
)
Figures = Mapping[str, np.ndarray]


def row_states(
    figures: Figures, before: Flags, after: Flags, noise: float, *, per_step: bool
) -> NDArray[np.object_]:
    """Return the state of each row; ``before`` and ``after`` are whether a side has the row.

    A row is new or vanished if one side lacks it, or only one side has time in it. The state of a
    row with time in steps on both sides follows from its interval: see `_of_steps`. Without an
    interval a row is the same if its times (``per_step``: its means per step) are equal, else
    unclear.
    """
    times = figures["before_ns"] > 0, figures["after_ns"] > 0
    means = figures["step_before_ns"], figures["step_after_ns"]
    has_mean = per_step & (np.maximum(*means) > 0)
    compared = [
        np.where(has_mean, mean, figures[f"{side}_ns"])
        for side, mean in zip(("before", "after"), means, strict=True)
    ]
    has_interval = (figures["p"] != NONE) & (np.minimum(*means) > 0)
    state = np.where(compared[0] == compared[1], STATES.index(SAME), STATES.index(UNCLEAR))
    state = np.where(has_interval, _of_steps(figures, noise), state)
    state = np.select(
        [~before | (after & times[1] & ~times[0]), ~after | (times[0] & ~times[1])],
        [STATES.index(NEW), STATES.index(VANISHED)],
        state,
    )
    names: NDArray[np.object_] = texts(STATES)[state]
    return names


def _of_steps(figures: Figures, noise: float) -> NDArray[np.int64]:
    """Return the state of the time per step, a position in `STATES`.

    Same: the interval of the change lies within the noise. Faster and slower: the interval does not
    include 0, the means differ by more than the noise, p is at most `SIGNIFICANCE`, and most pairs
    of steps differ in the same direction. All else is unclear.
    """
    low, high = figures["low_ns"], figures["high_ns"]
    means = figures["step_before_ns"], figures["step_after_ns"]
    change, limit = means[1] - means[0], noise * np.maximum(*means)
    is_same = (low >= -limit) & (high <= limit)
    is_clear = (
        ((low > 0) | (high < 0))
        & (figures["p"] <= SIGNIFICANCE)
        & (np.abs(change) > limit)
        & (np.sign(change) == np.sign(figures["shift"]))
    )
    return np.select(
        [is_same, is_clear & (change > 0), is_clear],
        [STATES.index(SAME), STATES.index(SLOWER), STATES.index(FASTER)],
        default=STATES.index(UNCLEAR),
    )
