"""How the clocks of several reports lie to one another: by when their sessions began, better by collectives.

A collective ends on all its ranks at about one time, so the median of what ends differ by is what clocks do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bridge.analyze.concurrency.communication import Calls, sequences
from bridge.analyze.devices import Devices
from bridge.analyze.groups import counts, highest, lowest, quantiles
from bridge.analyze.ranks.members import host_of
from bridge.join.arrays import NONE, Flags, Ints, by, number, runs
from bridge.join.attributed import Attributed
from importers import frames
from importers.report import Facts

# -- The same collective on all ranks: the n-th of streams on which they run the same ones


def transfers(rank: Ints, stream: Ints, kind: Ints, start: Ints, time: Ints) -> Ints:
    """Return for each collective the least time that it took on any rank, -1 for one that only one rank is known to run.

    Ranks belong together by what they run, kind after kind, on a stream; where a rank has several streams
    that run the same, the first of each belong together. Clocks do not matter: times alone are compared.
    """
    if not len(rank):
        return time
    same = together(rank, stream, kind, start)
    ran = np.bincount(same)
    least = lowest(same, time, len(ran))
    found: Ints = np.where(ran > 1, least, NONE)[same]
    return found


def together(rank: Ints, stream: Ints, kind: Ints, start: Ints) -> Ints:
    """Number the collectives: alike those that are one on several ranks, and none else. There is at least one."""
    order = by(rank, stream, start)
    home, _ = number(rank[order], stream[order])
    edges = runs(home)
    place = np.arange(len(order)) - np.repeat(edges[:-1], np.diff(edges))
    sequence = np.empty(len(order), np.int64)
    for one, (first, last) in zip(
        _same(rank, kind, start, order, edges), pairwise(edges.tolist()), strict=True
    ):
        sequence[first:last] = one
    found = np.empty(len(order), np.int64)
    found[order] = number(sequence, place)[0]
    return found


def _same(rank: Ints, kind: Ints, start: Ints, order: Ints, edges: Ints) -> list[int]:
    """Number the streams: alike those of several ranks that run the same."""
    numbers: dict[tuple[bytes, int], int] = {}
    seen: dict[tuple[bytes, int], int] = {}
    found = [0] * (len(edges) - 1)
    begun = [int(start[order[first]]) for first in edges[:-1].tolist()]
    for nth in np.argsort(begun, kind="stable").tolist():  # a turn per stream of a rank
        rows = order[edges[nth] : edges[nth + 1]]
        runs_, of = kind[rows].tobytes(), int(rank[rows[0]])
        seen[runs_, of] = seen.get((runs_, of), 0) + 1
        found[nth] = numbers.setdefault((runs_, seen[runs_, of]), len(numbers))
    return found


# -- How the clocks of several reports lie to one another: by when their sessions began, better by collectives


REFERENCE, START, COLLECTIVES, APART, UNKNOWN = (
    "reference",
    "session start",
    "collectives",
    "apart",
    "unknown",
)
# Those that no rank can leave before all have come.
JOINT = frozenset(["AllReduce", "AllGather", "AllGatherV", "ReduceScatter", "AllToAll", "Barrier"])
FEWEST = 3  # collectives that clocks are told by
WIDEST_NS = 10_000_000  # of the middle nine tenths of differences
FARTHEST_NS = 1_000_000_000  # that clocks of two hosts are believed to differ
FARTHEST_ON_HOST_NS = 10_000_000  # the same of what one host's clock said
SITTING_NS = 60_000_000_000  # captures of one run have no longer pause between them
MIDDLE = (0.05, 0.5, 0.95)


@dataclass(frozen=True)
class Clocks:
    """Per report: what is added to its times to get the reference's, within which spread, by what that is known.

    All in ns; the offset is 0 where nothing is known, the spread NONE.
    """

    offset: Ints
    spread: Ints
    known_by: list[str]

    @classmethod
    def of(cls, joined: Attributed) -> Clocks:
        """Find out by all that is known."""
        facts = joined.report.facts
        found = by_start(facts)
        if not all(one.timeline for one in facts):
            return replace(found, offset=0 * found.offset, known_by=[UNKNOWN] * len(facts))
        return _refined(found, Ends.of(joined), facts) if len(facts) > 1 else found

    @property
    def exact(self) -> Flags:
        """Which reports' times compare with the reference's as well as collectives tell."""
        return np.array([one in {REFERENCE, COLLECTIVES} for one in self.known_by], bool)

    @property
    def moves(self) -> bool:
        """Whether any clock differs from the reference's."""
        return bool(self.offset.any())


def by_start(facts: Sequence[Facts]) -> Clocks:
    """Tell clocks by when sessions began: of those of one sitting, which begins with the first report that says when."""
    known = [n for n, one in enumerate(facts) if one.epoch_ns != frames.MISSING]
    first = known[0] if known else 0
    offset, spread = np.zeros(len(facts), np.int64), np.full(len(facts), NONE)
    known_by = [APART if n in known else UNKNOWN for n in range(len(facts))]
    for n in _sitting(facts, known, first):
        offset[n] = facts[n].epoch_ns - facts[first].epoch_ns
        known_by[n] = START
    known_by[first], spread[first] = REFERENCE, 0
    return Clocks(offset, spread, known_by)


def _sitting(facts: Sequence[Facts], known: Sequence[int], first: int) -> list[int]:
    """Return the reports that run on from one to the next, without a long pause, around the first."""
    spans = {n: tuple(facts[n].epoch_ns + edge for edge in facts[n].span) for n in known}
    sittings: list[list[int]] = []
    last = 0
    for n in sorted(known, key=lambda n: spans[n]):  # a turn per report
        if not sittings or spans[n][0] > last + SITTING_NS:
            sittings.append([])
        sittings[-1].append(n)
        last = max(last, spans[n][1])
    return next((sitting for sitting in sittings if first in sitting), [])


@dataclass(frozen=True)
class Ends:
    """When collectives that are one ended in each report: their number, the report, the time by its clock in ns."""

    same: Ints
    report: Ints
    time: Ints

    @classmethod
    def of(cls, joined: Attributed) -> Ends:
        """Take the collectives that all ranks leave together; in a report the last rank counts."""
        calls, devices = Calls.of(joined), Devices.of_report(joined)
        nothing = np.empty(0, np.int64)
        if not len(calls.row):
            return cls(nothing, nothing, nothing)
        rank, stream, kind, start, _ = sequences(joined, calls, devices)
        same = together(rank, stream, kind, start)
        rows = np.flatnonzero(np.isin(calls.collective, list(JOINT)))
        report = frames.ints(joined.report.activities, "report")[calls.row]
        one, first = number(same[rows], report[rows])
        end = highest(one, joined.end[calls.row[rows]], len(first))
        return cls(same[rows[first]], report[rows[first]], end)


def _refined(found: Clocks, ends: Ends, facts: Sequence[Facts]) -> Clocks:
    """Bring clocks together at collectives, from the reference to what shares some with it, and on from there."""
    offset, spread, known_by = found.offset.copy(), found.spread.copy(), list(found.known_by)
    many, same = len(facts), int(ends.same.max(initial=NONE)) + 1
    fixed = np.array([one == REFERENCE for one in known_by], bool)
    left = ~fixed
    while True:  # a turn per step away from the reference
        there = fixed[ends.report]
        time = ends.time + offset[ends.report]
        anchor = np.full(same, np.iinfo(np.int64).min)
        np.maximum.at(anchor, ends.same[there], time[there])
        common = left[ends.report] & (anchor[ends.same] != np.iinfo(np.int64).min)
        of = ends.report[common]
        apart = (anchor[ends.same] - time)[common]
        base = lowest(
            of, apart, many, empty=0
        )  # taken off, so that what is left is exact as a float
        low, middle, high = quantiles(of, apart - base[of], many, *MIDDLE)
        asked = np.flatnonzero(counts(of, many) >= FEWEST).tolist()
        if not asked:
            return Clocks(offset, spread, known_by)
        left[asked] = False
        for n in asked:  # a turn per report
            width, further = round(high[n] - low[n]), int(base[n]) + round(middle[n])
            if width <= WIDEST_NS and abs(further) <= _farthest(found, facts, n):
                offset[n] += further
                spread[n], known_by[n], fixed[n] = -(-width // 2), COLLECTIVES, True


def _farthest(found: Clocks, facts: Sequence[Facts], n: int) -> float:
    """Return how far from what its session's start says the clock of a report is believed to be, in ns."""
    if found.known_by[n] == APART:  # other runs of the same program end their collectives alike
        return -1
    if found.known_by[n] == UNKNOWN:
        return float("inf")
    reference = facts[found.known_by.index(REFERENCE)]
    same = host_of(facts[n]) == host_of(reference) != ""
    return FARTHEST_ON_HOST_NS if same else FARTHEST_NS
