"""A report becomes aggregates window by window."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np

from bridge.analyze import validity
from bridge.analyze.devices import Devices
from bridge.analyze.ranks.members import BEGUN, Ranks
from bridge.analyze.tables.views import VIEWS, dimensions_of
from bridge.analyze.totals import Totals
from bridge.analyze.tracks import ID_BITS
from bridge.analyze.validity import Finding
from bridge.join.arrays import number
from bridge.join.attributed import Attributed
from bridge.join.choices import ranked
from bridge.join.domains import is_library
from bridge.report import Joined
from bridge.scale.aggregates import Aggregates, ops_of, undeclared_in, wholes, without
from bridge.scale.combined import added
from bridge.scale.merging import packed
from bridge.scale.requests import Asked
from bridge.scale.task import Task
from bridge.scale.windows.tables import Carried, Gathered, Slices
from bridge.scale.windows.window import Part, WindowsError, hold, part, taken
from importers import frames
from importers.nsys import windows
from importers.nsys.windows import Window, Windows
from importers.recording import sidecar
from importers.report import Report

# -- What is found out over a whole report and must be the same in each window: who is which rank, what GPUs are called


Key = tuple[int, int]


def named(tables: Collection[Asked]) -> frozenset[str]:
    """Return the dimensions of tables."""
    return frozenset(n for one in tables if one.by not in VIEWS for n in dimensions_of(one.by))


class Alike:
    """The ``skeleton`` knows all processes and devices; each window is compared with what it tells."""

    def __init__(
        self, skeleton: Report, place: int, rank_from: str | None, tables: Collection[Asked]
    ) -> None:
        self.name, self.place = skeleton.source[0], place
        self.dimensions = named(tables)
        self.ranks = Ranks.of(ranked(skeleton, rank_from), place)
        self.devices = _devices(Attributed.of(skeleton))
        self.libraries: dict[Key, bool] = {}
        self._numbers(skeleton)

    def check(self, joined: Part) -> None:
        """Raise WindowsError if a window would be told otherwise than the whole."""
        by = self.dimensions
        if not by.isdisjoint(("rank", "host")) and _begins(joined.report):
            raise WindowsError(self.name, "ranks are told by where communicators begin")
        if not by.isdisjoint(("device", "stream")):
            self._same(_devices(joined), self.devices)
        for key, library in _libraries(joined.report):
            if self.libraries.setdefault(key, library) != library:
                what = "ranges of a domain without a name are ops in some of its windows only"
                raise WindowsError(self.name, what)

    def _same(self, here: Mapping[Key, str], whole: Mapping[Key, str]) -> None:
        if any(whole.get(key) != one for key, one in here.items()):
            raise WindowsError(self.name, "what its GPUs are called takes a look at all of it")

    def _numbers(self, skeleton: Report) -> None:
        tables = ("ranges", "launches", "activities")
        every = [frames.ints(getattr(skeleton, table), "process") for table in tables]
        processes = np.unique(np.concatenate(every))
        alike = len(np.unique(processes >> 24 & ID_BITS)) < len(processes)
        if alike and not self.dimensions.isdisjoint(("thread", "process", "stream", "device")):
            raise WindowsError(self.name, "two of its processes have one number")


def _begins(report: Report) -> bool:
    """Tell whether a communicator begins in a report, which may tell ranks."""
    names = report.ranges["name"]
    begins = np.array([*(n.startswith(BEGUN) for n in names.cat.categories), False])
    return bool(begins[frames.codes(names)].any())


def _devices(joined: Attributed) -> dict[Key, str]:
    columns = [frames.ints(joined.report.activities, c) for c in ("process", "device")]
    found = Devices.of_report(joined)
    _, rows = number(*columns)
    keys = zip(*(c[rows].tolist() for c in columns), strict=True)
    return dict(zip(keys, (found.names[n] for n in found.of[rows].tolist()), strict=True))


def _libraries(report: Report) -> list[tuple[Key, bool]]:
    """Return of each domain without a name whether its ranges are a library's own: by all their texts."""
    ranges = report.ranges
    named_ = np.array([*(bool(n) for n in ranges["domain_name"].cat.categories), False])
    bare = ~named_[frames.codes(ranges["domain_name"])] & (frames.ints(ranges, "domain") != 0)
    rows = np.flatnonzero(bare)
    process, domain = (frames.ints(ranges, c)[rows] for c in ("process", "domain"))
    code, first = number(process, domain)
    names = ranges["name"].iloc[rows]
    return [
        ((int(process[at]), int(domain[at])), is_library("", names[code == n].unique()))
        for n, at in enumerate(first.tolist())
    ]


# -- What is unlawful in a report, counted over its windows


class Warned:
    """Says what `bridge.analyze.validity` says of the whole report."""

    def __init__(self) -> None:
        self.rows: list[int] = []  # by rule
        self.first: list[tuple[int, str]] = []
        self.rules: Sequence[Finding] = ()

    def add(self, joined: Part, window: Window) -> None:
        """Count the rows of a window, each where it begins."""
        self.rules = list(validity.findings(joined))
        self.rows = self.rows or [0] * len(self.rules)
        self.first = self.first or [(np.iinfo(np.int64).max, "")] * len(self.rules)
        for n, rule in enumerate(self.rules):
            rows = rule.rows[window.begun[rule.rows]] if rule.frame == "ranges" else rule.rows
            self.rows[n] += len(rows)
            if len(rows):
                number = window.number[rule.frame][rows]
                at = int(np.argmin(number))
                one = validity.shown(getattr(joined.report, rule.frame), int(rows[at]))
                self.first[n] = min(self.first[n], (int(number[at]), one))

    def lines(self, source: str) -> tuple[str, ...]:
        """Return a line per rule that any row breaks."""
        return tuple(
            validity.line(source, rule, rows, f"#{number} {example}")
            for rule, rows, (number, example) in zip(self.rules, self.rows, self.first, strict=True)
            if rows
        )


# -- A report becomes aggregates window by window


def aggregated(task: Task, path: Path, count: int, at: Sequence[int] | None = None) -> Aggregates:
    """Aggregate an export in so many windows, or cut ``at`` some times.

    Raises `WindowsError` for what would not be exact, NotAReport for what is no sound export.
    """
    with windows.opened(path, task.details, count, at) as found:
        whole, before = _Whole(task, found), taken()
        for number, window in enumerate(found, 1):
            whole.add(window)
            most = taken()  # of a process that had more before, nobody can tell
            hold(whole.name, task.memory, most * (most > before), f"{number} of {count}")
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
    if sidecar.found(skeleton, task.path, task.sidecar).facts != skeleton.facts:
        raise WindowsError(name, "recordings lie beside it")
