"""Steps of the processes whose ranges name none: the work that repeats, read from a report."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pandas as pd

from bridge.join import repeats
from bridge.join.nesting import Nesting
from bridge.join.order import NONE, Flags, Ints, by, number, runs, stable
from bridge.join.repeats import LEAST, Work
from bridge.join.steps import Steps
from importers import frames
from importers.report import Report

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
            found.append(_steps(of, *repeats.steps(work, *_marks(report, nesting, of))))
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
