"""Figures per group against NumPy's and Python's own, a group at a time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.analyze.core import groups

GROUPS = 4
times = st.integers(-(1 << 50), 1 << 50)
rows = st.lists(st.tuples(st.integers(0, GROUPS - 1), times))


def columns(rows):
    return np.array(rows, np.int64).reshape(-1, 2).T.copy()


def of_each(rows):
    return [[value for group, value in rows if group == each] for each in range(GROUPS)]


@pytest.mark.slow
@given(rows)
def test_counts_sums_and_extremes(rows):
    group, value = columns(rows)
    assert groups.counts(group, GROUPS).tolist() == list(map(len, of_each(rows)))
    assert groups.sums(group, value, GROUPS).tolist() == list(map(sum, of_each(rows)))
    lowest = [min(own, default=-1) for own in of_each(rows)]
    assert groups.lowest(group, value, GROUPS).tolist() == lowest
    highest = [max(own, default=-7) for own in of_each(rows)]
    assert groups.highest(group, value, GROUPS, empty=-7).tolist() == highest


def test_sums_are_exact_where_floats_are_not():
    large = (1 << 53) + 1
    assert groups.sums(np.array([0, 0]), np.array([large, 2]), 1).tolist() == [large + 2]


@pytest.mark.slow
@given(rows, st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.9, 0.95, 1.0]), min_size=1))
def test_quantiles_are_those_of_numpy(rows, shares):
    found = groups.quantiles(*columns(rows), GROUPS, *shares)
    for share, of_groups in zip(shares, found, strict=True):
        truth = [np.quantile(own, share) if own else 0 for own in of_each(rows)]
        assert of_groups == pytest.approx(truth, rel=1e-12, abs=1)


@given(rows)
def test_a_ratio_of_nothing_is_nothing(rows):
    part, whole = columns(rows)
    truth = [p / w if w else 0 for p, w in zip(part.tolist(), whole.tolist(), strict=True)]
    assert groups.ratio(part, whole).tolist() == pytest.approx(truth)
    assert groups.ratio(part, 0).tolist() == [0] * len(rows)
