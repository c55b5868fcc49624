"""A report becomes aggregates window by window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

from bridge.analyze.totals import Totals
from bridge.report import Joined
from bridge.scale.aggregates import Aggregates, ops_of, wholes
from bridge.scale.packed import packed
from bridge.scale.task import Task
from bridge.scale.together import added
from bridge.scale.windowed import limit
from bridge.scale.windowed.alike import Alike
from bridge.scale.windowed.carried import Carried, Slices
from bridge.scale.windowed.errors import WindowsError
from bridge.scale.windowed.part import Part, part
from bridge.scale.windowed.tables import Gathered
from bridge.scale.windowed.warned import Warned
from bridge.scale.work import undeclared_in, without
from importers.nsys import windows
from importers.nsys.windows import Window, Windows
from importers.recording import beside
from importers.report import Report


def aggregated(task: Task, path: Path, count: int, at: Sequence[int] | None = None) -> Aggregates:
    """Aggregate an export in so many windows, or cut ``at`` some times.

    Raises `WindowsError` for what would not be exact, NotAReport for what is no sound export.
    """
    with windows.opened(path, task.details, count, at) as found:
        whole, before = _Whole(task, found), limit.taken()
        for number, window in enumerate(found, 1):
            whole.add(window)
            most = limit.taken()  # of a process that had more before, nobody can tell
            limit.hold(whole.name, task.memory, most * (most > before), f"{number} of {count}")
        return whole.aggregates()


class _Whole:
    """What the windows read so far amount to."""

    def __init__(self, task: Task, found: Windows) -> None:
        self.task, self.found = task, found
        self.choices = replace(task.choices, place=task.place)
        self.skeleton = _of_file(found.skeleton(), task.given)
        self.name = self.skeleton.source[0]
        _refuse(task, found, self.skeleton)
        self.alike = Alike(self.skeleton, task.place, task.choices.rank_from, task.tables)
        self.tables = [Gathered(one) for one in task.tables]
        self.carried = {one.direction: Carried(self.name) for one in task.tables}
        self.slices, self.warned = Slices(self.name), Warned()
        self.totals: list[Totals] = []
        self.wholes: Counter[str] = Counter()
        self.ops: set[str] = set()
        self.undeclared: list[frozenset[str]] = []

    def add(self, window: Window) -> None:
        """Join a window and add what comes of it."""
        window = replace(window, report=_of_file(window.report, self.task.given))
        joined = self._joined(window)
        self.alike.check(joined)
        self.slices.add(joined)
        carried = {d: of.add(joined.only(d), window) for d, of in self.carried.items()}
        for table in self.tables:
            table.add(joined, window, carried[table.asked.direction])
        self.warned.add(joined, window)
        told = Joined(joined)
        self.totals.append(told.totals)
        self.wholes.update(wholes(told))
        self.ops |= ops_of(told)

    def _joined(self, window: Window) -> Part:
        undeclared = undeclared_in(window.report, self.choices)
        self.undeclared.append(undeclared)
        choices = without(self.choices, undeclared) if undeclared else self.choices
        return part(window, choices, self.alike.ranks)

    def aggregates(self) -> Aggregates:
        """Return what all of them amount to."""
        report = self.skeleton
        tables = {
            one.asked.name: packed(one.whole(self.carried[one.asked.direction]))
            for one in self.tables
        }
        return Aggregates(
            self.task.place,
            self.name,
            replace(report.facts[0], recordings=()),
            added(self.totals),
            dict(self.wholes),
            self.found.survey.counts["ranges"],
            frozenset(self.ops),
            (*report.warnings, *self.warned.lines(self.name)),
            tables,
            undeclared=reduce(frozenset.intersection, self.undeclared),
            homes=tuple(self.alike.ranks.homes),
        )


def _of_file(report: Report, given: str) -> Report:
    return replace(report, facts=tuple(replace(f, path=given) for f in report.facts))


def _refuse(task: Task, found: Windows, skeleton: Report) -> None:
    """Raise WindowsError for what takes a look at the whole report."""
    name, survey = skeleton.source[0], found.survey
    if task.choices.adopt:
        raise WindowsError(name, "--adopt takes a look at all of it")
    if survey.repeated:
        raise WindowsError(name, "API calls of two of its windows have one correlation id")
    if survey.phases > windows.MOST_PHASES:
        raise WindowsError(name, f"{survey.phases} start/end ranges are too many")
    if beside.found(skeleton, task.path, task.sidecar).facts != skeleton.facts:
        raise WindowsError(name, "recordings lie beside it")
