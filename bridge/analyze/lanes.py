"""Lanes: on one track of a viewer slices may nest or follow each other, never cross.

Perfetto drops a slice that overlaps the one before without nesting (by even 1 ns), so what would
cross goes to a further lane of its track.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from bridge.join.nesting import parents
from bridge.join.order import NONE, Flags, Ints, by, outer_first, runs


def apart(track: Ints, start: Ints, end: Ints) -> Ints:
    """Return a lane per slice such that no two of a lane overlap at all, as few as possible."""
    order = by(track, start, end)  # of one start, what has no length first: it is in nobody's way
    overlaps = _overlapping(track[order], start[order], end[order])
    return _lanes(track, order, overlaps, lambda rows: _first_fit(start[rows], end[rows]))


def nested(track: Ints, start: Ints, end: Ints) -> Ints:
    """Return a lane per slice such that those of a lane nest; given order is outer before inner."""
    order = outer_first(track, start, end)
    if not _overlapping(track[order], start[order], end[order]).any():
        return np.zeros(len(order), np.int64)  # as calls of an API are, mostly
    above = parents(track[order], start[order], end[order])
    crosses = (above != NONE) & (end[order] > end[order][above])
    return _lanes(track, order, crosses, lambda rows: _nesting(start[rows], end[rows]))


def _overlapping(track: Ints, start: Ints, end: Ints) -> Flags:
    """Tell which of sorted slices overlap the one before; if any two do, two neighbours do."""
    found = np.zeros(len(start), bool)
    found[1:] = (track[1:] == track[:-1]) & (start[1:] < end[:-1])
    return found


def _lanes(track: Ints, order: Ints, wrong: Flags, chosen: Callable[[Ints], Flags]) -> Ints:
    """Fill lanes of the tracks that have anything wrong, one lane after the other."""
    lane = np.zeros(len(track), np.int64)
    bad = np.isin(track[order], np.unique(track[order][wrong]))
    left, number = order[bad], 0
    while len(left):
        edges = runs(track[left])
        stays = np.concatenate([chosen(left[a:b]) for a, b in pairwise(edges)])
        lane[left[stays]] = number
        left, number = left[~stays], number + 1
    return lane


def _first_fit(start: Ints, end: Ints) -> Flags:
    """Choose the first slice, then always the next that starts once the last chosen has ended."""
    count = len(start)
    following = np.append(np.searchsorted(start, end, side="left"), count)
    following[:-1] = np.maximum(following[:-1], np.arange(1, count + 1))  # of no length: move on
    chosen = np.zeros(count + 1, bool)
    reached = np.zeros(1, np.int64)
    while reached[-1] != count:  # each round knows twice as many steps, and takes them at once
        reached = np.concatenate((reached, following[reached]))
        following = following[following]
    chosen[reached] = True
    return chosen[:-1]


def _nesting(start: Ints, end: Ints) -> Flags:
    """Choose slices that nest: leave out whichever crosses, until none does."""
    kept = np.arange(len(start))
    while True:
        above = parents(np.zeros(len(kept), np.int64), start[kept], end[kept])
        crosses = (above != NONE) & (end[kept] > end[kept][above])
        if not crosses.any():
            chosen = np.zeros(len(start), bool)
            chosen[kept] = True
            return chosen
        kept = kept[~crosses]
