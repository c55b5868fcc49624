"""Clocks brought together by when collectives ended: four clocks, in arrays."""

from __future__ import annotations

import numpy as np

from bridge.analyze.run.concurrency.clocks import (
    COLLECTIVES,
    REFERENCE,
    START,
    CollectiveEnds,
    _refined,
    clocks_by_start,
)
from bridge.importers.capture import Facts

EPOCH = 1_700_000_000_000_000_000
SECOND = 1_000_000_000


def clocks(began, ended):
    """Tell clocks by when sessions began and by what each report saw end: {report: {collective: time}}."""
    facts = [Facts(span=(0, SECOND), epoch_ns=EPOCH + at) for at in began]
    rows = sorted((same, n, at) for n, own in ended.items() for same, at in own.items())
    same, report, time = np.array(rows, np.int64).T.copy()
    return _refined(clocks_by_start(facts), CollectiveEnds(same, report, time), facts)


def test_clocks_are_moved_until_collectives_end_together():
    """The second session says that it began 1000 later than the first; in truth it was 1300."""
    times = {n: 10_000 * n for n in range(5)}
    ended = {0: times, 1: {n: at - 1_300 for n, at in times.items()}}
    found = clocks([0, 1_000], ended)
    assert found.known_by == [REFERENCE, COLLECTIVES]
    assert found.offset.tolist() == [0, 1_300]
    assert found.spread.tolist() == [0, 0]


def test_a_clock_that_shares_collectives_with_no_reference_is_told_by_one_that_does():
    """The third shares its own with the second alone: first the second is known, then the third."""
    mine, theirs = {n: 10_000 * n for n in range(4)}, {n: 10_000 * n for n in range(4, 8)}
    ended = {
        0: mine,
        1: {n: at - 700 for n, at in (mine | theirs).items()},
        2: {n: at + 250 for n, at in theirs.items()},
    }
    found = clocks([0, 0, 0], ended)
    assert found.known_by == [REFERENCE, COLLECTIVES, COLLECTIVES]
    assert found.offset.tolist() == [0, 700, -250]


def test_two_collectives_tell_no_clock():
    times = {n: 10_000 * n for n in range(2)}
    found = clocks([0, 1_000], {0: times, 1: {n: at - 1_300 for n, at in times.items()}})
    assert found.known_by == [REFERENCE, START]
    assert found.offset.tolist() == [0, 1_000]
    assert found.spread.tolist() == [0, -1]
