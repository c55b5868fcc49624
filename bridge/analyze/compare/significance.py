"""Tests on samples per step; alone imports SciPy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

from bridge.analyze.compare.stepwise import CONFIDENCE, RESAMPLES, SEED, Matrix
from bridge.analyze.groups import Floats
from bridge.join.order import NONE, Flags

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
