"""Where a sequence of runs changed: beside a plain loop over SciPy's t-test, and how often it errs on drawn runs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from scipy import stats

from bridge.analyze.compare.change_points import (
    MIN_RUNS,
    MIN_SIDE,
    MIN_WINDOW,
    change_points,
    strongest,
)
from bridge.analyze.compare.statistics import CONFIDENCE, SIGNIFICANCE, confidence_bounds

Noise = Callable[[Generator, tuple[int, int]], np.ndarray]
NOISES: dict[str, Noise] = {
    "normal": lambda draw, size: draw.normal(size=size),
    "heavy tails": lambda draw, size: draw.standard_t(3, size),
    "skewed": lambda draw, size: draw.lognormal(0, 0.8, size),
    "disturbed runs": lambda draw, size: draw.normal(size=size) + 8 * (draw.random(size) < 0.05),
}


def runs(rows: int, size: int, spread: float, noise: str = "normal", seed: int = 7) -> np.ndarray:
    """Draw sequences of the median times of runs without a change."""
    return 1e6 * (10 + 10 * spread * NOISES[noise](default_rng(seed), (rows, size)))


def changed(rows: int, size: int, at: int, by: float, spread: float) -> np.ndarray:
    """Draw sequences whose times change by a share from a run on."""
    values = runs(rows, size, spread)
    values[:, at:] *= 1 + by
    return values


def one_by_one(values: list[float]) -> tuple[float, int]:
    """Say p and the place of the most likely change, by a t-test for each window, split and run left out."""
    size, found, tried = len(values), [], 0
    lengths = [size]
    while lengths[-1] // 2 >= MIN_WINDOW:
        lengths.append(lengths[-1] // 2)
    for length in lengths:
        starts = {*range(0, size - length + 1, length // 2), size - length}
        for start in starts:
            for split in range(start + MIN_SIDE, start + length - MIN_SIDE + 1):
                tried += 1
                p = []
                for left_out in range(start, start + length):
                    before = [values[n] for n in range(start, split) if n != left_out]
                    after = [values[n] for n in range(split, start + length) if n != left_out]
                    p.append(stats.ttest_ind(before, after).pvalue)
                found.append((max(p), split))
    p, at = min(found)
    return min(1.0, p * tried), at


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 6, 8, 15, 21])
def test_the_test_is_that_of_a_plain_loop(size: int):
    values = np.concatenate([changed(3, size, size // 2, 0.05, 0.02), runs(3, size, 0.02)])
    p, at = strongest(values)
    for row, expected in enumerate(map(one_by_one, values.tolist())):
        assert p[row] == pytest.approx(expected[0])
        if p[row] < 1:
            assert at[row] == expected[1]


# -- How often it errs


@pytest.mark.slow
@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("size", "rows"), [(MIN_RUNS, 2000), (8, 2000), (20, 2000), (50, 1000)])
def test_runs_without_a_change_have_one_at_most_as_often_as_said(noise: str, size: int, rows: int):
    p, _ = strongest(runs(rows, size, 0.02, noise))
    assert (p <= SIGNIFICANCE).mean() <= SIGNIFICANCE


@pytest.mark.slow
def test_many_ops_without_a_change_have_none_as_often():
    """Each of 400 trends has 30 ops."""
    values = runs(400 * 30, 20, 0.02).reshape(400, 30, 20)
    alarms = [any(change_points(ops)[1]) for ops in values]
    assert np.mean(alarms) <= SIGNIFICANCE


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.01, 0.02])
def test_a_tenth_more_at_run_12_of_20_is_found_there(spread: float):
    """Of 30 ops one takes longer from run 12 on."""
    found = 0
    for number, values in enumerate(changed(200, 20, 12, 0.10, spread)):
        _, changes = change_points(np.stack([values, *runs(29, 20, spread, seed=100 + number)]))
        found += [abs(change.at - 12) <= 1 for change in changes[0]] == [True]
    assert found / 200 >= 0.9


@pytest.mark.slow
def test_one_time_alone_is_found_in_more_noise():
    values = changed(500, 20, 12, 0.10, 0.03)
    _, changes = change_points(values)
    assert np.mean([any(abs(c.at - 12) <= 1 for c in found) for found in changes]) >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize(("size", "at"), [(10, 5), (20, 12), (50, 30), (100, 60)])
def test_place_and_size_are_within_their_bounds_as_often_as_said(size: int, at: int):
    """Of changes that are mostly found: those that chance alone lifts over the limit look larger than they are."""
    values = changed(1000, size, at, 0.10, 0.02)
    _, found = change_points(values)
    pairs = [
        (row, of_row[0]) for row, of_row in zip(values, found, strict=True) if len(of_row) == 1
    ]
    assert len(pairs) >= 950
    assert np.mean([change.first <= at <= change.last for _, change in pairs]) >= CONFIDENCE
    held = 0
    for row, change in pairs:
        low, high = confidence_bounds(row[np.newaxis, : change.at], row[np.newaxis, change.at :])
        held += low[0] <= 1e6 <= high[0]
    assert held / len(pairs) >= CONFIDENCE - 0.025


# -- What it finds


def places(*values: list[float]) -> list[list[int]]:
    return [[change.at for change in row] for row in change_points(np.array(values, float))[1]]


def test_a_change_and_its_way_back_are_two():
    there = [
        10.0,
        10.1,
        9.9,
        10,
        10.2,
        9.8,
        10,
        11.1,
        11,
        10.9,
        11.2,
        11,
        11,
        10.0,
        9.9,
        10.1,
        10,
        10,
    ]
    assert places(there) == [[7, 13]]


def test_levels_lie_between_neighbouring_changes():
    values = np.array([[10.0] * 6 + [20.0] * 6 + [30.0] * 6]) + np.tile([0.0, 0.1], 9)
    [[first, second]] = change_points(values)[1]
    assert (first.start, first.at, first.end) == (0, 6, 12)
    assert (second.start, second.at, second.end) == (6, 12, 18)


@pytest.mark.parametrize("place", [0, 1, 9, 18, 19])
def test_one_disturbed_run_is_no_change(place: int):
    values = [10.0, 10.1] * 10
    values[place] = 50.0
    assert places(values) == [[]]


def test_equal_runs_have_no_change_and_equal_levels_have_one():
    assert places([7.0] * 12, [7.0] * 6 + [8.0] * 6) == [[], [6]]
    assert places([0.0] * 6 + [5.0, 5.1, 5.0, 5.2, 5.1, 5.0], [0.0] * 12) == [[6], []]


def test_further_changes_of_one_of_many_ops_must_be_clearer():
    """p of the second change is 0.009: enough for one op, not for one of thirty."""
    values = [
        *(1.046, 0.999, 1.01, 0.984, 1.01, 0.971, 1.005, 0.998, 1.044, 0.999),
        *(1.291, 1.286, 1.27, 1.32, 1.338, 1.368, 1.398, 1.369, 1.39, 1.391),
    ]
    assert [len(row) for row in places(values)] == [2]
    others = runs(29, 20, 0.02).tolist()
    assert places(values, *others)[0] == [10]


def test_what_rounding_leaves_is_no_change():
    values = np.array([[third] * 40 for third in (1 / 3, 1e9 / 3, 1e-9 / 3)])
    q, changes = change_points(values)
    assert (q.tolist(), changes) == ([1.0] * 3, [[]] * 3)
    [[change]] = change_points(np.array([[1e9 + n % 2 + 5 * (n > 9) for n in range(20)]]))[1]
    assert change.at == 10


def test_few_runs_have_none():
    assert places([1.0, 1.0, 9.0, 9.0]) == [[]]
    assert places([1.0, 1.01, 9.0, 9.01, 9.0]) == [[2]]
    assert change_points(np.zeros((0, 7)))[1] == []
    assert change_points(np.zeros((0, 0)))[1] == []


def test_a_place_that_is_not_clear_has_bounds():
    values = [10.0, 10.1, 9.9, 10, 10.1, 10.5, 11, 11.1, 10.9, 11, 11.1, 11]
    [[change]] = change_points(np.array([values]))[1]
    assert change.first <= change.at <= change.last
    assert (change.first, change.last) == (5, 6)
