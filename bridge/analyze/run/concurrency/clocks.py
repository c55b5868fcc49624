"""Align the clocks of several files by the start of sessions, and more exactly by collectives.

A collective ends on all its ranks at about the same time, so clocks differ by the median difference
of these ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bridge.analyze.core.groups import counts, highest, lowest, quantiles
from bridge.analyze.run.concurrency.matching import MatchedCalls
from bridge.analyze.run.ranks.members import host_of
from bridge.importers.arrays import MISSING
from bridge.importers.capture import Facts
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups
from bridge.join.attributed import AttributedCapture

REFERENCE, START, COLLECTIVES, APART, UNKNOWN = (
    "reference",
    "session start",
    "collectives",
    "apart",
    "unknown",
)
MIN_COLLECTIVES = 3  # collectives needed to align a clock
MAX_SPREAD_NS = 10_000_000  # between the 5 % and 95 % quantiles of differences
MAX_OFFSET_NS = 1_000_000_000  # correction of clocks of different hosts
MAX_OFFSET_ON_HOST_NS = 10_000_000  # correction of clocks of one host
MAX_PAUSE_NS = 60_000_000_000  # between captures of one session
QUANTILES = (0.05, 0.5, 0.95)


@record
class Clocks:
    """The clock of each file: the offset to the clock of the reference, its spread, and its source.

    All times are in ns. The offset is added to the times of the file; it is 0 and the spread NONE
    where nothing is known.
    """

    offset: Ints
    spread: Ints
    known_by: list[str]

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Clocks:
        facts = attributed.capture.facts
        clocks = clocks_by_start(facts)
        if not all(fact.timeline for fact in facts):
            return replace(clocks, offset=0 * clocks.offset, known_by=[UNKNOWN] * len(facts))
        return _refined(clocks, CollectiveEnds.of(attributed), facts) if len(facts) > 1 else clocks

    @property
    def exact(self) -> Flags:
        """Whether the times of each file are comparable with those of the reference."""
        return np.array([name in {REFERENCE, COLLECTIVES} for name in self.known_by], bool)

    @property
    def moves(self) -> bool:
        """Whether any clock differs from that of the reference."""
        return bool(self.offset.any())


def clocks_by_start(facts: Sequence[Facts]) -> Clocks:
    """Return the clocks by the recorded starts of sessions.

    Only files of one session, around the first file with a recorded start, are aligned.
    """
    with_start = [n for n, fact in enumerate(facts) if fact.epoch_ns != MISSING]
    first = with_start[0] if with_start else 0
    offset, spread = np.zeros(len(facts), np.int64), np.full(len(facts), NONE)
    known_by = [APART if n in with_start else UNKNOWN for n in range(len(facts))]
    for n in _same_session(facts, with_start, first):
        offset[n] = facts[n].epoch_ns - facts[first].epoch_ns
        known_by[n] = START
    known_by[first], spread[first] = REFERENCE, 0
    return Clocks(offset, spread, known_by)


def _same_session(facts: Sequence[Facts], with_start: Sequence[int], first: int) -> list[int]:
    """Return the files that follow one another without a long pause, around the first one."""
    spans = {n: tuple(facts[n].epoch_ns + edge for edge in facts[n].span) for n in with_start}
    sittings: list[list[int]] = []
    last = 0
    for n in sorted(with_start, key=lambda n: spans[n]):  # one iteration per report
        if not sittings or spans[n][0] > last + MAX_PAUSE_NS:
            sittings.append([])
        sittings[-1].append(n)
        last = max(last, spans[n][1])
    return next((sitting for sitting in sittings if first in sitting), [])


@record
class CollectiveEnds:
    """When each collective ended in each file: its number, the file and the time in ns."""

    same: Ints
    report: Ints
    time: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture) -> CollectiveEnds:
        """Return the ends of collectives that all ranks leave at once; per file the last one."""
        matched = MatchedCalls.of(attributed)
        calls, rows = matched.calls, np.flatnonzero(matched.is_joint)
        report = attributed.capture.activities.report[calls.row]
        one, first = number_groups(matched.number[rows], report[rows])
        end = highest(one, attributed.end[calls.row[rows]], len(first))
        return cls(matched.number[rows[first]], report[rows[first]], end)


def _refined(clocks: Clocks, ends: CollectiveEnds, facts: Sequence[Facts]) -> Clocks:
    """Align clocks by common collectives, from the reference on to files that share some."""
    offset, spread, known_by = clocks.offset.copy(), clocks.spread.copy(), list(clocks.known_by)
    size, collective_count = len(facts), int(ends.same.max(initial=NONE)) + 1
    is_aligned = np.array([name == REFERENCE for name in known_by], bool)
    remaining = ~is_aligned
    while True:  # one iteration per step away from the reference
        rows = is_aligned[ends.report]
        time = ends.time + offset[ends.report]
        anchor = np.full(collective_count, np.iinfo(np.int64).min)
        np.maximum.at(anchor, ends.same[rows], time[rows])
        is_common = remaining[ends.report] & (anchor[ends.same] != np.iinfo(np.int64).min)
        report = ends.report[is_common]
        difference = (anchor[ends.same] - time)[is_common]
        base = lowest(
            report, difference, size, empty=0
        )  # subtracted, so that the rest is exact as a float
        low, middle, high = quantiles(report, difference - base[report], size, *QUANTILES)
        usable = np.flatnonzero(counts(report, size) >= MIN_COLLECTIVES).tolist()
        if not usable:
            return Clocks(offset, spread, known_by)
        remaining[usable] = False
        for number in usable:  # one iteration per report
            width = round(high[number] - low[number])
            correction = int(base[number]) + round(middle[number])
            if width <= MAX_SPREAD_NS and abs(correction) <= _max_correction(clocks, facts, number):
                offset[number] += correction
                spread[number], known_by[number], is_aligned[number] = (
                    -(-width // 2),
                    COLLECTIVES,
                    True,
                )


def _max_correction(clocks: Clocks, facts: Sequence[Facts], n: int) -> float:
    """Return by how many ns collectives may correct the clock of a file."""
    if clocks.known_by[n] == APART:  # other runs of a program have similar collectives
        return -1
    if clocks.known_by[n] == UNKNOWN:
        return float("inf")
    reference = facts[clocks.known_by.index(REFERENCE)]
    is_same_host = host_of(facts[n]) == host_of(reference) != ""
    return MAX_OFFSET_ON_HOST_NS if is_same_host else MAX_OFFSET_NS
