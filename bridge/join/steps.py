"""Steps: the ranges that part a run into its iterations, found by what they are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise

import numpy as np

from bridge.join.arrays import NONE, Flags, Ints, by, number, runs
from importers import frames
from importers.report import Report

OURS = r"(?:train(?:ing)?|global)[ _-]?"
NUMBERED = r"(?:[ _#:=-]*(\d{1,18})(?: *(?:to|of|/|-) *\d+)?)"
KINDS = tuple(  # the first of these that a process has tells its steps
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"ProfilerStep{NUMBERED}",
        rf"(?:{OURS})?step{NUMBERED}?",
        rf"(?:{OURS})?iter(?:ation)?{NUMBERED}?",
        rf"(?:{OURS})?(?:mini[ _-]?)?batch{NUMBERED}",
    )
)


@dataclass(frozen=True)
class Steps:
    """The steps of all processes, by report and process in order of time; none overlaps the next.

    ``range`` is the row of each step's range, NONE for one that was found by repetition; ``number`` is what its name says, else its place among the
    steps of its process, from 0.
    """

    range: Ints
    number: Ints
    report: Ints
    process: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, report: Report) -> Steps:
        """Find the steps of a report: of one kind and one thread per process, outermost ones alone."""
        ranges = report.ranges
        kind, said = _named(ranges["name"].cat.categories)
        code = frames.codes(ranges["name"])
        rows = np.flatnonzero(np.append(kind, NONE)[code] != NONE)
        rows = rows[_of_one_thread(report, rows, kind[code[rows]])]
        columns = (frames.ints(ranges, c)[rows] for c in ("report", "process", "start", "end"))
        return _numbered(_outermost(_in_order(cls(rows, said[code[rows]], *columns))))

    @classmethod
    def joined(cls, parts: Sequence[Steps]) -> Steps:
        """Put the steps of different processes together."""
        columns = (
            np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)
        )
        return _in_order(cls(*columns))

    def __len__(self) -> int:
        return len(self.range)

    def at(self, report: Ints, process: Ints, time: Ints) -> Ints:
        """Return the step (its place in these columns) that was open at each time, or NONE."""
        found = np.full(len(time), NONE)
        for first, last in self.by_process():
            ours = (report == self.report[first]) & (process == self.process[first])
            place = np.searchsorted(self.start[first:last], time[ours], side="right") + first - 1
            inside = (place >= first) & (time[ours] < self.end[np.maximum(place, first)])
            found[ours] = np.where(inside, place, NONE)
        return found

    def by_process(self) -> Iterable[tuple[int, int]]:
        """Return where the steps of each process begin and end in these columns."""
        return pairwise(runs(number(self.report, self.process)[0]).tolist())

    def taken(self, rows: Ints | Flags) -> Steps:
        """Return some of the steps."""
        columns = (getattr(self, field.name) for field in fields(self))
        return Steps(*(column[rows] for column in columns))


def _in_order(steps: Steps) -> Steps:
    return steps.taken(by(steps.report, steps.process, steps.start, -steps.end))


def _outermost(steps: Steps) -> Steps:
    """Leave out what starts before an earlier one of its process has ended."""
    ended = np.full(len(steps), np.iinfo(np.int64).min)
    for first, last in steps.by_process():
        ended[first + 1 : last] = np.maximum.accumulate(steps.end[first : last - 1])
    return steps.taken(steps.start >= ended)


def _numbered(steps: Steps) -> Steps:
    """Number by place the steps of a process whose names say no number, or one number twice."""
    said = steps.number.copy()
    for first, last in steps.by_process():
        ours = said[first:last]
        if (ours == NONE).any() or len(np.unique(ours)) < len(ours):
            said[first:last] = np.arange(last - first)
    return replace(steps, number=said)


def _named(names: Iterable[str]) -> tuple[Ints, Ints]:
    """Return per name which of `KINDS` it is, or NONE, and the number in it, or NONE."""
    names = list(names)
    kind, said = np.full(len(names), NONE), np.full(len(names), NONE)
    for nth, name in enumerate(names):
        for of, pattern in enumerate(KINDS):
            if match := pattern.fullmatch(name):
                kind[nth] = of
                said[nth] = int(match[1]) if match[1] else NONE
                break
    return kind, said


def _of_one_thread(report: Report, rows: Ints, kind: Ints) -> Flags:
    """Choose per process its first kind of steps, and the thread that spends most time in those."""
    columns = ("report", "process", "thread", "start", "end")
    of, process, thread, start, end = (frames.ints(report.ranges, c)[rows] for c in columns)
    group, first = number(of, process)
    least = np.full(len(first), len(KINDS))
    np.minimum.at(least, group, kind)
    chosen: Flags = kind == least[group]
    home, members = number(group, thread)
    spent = np.zeros(len(members), np.int64)
    np.add.at(spent, home[chosen], (end - start)[chosen])
    most = np.zeros(len(first), np.int64)
    np.maximum.at(most, group[members], spent)
    winner = np.full(len(first), len(members))
    np.minimum.at(
        winner,
        group[members],
        np.where(spent == most[group[members]], np.arange(len(members)), len(members)),
    )
    of_winner: Flags = home == winner[group]
    return chosen & of_winner
