"""The interval of a change and the states, on drawn steps of which the truth is known."""

from __future__ import annotations

from collections import Counter
from itertools import product
from math import sqrt
from statistics import mean, variance

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import false_discovery_control, mannwhitneyu, t

from bridge.analyze.compare import statistics
from bridge.analyze.compare.statistics import (
    CONFIDENCE,
    STATES,
    confidence_bounds,
    mann_whitney,
    row_states,
)

ROWS = 4_000
US = 1_000
MEAN, SPREAD = 1_000 * US, 50 * US  # ns: 1 ms per step, of which 5 % is scatter
NOISE = 0.01

pytestmark = pytest.mark.slow


def drawn(kind: str, steps: int, factor: float, seed: int) -> NDArray[np.int64]:
    """Draw the times of steps, a row per trial, of a distribution whose mean is known."""
    random = np.random.default_rng(seed)
    size = (ROWS, steps)
    shapes = {
        "normal": lambda: random.normal(MEAN, SPREAD, size),
        "uniform": lambda: random.uniform(0.9 * MEAN, 1.1 * MEAN, size),
        "skewed": lambda: random.lognormal(-0.02, 0.2, size) * MEAN,  # its mean is 1
        "exponential tail": lambda: 0.9 * MEAN + random.exponential(0.1 * MEAN, size),
    }
    return (shapes[kind]() * factor).round().astype(np.int64)


def figures(before: NDArray[np.int64], after: NDArray[np.int64]) -> dict[str, np.ndarray]:
    low, high = confidence_bounds(before, after)
    p, shift = mann_whitney(before, after)
    means = {"step_before_ns": before.mean(axis=1), "step_after_ns": after.mean(axis=1)}
    sums = {"before_ns": before.sum(axis=1), "after_ns": after.sum(axis=1)}
    return {
        **means,
        **sums,
        "low_ns": low,
        "high_ns": high,
        "p": p,
        "shift": shift,
    }


def shares(before: NDArray[np.int64], after: NDArray[np.int64], noise: float = NOISE) -> Counter:
    """Return the share of the rows in each state."""
    present = np.ones(len(before), bool)
    states = row_states(figures(before, after), present, present, noise, per_step=False)
    return Counter({name: count / len(states) for name, count in Counter(states).items()})


# -- The interval


@pytest.mark.parametrize("kind", ["normal", "uniform", "skewed", "exponential tail"])
@pytest.mark.parametrize("steps", [(4, 4), (8, 5), (32, 28), (58, 58)])
@pytest.mark.parametrize("factor", [1.0, 1.1])
def test_the_interval_covers_the_truth_at_its_level(kind, steps, factor):
    """Of 4000 pairs of runs, 95 % of the intervals hold the true difference of the means.

    With few steps of a skewed distribution it is a little less.
    """
    before, after = drawn(kind, steps[0], 1.0, 1), drawn(kind, steps[1], factor, 2)
    low, high = confidence_bounds(before, after)
    truth = (factor - 1) * MEAN
    covered = ((low <= truth) & (truth <= high)).mean()
    least = 0.92 if kind == "exponential tail" else 0.935
    assert least <= covered <= 0.985
    missed = [(truth < low).mean(), (truth > high).mean()]
    assert max(missed) < 0.06


def test_the_interval_is_that_of_the_definition():
    """Welch's interval in plain loops, a row at a time."""
    random = np.random.default_rng(3)
    before, after = random.integers(0, 1000, (50, 6)), random.integers(200, 1500, (50, 9))
    low, high = confidence_bounds(before, after)
    for row, (x, y) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
        parts = variance(x) / len(x), variance(y) / len(y)
        degrees = sum(parts) ** 2 / sum(
            part**2 / (len(side) - 1) for part, side in zip(parts, (x, y), strict=True)
        )
        margin = t.ppf(0.5 + CONFIDENCE / 2, degrees) * sqrt(sum(parts))
        assert low[row] == pytest.approx(mean(y) - mean(x) - margin)
        assert high[row] == pytest.approx(mean(y) - mean(x) + margin)


def test_the_interval_the_other_way_round_is_the_negative():
    before, after = drawn("normal", 7, 1.0, 4), drawn("normal", 9, 1.05, 5)
    low, high = confidence_bounds(before, after)
    back_low, back_high = confidence_bounds(after, before)
    np.testing.assert_allclose([back_low, back_high], [-high, -low])


def test_steps_that_do_not_vary_have_an_exact_interval():
    before, after = np.full((2, 4), 80), np.array([[88] * 4, [80] * 4])
    low, high = confidence_bounds(before, after)
    assert (low.tolist(), high.tolist()) == ([8, 0], [8, 0])


def test_a_run_and_itself_differ_by_nothing():
    steps = drawn("skewed", 8, 1.0, 6)
    assert not np.any(confidence_bounds(steps, steps))
    assert shares(steps, steps) == {"same": 1.0}


# -- The states


@pytest.mark.parametrize("kind", ["normal", "skewed", "exponential tail"])
@pytest.mark.parametrize("steps", [(4, 4), (8, 5), (32, 28)])
def test_what_did_not_change_is_rarely_called_changed(kind, steps):
    found = shares(drawn(kind, steps[0], 1.0, 7), drawn(kind, steps[1], 1.0, 8))
    assert found["slower"] < 0.035
    assert found["faster"] < 0.035
    assert found["slower"] + found["faster"] < 0.06


@pytest.mark.parametrize("steps", [(4, 4), (8, 5), (32, 28), (400, 400)])
@pytest.mark.parametrize("factor", [1.011, 1.02, 1.1, 0.98])
def test_what_changed_by_more_than_the_noise_is_rarely_called_the_same(steps, factor):
    """The limit is the level of one end of the interval: 2.5 %, and little more at the limit itself."""
    found = shares(drawn("normal", steps[0], 1.0, 9), drawn("normal", steps[1], factor, 10))
    assert found["same"] < 0.035


def test_with_enough_steps_a_change_is_found_and_so_is_none():
    before = drawn("normal", 1_000, 1.0, 11)[:500]
    assert shares(before, drawn("normal", 1_000, 1.05, 12)[:500])["slower"] > 0.99
    assert shares(before, drawn("normal", 1_000, 0.95, 13)[:500])["faster"] > 0.99
    assert shares(before, drawn("normal", 1_000, 1.0, 14)[:500])["same"] > 0.98


def test_few_noisy_steps_say_nothing():
    """Steps that scatter by 5 % cannot show a change of 1 % in 4 steps: it was called the same."""
    found = shares(drawn("normal", 4, 1.0, 15), drawn("normal", 4, 1.01, 16))
    assert found["unclear"] > 0.9


def test_a_few_slow_steps_are_unclear():
    """A third more in the mean, all of it in one step of 30: neither slower nor the same."""
    before = np.full((1, 30), 1_000) + np.arange(30) % 7
    after = before.copy()
    after[0, 3] += 10_000
    assert shares(before, after) == {"unclear": 1.0}


def test_an_interval_that_includes_0_is_unclear():
    """Every step takes a third longer, but an interrupted one widens the interval."""
    before = 1_000 + np.arange(30)[None, :] % 7
    after = before * 4 // 3
    after[0, 5] = 40_000
    low, high = confidence_bounds(before, after)
    assert low[0] < 0 < high[0]
    assert shares(before, after) == shares(after, before) == {"unclear": 1.0}
    without = np.delete(before, 5, axis=1), np.delete(after, 5, axis=1)
    assert shares(*without) == {"slower": 1.0}
    assert shares(*without[::-1]) == {"faster": 1.0}


def test_time_in_the_steps_of_one_side_only_is_unclear():
    """The op has time on both sides, on one of them outside of the steps: no ratio, no interval."""
    none, steps = np.zeros((1, 8), np.int64), drawn("normal", 8, 1.0, 17)[:1]
    present = np.ones(1, bool)
    for sides in ((none, steps), (steps, none)):
        whole = {"before_ns": np.array([5]), "after_ns": np.array([7])}
        table = figures(*sides) | whole
        assert row_states(table, present, present, NOISE, per_step=True).tolist() == ["unclear"]
        for side, state in (("before_ns", "new"), ("after_ns", "vanished")):
            one_sided = table | {side: np.array([0])}
            states = row_states(one_sided, present, present, NOISE, per_step=True)
            assert states.tolist() == [state]


def test_states_are_those_of_plain_comparisons():
    """Each state by its definition, over bounds, means and p of every kind."""
    values = [-30.0, -15.0, -5.0, 0.0, 5.0, 15.0, 30.0]
    cases = [
        (low, high, change, p)
        for low, high, change, p in product(values, values, values, (0.01, 0.05, 0.06, 1.0))
        if low <= change <= high
    ]
    low, high, change, p = (np.array(column) for column in zip(*cases, strict=True))
    table = {"low_ns": low, "high_ns": high, "p": p, "shift": np.sign(change) * 0.3}
    table |= {"step_before_ns": np.full(len(low), 1000.0), "step_after_ns": 1000.0 + change}
    table |= {"before_ns": np.ones(len(low)), "after_ns": np.ones(len(low))}
    present = np.ones(len(low), bool)
    states = row_states(table, present, present, 0.01, per_step=False)
    for at, (least, most, by, chance) in enumerate(cases):
        limit = 0.01 * max(1000, 1000 + by)
        if -limit <= least and most <= limit:
            expected = "same"
        elif least > 0 and by > limit and chance <= 0.05:
            expected = "slower"
        elif most < 0 and by < -limit and chance <= 0.05:
            expected = "faster"
        else:
            expected = "unclear"
        assert states[at] == expected, cases[at]
    assert set(states) == {"same", "slower", "faster", "unclear"} <= set(STATES)


@pytest.mark.parametrize("values", [3, 20, 10**9], ids=str)
def test_the_approximation_and_the_rates_are_those_of_scipy(values):
    random = np.random.default_rng(values)
    for _ in range(60):
        rows, *steps = random.integers(2, 40, 3)
        first, second = (random.integers(0, values, (rows, count)) for count in steps)
        samples = np.concatenate((first, second), axis=1)
        varies = samples.min(axis=1) < samples.max(axis=1)
        first, second = first[varies], second[varies]
        expected = mannwhitneyu(first, second, axis=1, method="asymptotic")
        p, u = statistics._approximate(first, second)
        assert p.tolist() == np.minimum(expected.pvalue, 1).tolist()
        assert u.tolist() == expected.statistic.tolist()
        rates = statistics.false_discovery_rates(p)
        assert rates.tolist() == false_discovery_control(p).tolist()
