"""The sequence of work that repeats, found in the work of one process.

What comes again and again, a name or a few in a row or a range, may begin a step. What lies between two
occurrences is a stretch; two are equal if they hold the same work, of each name as often. Steps are where
equal stretches hold most of the work and the host takes part in each: it copies, waits, or asks whether
something is done. Layers repeat too, but the host only issues them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bridge.join.arrays import NONE, Flags, Ints, by, number, runs, stable
from bridge.join.nesting import Nesting
from bridge.join.steps import Steps
from importers import frames
from importers.report import Report

# -- Steps of the processes whose ranges name none: the work that repeats, read from a report


ASKING = re.compile(
    r"cu\w*(?:Synchronize|EventQuery|StreamQuery)"
)  # calls that wait for work, or ask
OF_HOST = re.compile(r".*(?:Host|HtoD|DtoH)")  # copies to and from it
NEVER = np.iinfo(np.int64).min


def with_repetition(
    steps: Steps, report: Report, launch: Ints, duration: Ints, nesting: Nesting
) -> Steps:
    """Add to the steps that ranges name those that repeat, of the processes that have none.

    ``launch`` and ``duration`` are of each activity. A step that was found has no range.
    """
    named = set(zip(steps.report.tolist(), steps.process.tolist(), strict=True))
    keys = [frames.ints(report.activities, c) for c in ("report", "process")]
    process, _ = number(*keys)
    order = stable(process) if len(process) else process
    found = [steps]
    for a, b in pairwise(runs(process[order]).tolist()):  # a turn per process
        of = int(keys[0][order[a]]), int(keys[1][order[a]])
        if of not in named:
            work = _work(report, order[a:b], of, launch, duration)
            found.append(_steps(of, *repeated_steps(work, *_marks(report, nesting, of))))
    return steps if len(found) == 1 else Steps.joined(found)


def _steps(of: tuple[int, int], start: Ints, end: Ints) -> Steps:
    of_report, of_process = (np.full(len(start), key) for key in of)
    return Steps(
        np.full(len(start), NONE), np.arange(len(start)), of_report, of_process, start, end
    )


# -- what a process did


def _work(report: Report, rows: Ints, of: tuple[int, int], launch: Ints, duration: Ints) -> Work:
    table, launched = report.activities, launch[rows] != NONE
    ordered = bool(launched.any())  # by their launches; what has none ran before the report began
    rows = rows[launched] if ordered else rows
    began = frames.ints(table, "start")
    issued = frames.ints(report.launches, "start")[launch[rows]] if ordered else began[rows]
    order = by(issued)
    rows, issued = rows[order], issued[order]
    ran = began[rows] + duration[rows]
    start, end, asks = _calls(report, of, launch)
    reached = np.maximum.accumulate(np.append(NEVER, end))
    last = max(int(issued[-1]) + 1, int(ran.max()))  # who waits later waits for nothing of this
    before, after = (
        reached[np.searchsorted(start, when)] for when in (issued, np.append(issued[1:], last))
    )
    kernels = frames.is_kind(table, frames.KERNEL, frames.GRAPH)[rows]
    copies = np.flatnonzero(_matching(table["name"], OF_HOST)[rows] & ~kernels)
    asked = np.searchsorted(issued, start[asks], side="right") - 1
    times = np.bincount(np.concatenate((copies, asked[asked >= 0])), minlength=len(rows))
    return Work(
        name=_names(table, rows),
        issued=issued,
        back=np.where(before == NEVER, issued, before) if ordered else issued,
        done=after if ordered else ran,
        spent=np.where(kernels, duration[rows], 0),
        joint=times,
    )


def _names(table: pd.DataFrame, rows: Ints) -> Ints:
    """Return a code per row: of the demangled name, of what has none of its short one; from 0, none left out."""
    full, short = (frames.codes(table[c])[rows] for c in ("full_name", "name"))
    several = len(table["full_name"].cat.categories)
    code = np.where(full == NONE, short + 1 + several, full)
    used = np.bincount(code) > 0
    names: Ints = (np.cumsum(used) - 1)[code]
    return names


def _calls(report: Report, of: tuple[int, int], launch: Ints) -> tuple[Ints, Ints, Flags]:
    """Return start and end of a process's calls that issued work or ask for it, and which of them ask."""
    calls = report.launches
    asks = _matching(calls["name"], ASKING)
    matter = asks.copy()
    matter[launch[launch != NONE]] = True
    rows = np.flatnonzero(matter & _of(calls, of))
    rows = rows[by(frames.ints(calls, "start")[rows])]
    return frames.ints(calls, "start")[rows], frames.ints(calls, "end")[rows], asks[rows]


def _marks(report: Report, nesting: Nesting, of: tuple[int, int]) -> tuple[Ints, Ints]:
    """Return name and start of a process's ranges that recur, those alone that lie in no other such."""
    ranges, parent = report.ranges, nesting.parent
    ours = _of(ranges, of)[nesting.range]
    name = frames.codes(ranges["name"])[nesting.range]
    often = np.bincount(name[ours & (name != NONE)], minlength=1) >= LEAST
    recurs = np.append(often, False)[np.where(name < len(often), name, NONE)]
    marks, level = [np.empty(0, np.int64)], np.flatnonzero(ours & (parent == NONE))
    while len(level):
        marks.append(level[recurs[level]])
        under = np.zeros(len(nesting) + 1, bool)
        under[level[~recurs[level]]] = True
        level = np.flatnonzero(under[parent])
    found = np.concatenate(marks)
    return name[found], nesting.start[found]


def _matching(column: pd.Series, pattern: re.Pattern[str]) -> Flags:
    told = [pattern.match(name) is not None for name in column.cat.categories]
    found: Flags = np.array([*told, False], bool)[frames.codes(column)]
    return found


def _of(table: pd.DataFrame, of: tuple[int, int]) -> Flags:
    keys = zip(("report", "process"), of, strict=True)
    found: Flags = np.logical_and(*(frames.ints(table, column) == key for column, key in keys))
    return found


# -- The sequence of work that repeats, found in the work of one process


Floats = NDArray[np.float64]
Numbers = TypeVar("Numbers", Ints, Floats)

LEAST = 3  # equal stretches
COVERED = 0.6  # of the kernels' time, and of the activities, by equal stretches
NEAR = 0.1  # what covers so much less than the best holds a part of each step alone
SAME = 1.5  # times the shortest is the same repetition, begun elsewhere; of the longest pause it is as long
WHOLE = 0.8  # of the work of an equal stretch: other steps hold that at least
LONG = 2  # times as much work as in an equal stretch: no step has more
IN_A_ROW = (1, 2, 4)  # names
PRIMES = tuple(np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


@dataclass(frozen=True)
class Work:
    """The work of one process as it was issued: a row per activity, times in ns.

    ``name`` is a code; ``back`` is when the host had come back from all calls before, ``done`` from those
    before the next row; ``spent`` a kernel's time, 0 for what is none; ``joint`` how often the host took part
    from a row to the next.
    """

    name: Ints
    issued: Ints
    back: Ints
    done: Ints
    spent: Ints
    joint: Ints

    def __len__(self) -> int:
        return len(self.name)

    @property
    def pause(self) -> Ints:
        """For how long the host had issued nothing before each row, in ns."""
        pause: Ints = np.maximum(self.issued - self.back, 0)
        return pause


@dataclass(frozen=True)
class Before:
    """Sums over all rows before each, one more than rows: a stretch's own is a difference of two.

    ``names`` are summed after `mixed`, so that equal sums are of equal names.
    """

    names: Ints
    spent: Ints
    joint: Ints

    @classmethod
    def of(cls, work: Work) -> Before:
        """Add up."""
        return cls(
            *(np.append(0, np.cumsum(c)) for c in (mixed(work.name), work.spent, work.joint))
        )

    def equal(self, row: Ints, other: Ints, length: Ints) -> Flags:
        """Tell whether as many rows from the one as from the other hold the same work."""
        rows = len(self.names) - 1
        after, until = np.minimum(row + length, rows), np.minimum(other + length, rows)
        same: Flags = self.names[after] - self.names[row] == self.names[until] - self.names[other]
        return same & (np.maximum(row, other) + length <= rows)


@dataclass(frozen=True)
class Beginnings:
    """Rows where a step may begin, in order; those with the same ``key`` begin with the same.

    ``time`` is when a range began there, and empty for rows that begin with a name.
    """

    row: Ints
    key: Ints
    time: Ints


@dataclass(frozen=True)
class Repeats:
    """Groups of equal stretches: where the first of each begins, with what, how many rows each has.

    ``covered`` is the share of the work that they hold; ``pause`` for how long the host issued nothing before
    they began, as the mean of its logarithm.
    """

    row: Ints
    key: Ints
    length: Ints
    covered: Floats
    pause: Floats

    def taken(self, rows: Flags) -> Repeats:
        """Return some of them."""
        return Repeats(*(getattr(self, field.name)[rows] for field in fields(self)))


def repeated_steps(work: Work, name: Ints, start: Ints) -> tuple[Ints, Ints]:
    """Return start and end of the steps of a process in ns, none if its work does not repeat.

    ``name`` and ``start`` are of ranges that may begin one.
    """
    if np.count_nonzero(work.joint) < LEAST - 1:  # there is one in each stretch
        return np.empty(0, np.int64), np.empty(0, np.int64)
    before = Before.of(work)
    ways = [_with_ranges(work, name, start), *(_with_names(work, few) for few in IN_A_ROW)]
    groups = [_repeats(work, before, way) for way in ways]
    way = np.repeat(np.arange(len(ways)), [len(group.row) for group in groups])
    if not len(way):
        return way, way
    columns = ([getattr(g, field.name) for g in groups] for field in fields(Repeats))
    found = Repeats(*(np.concatenate(column) for column in columns))
    best = _best(found)
    return _parted(work, before, ways[way[best]], found.taken(np.arange(len(way)) == best))


def mixed(numbers: Ints) -> Ints:
    """Return numbers that look drawn by lot, equal ones for equal ones."""
    found = (numbers.astype(np.uint64) + np.uint64(1)) * PRIMES[0]
    for shift, prime in ((30, PRIMES[1]), (27, PRIMES[2])):
        found = (found ^ (found >> np.uint64(shift))) * prime
    return (found ^ (found >> np.uint64(31))).view(np.int64)


def _with_names(work: Work, few: int) -> Beginnings:
    """Let what begins with the same few names in a row begin a step."""
    key, several = work.name, int(work.name.max(initial=0)) + 1
    for ahead in range(1, min(few, len(work))):
        key = key[: len(work) - ahead] * several + work.name[ahead:]
        if ahead > 1:  # the numbers would outgrow 64 bits
            key = mixed(key)
    return Beginnings(np.arange(len(key)), key, np.empty(0, np.int64))


def _with_ranges(work: Work, name: Ints, start: Ints) -> Beginnings:
    order = by(start)
    row = np.searchsorted(work.issued, start[order])
    there = row < len(work)
    return Beginnings(row[there], name[order][there], start[order][there])


def _repeats(work: Work, before: Before, way: Beginnings) -> Repeats:
    """Return the groups of equal stretches that hold enough of the work."""
    order = _order(way.key)
    row, key = way.row[order], way.key[order]
    next_to = np.flatnonzero(key[1:] == key[:-1])
    first, after = row[next_to], row[next_to + 1]
    chosen = (after - first > 1) & (before.joint[after] > before.joint[first])
    first, after, own = first[chosen], after[chosen], key[next_to][chosen]
    alike = mixed(mixed(before.names[after] - before.names[first]) + own)
    order = _order(alike)
    edges = runs(alike[order])
    often = np.flatnonzero(np.diff(edges) >= LEAST - 1)
    one = order[edges[often]]
    begin, own, length = first[one], own[one], (after - first)[one]
    last = row[np.searchsorted(key, own, side="right") - 1]  # no stretch, for none begins after it
    more = before.equal(begin, last, length)
    times = np.diff(edges)[often] + more
    spent = _summed((before.spent[after] - before.spent[first])[order], edges)[often]
    spent += more * (before.spent[np.minimum(last + length, len(work))] - before.spent[last])
    pause = _summed(np.log1p(work.pause[first[order]]), edges)[often] / np.diff(edges)[often]
    covered = np.minimum(spent / max(1, before.spent[-1]), times * length / max(1, len(work)))
    return Repeats(begin, own, length, covered, pause).taken(
        (times >= LEAST) & (covered >= COVERED)
    )


def _best(found: Repeats) -> int:
    """Choose among the shortest of what covers most; there, where the host pauses longest."""
    near = found.covered >= found.covered.max() - NEAR
    near &= found.length <= SAME * found.length[near].min()
    near &= found.pause >= found.pause[near].max() - np.log(SAME)
    best = np.where(near, found.covered, 0)
    return int(np.argmax(best))  # of equal ones a range, then a single name


def _parted(work: Work, before: Before, way: Beginnings, found: Repeats) -> tuple[Ints, Ints]:
    """Part the work where its steps begin; leave out what holds too little of an equal stretch, or far more."""
    first, length = int(found.row[0]), int(found.length[0])
    chosen = np.flatnonzero(way.key == found.key)
    chosen = chosen[np.diff(way.row[chosen], append=len(work)) > length // 2]
    row = way.row[chosen]
    after = np.append(row[1:], len(work))
    last = np.arange(len(row)) == len(row) - 1
    long = after - row > LONG * length
    equal = before.equal(row, np.full(len(row), first), np.full(len(row), length))
    cut = (long | last) & equal
    after = np.where(cut, row + length, after)
    kept = cut | (equal & (after - row == length))
    asked = np.flatnonzero(~kept & ~long)
    whole = np.bincount(work.name[first : first + length], minlength=int(work.name.max()) + 1)
    kept[asked] = _held(work, row[asked], after[asked], whole) >= WHOLE * length
    start = way.time[chosen] if len(way.time) else _resumed(work, row)
    following = np.append(start[1:], np.iinfo(np.int64).max)
    end = np.where(cut | last, np.minimum(work.done[after - 1], following), following)
    return start[kept], end[kept]


def _held(work: Work, row: Ints, after: Ints, whole: Ints) -> Ints:
    """Return how much of some work, given as how often each name occurs, there is from each row to where it ends."""
    size = after - row
    stretch = np.repeat(np.arange(len(row)), size)
    place = np.arange(len(stretch)) + np.repeat(row - np.cumsum(size) + size, size)
    pair, times = np.unique(stretch * len(whole) + work.name[place], return_counts=True)
    one, name = np.divmod(pair, len(whole))
    held = np.zeros(len(row), np.int64)
    np.add.at(held, one, np.minimum(times, whole[name]))
    return held


def _resumed(work: Work, row: Ints) -> Ints:
    """Return when the host came back before each row; before the first one no sooner than it does elsewhere."""
    pause = work.pause[row]
    pause[0] = min(int(pause[0]), int(np.median(pause)))
    return work.issued[row] - pause


def _order(key: Ints) -> Ints:
    return stable(key) if len(key) else np.empty(0, np.int64)


def _summed(values: Numbers, edges: Ints) -> Numbers:
    """Return the sum of each run."""
    found: Numbers = np.add.reduceat(values, edges[:-1]) if len(values) else values
    return found
