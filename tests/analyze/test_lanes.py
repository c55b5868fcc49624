"""Lanes against looking at every pair of slices."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.analyze.draw import tracks

TRACKS = 3
slices = st.lists(
    st.tuples(st.integers(0, TRACKS - 1), st.integers(-5, 15), st.integers(0, 12)), max_size=14
)


def laned(lay_out, slices, order=None):
    track, start, length = np.array(slices, np.int64).reshape(-1, 3).T.copy()
    return lay_out(track, start, start + length).tolist()


def pairs(slices, lane):
    """Yield (start, end) of every two slices that share a lane."""
    drawn = [
        (track, number, start, start + length)
        for (track, start, length), number in zip(slices, lane, strict=True)
    ]
    for a, b in combinations(drawn, 2):
        if a[:2] == b[:2]:
            yield a[2:], b[2:]


def overlap(a, b):
    return a[0] < b[1] and b[0] < a[1]


def cross(a, b):
    (_, end), (start, later) = sorted((a, b), key=lambda of: (of[0], -of[1]))
    return start < end < later


@pytest.mark.slow
@given(slices)
@example([(0, 0, 9), (0, 0, 0)])
@example([(0, 5, 0), (0, 0, 9), (0, 5, 0)])
def test_no_two_of_a_lane_overlap_and_no_lane_is_too_many(slices):
    lane = laned(tracks.disjoint_lanes, slices)
    assert not [pair for pair in pairs(slices, lane) if overlap(*pair)]
    for track in range(TRACKS):
        used = {number for (of, _, _), number in zip(slices, lane, strict=True) if of == track}
        own = [(start, start + length) for of, start, length in slices if of == track]
        assert used == set(range(most_at_once(own)))


def most_at_once(slices):
    """Return how many of some slices overlap each other: all that are open where one of them starts."""
    just_after = [sum(a <= start < b for a, b in slices) for start, end in slices if start < end]
    instants = [1 + sum(a < start < b for a, b in slices) for start, end in slices if start == end]
    return max([*just_after, *instants], default=0)


@given(slices)
def test_those_of_a_lane_nest(slices):
    lane = laned(tracks.nested_lanes, slices)
    assert not [pair for pair in pairs(slices, lane) if cross(*pair)]
    drawn = [(track, (start, start + length)) for track, start, length in slices]
    for (track, one), number in zip(drawn, lane, strict=True):
        crosses = [other for of, other in drawn if of == track and cross(one, other)]
        assert number == 0 or crosses  # what is in nobody's way stays where it was


@pytest.mark.slow
@pytest.mark.parametrize("lay_out", [tracks.disjoint_lanes, tracks.nested_lanes])
@given(slices=slices, seed=st.integers(0, 5))
def test_a_lane_depends_on_the_slices_not_on_their_order(lay_out, slices, seed):
    order = np.random.default_rng(seed).permutation(len(slices))
    shuffled = [slices[row] for row in order]
    once = sorted(zip(slices, laned(lay_out, slices), strict=True))
    again = sorted(zip(shuffled, laned(lay_out, shuffled), strict=True))
    assert once == again
