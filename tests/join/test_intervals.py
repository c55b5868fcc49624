"""Lengths of unions against counting instants."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import example, given, strategies
from witness.attribution import union

from bridge.join import arrays
from bridge.join.arrays import busy_time

intervals = strategies.lists(
    strategies.tuples(strategies.integers(-8, 20), strategies.integers(-8, 30))
)
GROUPS = 5
grouped = strategies.lists(
    strategies.tuples(
        strategies.integers(0, GROUPS - 1), strategies.integers(-8, 20), strategies.integers(-8, 30)
    )
)


def columns(rows):
    return np.array(rows, np.int64).reshape(-1, 3).T.copy()


@given(intervals)
def test_the_slow_opinion_counts_every_instant_once(intervals):
    assert union(intervals) == len({at for start, end in intervals for at in range(start, end)})


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 1 << 40, 1 << 55, 1 << 57])
@given(rows=grouped)
@example(rows=[(0, 0, -1)])
@example(rows=[(0, 0, 30), (4, -8, 30), (4, 1, 2)])
def test_busy_is_the_length_of_the_union_of_each_group(rows, scale):
    """The larger the span, the fewer groups fit into 63 bits at a time; at the largest, one."""
    rows = [(group, start * scale, end * scale) for group, start, end in rows]
    expected = [union((s, e) for g, s, e in rows if g == group) for group in range(GROUPS)]
    assert busy_time(*columns(rows), GROUPS).tolist() == expected


@pytest.mark.slow
@given(rows=grouped, block=strategies.integers(1, 4))
@example(rows=[(0, 0, 9), (0, 1, 2), (0, 3, 12), (1, 0, 2)], block=2)
def test_a_union_goes_on_from_block_to_block(rows, block):
    expected = [union((s, e) for g, s, e in rows if g == group) for group in range(GROUPS)]
    with mock.patch.object(arrays, "BLOCK", block):
        assert busy_time(*columns(rows), GROUPS).tolist() == expected


@pytest.mark.slow
@given(rows=grouped, block=strategies.integers(1, 4), one=strategies.booleans())
@example(rows=[(0, 0, 9), (0, 1, 2), (0, 3, 12), (1, 0, 2)], block=2, one=False)
def test_unions_are_what_is_covered_whatever_the_blocks(rows, block, one):
    """Each group's pieces cover the instants that its intervals do, and no two of them touch."""
    group, start, end = columns(rows)
    if one:
        group = np.broadcast_to(np.int64(3), len(rows))
    with mock.patch.object(arrays, "BLOCK", block):
        found = arrays.unions(group, start, end)
    pieces = [*zip(*(column.tolist() for column in found), strict=True)]
    assert pieces == sorted(pieces)
    instants = [(owner, at) for owner, first, last in pieces for at in range(first, last + 1)]
    assert len(instants) == len(set(instants))
    covered = {(g, at) for g, s, e in zip(group, start, end, strict=True) for at in range(s, e)}
    assert {(owner, at) for owner, first, last in pieces for at in range(first, last)} == covered


@pytest.mark.parametrize("groups", [127, 128, 129, 130, 32_767, 32_768, 32_769])
def test_groups_keep_their_numbers(groups):
    """The last numbers that fit into narrow integers, and those behind them."""
    group = np.arange(groups)
    owner, start, end = arrays.unions(group, group * 10, group * 10 + 5)
    assert owner.tolist() == group.tolist()
    assert (end - start).tolist() == [5] * groups


@pytest.mark.parametrize("far", [0, 1 << 60, -(1 << 61)])
def test_unions_of_groups_far_apart(far):
    """Shifted beside each other, so far groups would not fit into 64 bits."""
    rows = [(0, 5, 9), (0, 6, 7), (1, far, far + 4), (1, far + 4, far + 6), (2, 5, 6), (2, 8, 9)]
    found = arrays.unions(*np.array(rows, np.int64).T.copy())
    one_by_one = [*zip(*(column.tolist() for column in found), strict=True)]
    assert one_by_one == [(0, 5, 9), (1, far, far + 6), (2, 5, 6), (2, 8, 9)]


def test_many_groups_with_huge_spans():
    generator = np.random.default_rng(3)
    count, groups = 4_000, 1_000
    group = generator.integers(0, groups, count)
    start = generator.integers(-(1 << 52), 1 << 52, count)
    end = start + generator.integers(0, 1 << 51, count)
    rows = list(zip(group.tolist(), start.tolist(), end.tolist(), strict=True))
    found = busy_time(group, start, end, groups)
    for one in range(0, groups, 37):
        assert found[one] == union((s, e) for g, s, e in rows if g == one)
