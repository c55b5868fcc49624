"""Windows: the times of a report that a user asks for, by the clock, by step, or by range."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bridge.analyze.calltree import subtree_extremes
from bridge.analyze.filters import wildcards
from bridge.analyze.groups import highest
from bridge.join.arrays import NONE, Flags, Ints, by, runs
from bridge.join.attributed import Attributed, Chosen
from bridge.join.steps import Steps
from importers import frames
from importers.frames import shared

LAST = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Windows:
    """Times ``start <= t < end`` in ns, per report; sorted, none overlaps another of its report."""

    report: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, report: Ints, start: Ints, end: Ints) -> Windows:
        """Make one window of those that overlap or touch."""
        order = by(report, start)
        report, start, end = report[order], start[order], end[order]
        new = np.ones(len(report), bool)
        last = end.copy()
        for a, b in _runs(report):
            last[a:b] = np.maximum.accumulate(end[a:b])
            new[a + 1 : b] = start[a + 1 : b] > last[a : b - 1]
        closing = np.append(new[1:], True)[: len(new)]
        return cls(report[new], start[new], last[closing])

    @property
    def hull(self) -> tuple[int, int]:
        """The first start and the last end; an instant where there is none."""
        if not len(self.start):
            return 0, 0
        return int(self.start.min()), int(self.end.max())

    def of_report(self, report: int) -> Windows:
        """Return those of one report."""
        own = self.report == report
        return Windows(self.report[own], self.start[own], self.end[own])

    def moved(self, by: Ints) -> Windows:
        """Return the same by clocks that show so much more per report, in ns; what never ends does not then either."""
        end = np.where(self.end == LAST, LAST, self.end + by[self.report])
        return Windows(self.report, self.start + by[self.report], end)

    def meet(self, report: Ints, start: Ints, end: Ints) -> Flags:
        """Tell which intervals have any time in common with a window; of no length: lie in one."""
        found = np.zeros(len(start), bool)
        for a, b in _runs(self.report):
            ours = np.flatnonzero(report == self.report[a])
            # The first window that is not over when the interval begins.
            place = np.searchsorted(self.end[a:b], start[ours], side="right") + a
            there = np.minimum(place, b - 1)
            begins = self.start[there]
            found[ours] = (place < b) & ((begins < end[ours]) | (begins <= start[ours]))
        return found


def between(
    joined: Attributed, first: int | None, last: int | None, offset: Ints | None = None
) -> Windows:
    """Return the time from ``first`` to ``last``, in ns since the first event of all reports.

    ``offset`` is what is added to each report's clock to get one that all have; without it times are compared as they are.
    """
    facts = joined.report.facts
    added = [0] * len(facts) if offset is None else offset.tolist()
    base = min(one.span[0] + more for one, more in zip(facts, added, strict=True))
    if first is not None and last is not None and first >= last:
        raise ValueError("the window ends before it starts")
    start = [min(base + (first or 0) - more, LAST) for more in added]
    end = [LAST if last is None else min(base + last - more, LAST) for more in added]
    return Windows(np.arange(len(facts)), np.array(start, np.int64), np.array(end, np.int64))


def of_steps(joined: Attributed, first: int, last: int) -> Windows:
    """Return the time of the steps with these numbers, up to the end of the last work that each launched.

    Raises ValueError, in words for the user, if there is none such.
    """
    steps, chosen = joined.steps, numbered(joined.steps, first, last)
    step = joined.activity_step
    ran = step != NONE
    done = highest(step[ran], joined.end[ran], len(steps))
    return Windows.of(
        steps.report[chosen], steps.start[chosen], np.maximum(steps.end, done)[chosen]
    )


def of_ranges(joined: Attributed, name: str) -> Windows:
    """Return the time of the ranges of this name or op (``*`` and ``?`` allowed), up to the end of their last work.

    Raises ValueError, in words for the user, if there is none such.
    """
    ranges, chosen = joined.report.ranges, named_ranges(joined, name)
    end = np.maximum(frames.ints(ranges, "end"), _done(joined))[chosen]
    return Windows.of(
        frames.ints(ranges, "report")[chosen], frames.ints(ranges, "start")[chosen], end
    )


def numbered(steps: Steps, first: int, last: int) -> Ints:
    """Return the places of the steps with these numbers; ValueError, in words for the user, if there is none."""
    if not len(steps):
        raise ValueError(
            "no steps in the report: they are ranges called step N, iteration N, batch N, ProfilerStep#N"
        )
    chosen = np.flatnonzero((steps.number >= first) & (steps.number <= last))
    if not len(chosen):
        low, high = int(steps.number.min()), int(steps.number.max())
        raise ValueError(f"no such step: the report has {low} to {high}")
    return chosen


def named_ranges(joined: Attributed, name: str) -> Ints:
    """Return the ranges of this name or op (``*`` and ``?`` allowed); ValueError if there is none."""
    column = joined.report.ranges["name"]
    wanted = wildcards(name).fullmatch
    named = _among(frames.codes(column), column.cat.categories, wanted)
    chosen = np.flatnonzero(named | _among(joined.op, joined.ops, wanted))
    if not len(chosen):
        raise ValueError(f"no range {name!r} in the report; bridge report --by op lists them")
    return chosen


def _among(codes: Ints, names: Iterable[str], wanted: Callable[[str], object]) -> Flags:
    of_name = np.array([*(bool(wanted(name)) for name in names), False])
    found: Flags = of_name[codes]
    return found


def _done(joined: Attributed) -> Ints:
    """Return when the last activity under each range ended; the least integer if there is none."""
    nesting, node = joined.attribution.nesting, joined.node
    never = np.iinfo(np.int64).min
    own = np.full(len(nesting), never)
    ran = node != NONE
    np.maximum.at(own, node[ran], joined.end[ran])
    _, last = subtree_extremes(nesting, own, own)
    of_range = np.full(len(joined.op), never)
    np.maximum.at(of_range, nesting.range, last)
    return of_range


def _runs(report: Ints) -> list[tuple[int, int]]:
    return list(pairwise(runs(report).tolist()))


# -- What of a report is counted when only some time of it is: what began then, and the work launched then


TABLES = ("activities", "ranges", "launches", "waits", "memory")


def by_clock(joined: Attributed, first: int | None, last: int | None) -> Chosen:
    """Choose what began from ``first`` to ``last``, in ns since the first event: on the host, on the device."""
    windows = between(joined, first, last)

    def began(table: str) -> Flags:
        rows = getattr(joined.report, table)
        start = frames.ints(rows, "time" if "time" in rows else "start")
        return windows.meet(frames.ints(rows, "report"), start, start)

    return Chosen(*map(began, TABLES))


def by_step(joined: Attributed, first: int, last: int) -> Chosen:
    """Choose what began on the host in the steps with these numbers, and the work launched in them.

    Raises ValueError, in words for the user, if there is none such.
    """
    steps = joined.iterations
    steps = steps.taken(numbered(steps, first, last))
    return _on_host(joined, steps.report, steps.process, steps.start, steps.end)


def by_range(joined: Attributed, name: str) -> Chosen:
    """Choose what began in its process while a range of this name or op was open, and the work launched then.

    ``*`` and ``?`` are allowed. Raises ValueError, in words for the user, if there is none such.
    """
    rows = named_ranges(joined, name)
    columns = ("report", "process", "start", "end")
    return _on_host(joined, *(frames.ints(joined.report.ranges, c)[rows] for c in columns))


def _on_host(joined: Attributed, report: Ints, process: Ints, start: Ints, end: Ints) -> Chosen:
    """Choose what began in times of processes; work without an API call by its own start."""
    tables = [getattr(joined.report, name) for name in TABLES]
    keys = [[frames.ints(t, c) for c in ("report", "process")] for t in tables]
    owner, *owners = shared((report, process), *keys)
    windows = Windows.of(owner, start, end)
    times = [frames.ints(table, "time" if "time" in table else "start") for table in tables]
    launch = joined.attribution.launch
    times[0] = np.where(launch == NONE, times[0], np.append(times[2], NONE)[launch])
    return Chosen(*(windows.meet(of, t, t) for of, t in zip(owners, times, strict=True)))
