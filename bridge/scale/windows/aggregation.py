"""Aggregates of a report, computed window by window."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path

import numpy as np

from bridge.analyze.core import validity
from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.lookup import dimensions_of
from bridge.analyze.core.correlation import MatchCounts
from bridge.analyze.core.devices import Devices
from bridge.analyze.core.totals import Totals, add_totals
from bridge.analyze.core.validity import Finding
from bridge.analyze.run.account import Span
from bridge.analyze.run.gpu_use import Use
from bridge.analyze.run.ranks.members import INIT_RANGE, Ranks
from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.importers.nsys import windows
from bridge.importers.nsys.windows import Window, Windows
from bridge.importers.recording import read as sidecar
from bridge.join.arrays import number_groups
from bridge.join.attributed import AttributedCapture
from bridge.join.hierarchy import CALLER
from bridge.join.options import is_library, with_ranks
from bridge.report import Report
from bridge.scale.aggregates import (
    Aggregates,
    owning_ops,
    share_denominators,
    undeclared_domains,
    without_domains,
)
from bridge.scale.merging import packed
from bridge.scale.requests import PartRequest
from bridge.scale.task import Task
from bridge.scale.windows.account import RunSums
from bridge.scale.windows.tables import OpenCalls, Slices, TableAccumulator
from bridge.scale.windows.window import (
    WindowCapture,
    WindowsError,
    attribute_window,
    check_memory,
    peak_memory,
)

LOG = logging.getLogger("bridge.scale")

# -- Facts of the whole report that each window must agree with: ranks, names of GPUs


Key = tuple[int, int]


def dimensions_of_tables(tables: Collection[PartRequest]) -> frozenset[str]:
    return frozenset(
        n for request in tables if request.by not in VIEWS for n in dimensions_of(request.by)
    )


class ConsistencyCheck:
    """Compares each window with the ``skeleton`` of the report, which has all processes and devices."""

    def __init__(
        self, skeleton: Capture, place: int, rank_from: str | None, tables: Collection[PartRequest]
    ) -> None:
        self.name, self.place = skeleton.source[0], place
        self.dimensions = dimensions_of_tables(tables)
        self.ranks = Ranks.of(with_ranks(skeleton, rank_from), place)
        self.devices = _devices(AttributedCapture.of(skeleton))
        self.libraries: dict[Key, bool] = {}
        self._numbers(skeleton)

    def check(self, attributed: WindowCapture) -> None:
        """Raise WindowsError if a window alone would give another result than the whole report."""
        by = self.dimensions
        if not by.isdisjoint(("rank", "host")) and _begins(attributed.capture):
            raise WindowsError(self.name, "its ranks depend on where communicators are created")
        if not by.isdisjoint(("device", "stream")):
            self._same(_devices(attributed), self.devices)
        for key, library in _libraries(attributed.capture):
            if self.libraries.setdefault(key, library) != library:
                what = "ranges of a domain without a name are ops in some of its windows only"
                raise WindowsError(self.name, what)

    def _same(self, here: Mapping[Key, str], whole: Mapping[Key, str]) -> None:
        if any(whole.get(key) != name for key, name in here.items()):
            raise WindowsError(self.name, "what its GPUs are called needs the whole report at once")

    def _numbers(self, skeleton: Capture) -> None:
        tables = ("ranges", "launches", "activities")
        every = [getattr(skeleton, table).process for table in tables]
        processes = np.unique(np.concatenate(every))
        is_ambiguous = len(np.unique(frames.pid(processes))) < len(processes)
        if is_ambiguous and not self.dimensions.isdisjoint(
            ("thread", "process", "stream", "device")
        ):
            raise WindowsError(self.name, "two of its processes have one number")


def _begins(capture: Capture) -> bool:
    """Tell whether a communicator is created in a report; that may tell ranks."""
    begins = capture.ranges.name.matching(lambda name: name.startswith(INIT_RANGE))
    return bool(begins.any())


def _devices(attributed: AttributedCapture) -> dict[Key, str]:
    columns = [attributed.capture.activities.process, attributed.capture.activities.device]
    devices = Devices.of_report(attributed)
    _, rows = number_groups(*columns)
    keys = zip(*(c[rows].tolist() for c in columns), strict=True)
    return dict(zip(keys, (devices.names[n] for n in devices.gpu[rows].tolist()), strict=True))


def _libraries(capture: Capture) -> list[tuple[Key, bool]]:
    """Return for each domain without a name whether its ranges are those of a library, by all their texts."""
    ranges = capture.ranges
    rows = np.flatnonzero(~ranges.domain_name.matching(bool) & (ranges.domain != 0))
    process, domain = ranges.process[rows], ranges.domain[rows]
    code, first = number_groups(process, domain)
    names = ranges.name[rows]
    return [
        ((int(process[at]), int(domain[at])), is_library("", names[code == n].used))
        for n, at in enumerate(first.tolist())
    ]


# -- Warnings, counted over the windows


class WarningCounts:
    """Collects the warnings of `bridge.analyze.core.validity` over all windows."""

    def __init__(self) -> None:
        self.rows: list[int] = []  # by rule
        self.first: list[tuple[int, str]] = []
        self.rules: Sequence[Finding] = ()
        self.matches: MatchCounts | None = None

    def add(self, attributed: WindowCapture, window: Window) -> None:
        matches = MatchCounts.of(attributed, 0, window.number["activities"])
        self.matches = self.matches + matches if self.matches else matches
        self.rules = list(validity.findings(attributed))
        self.rows = self.rows or [0] * len(self.rules)
        self.first = self.first or [(np.iinfo(np.int64).max, "")] * len(self.rules)
        for n, rule in enumerate(self.rules):
            rows = rule.rows[window.begun[rule.rows]] if rule.frame == "ranges" else rule.rows
            self.rows[n] += len(rows)
            if len(rows):
                number = window.number[rule.frame][rows]
                at = int(np.argmin(number))
                name = validity.example_text(getattr(attributed.capture, rule.frame), int(rows[at]))
                self.first[n] = min(self.first[n], (int(number[at]), name))

    def lines(self, source: str) -> tuple[str, ...]:
        """Return a warning per rule that any row breaks, and one if correlation ids are wrong."""
        invalid = (
            validity.line(source, rule, rows, f"#{number} {example}")
            for rule, rows, (number, example) in zip(self.rules, self.rows, self.first, strict=True)
            if rows
        )
        text = self.matches.warning() if self.matches else ""
        return (*invalid, f"{source}: {text}") if text else tuple(invalid)


# -- A report becomes aggregates window by window


def aggregated(task: Task, path: Path, count: int, at: Sequence[int] | None = None) -> Aggregates:
    """Aggregate an export in ``count`` windows, or cut it ``at`` given times in ns.

    Raises WindowsError for a result that would not be exact, NotAReport for a file that is not a
    valid export.
    """
    with windows.open_windows(path, task.work.details, count, at) as series:
        whole, peaks = _Whole(task, series), [peak_memory()]
        for window in series:
            whole.add(window)
            peaks.append(peak_memory())
            LOG.debug(
                "%s: window %d of %d, peak %d bytes", whole.name, len(peaks) - 1, count, peaks[-1]
            )
            check_memory(whole.name, task.work.memory, peaks, count)
        return whole.aggregates()


class _Whole:
    """The sums over the windows read so far."""

    def __init__(self, task: Task, windows: Windows) -> None:
        self.task, self.series = task, windows
        self.attribution_options = replace(task.work.attribution_options, place=task.place)
        self.skeleton = _of_file(windows.skeleton(), task.given)
        self.name = self.skeleton.source[0]
        _refuse(task, windows, self.skeleton)
        self.consistency = ConsistencyCheck(
            self.skeleton, task.place, task.work.attribution_options.rank_from, task.work.tables
        )
        self.tables = [TableAccumulator(request) for request in task.work.tables]
        self.open_calls = {part.direction: OpenCalls(self.name) for part in task.work.tables}
        self.slices, self.warning_counts = Slices(self.name), WarningCounts()
        self.totals: list[Totals] = []
        self.graphs: list[Totals] = []
        self.wholes: Counter[str] = Counter()
        self.ops: set[str] = set()
        self.undeclared: list[frozenset[str]] = []
        events = Span(windows.survey.low, windows.survey.high)
        self.run = RunSums(self.skeleton.facts[0], events, self.consistency.devices)

    def add(self, window: Window) -> None:
        """Join a window and add what comes of it."""
        window = replace(window, capture=_of_file(window.capture, self.task.given))
        attributed = self._joined(window)
        self.consistency.check(attributed)
        self.slices.add(attributed)
        self.run.add(attributed, window)
        spanning = {d: of.add(attributed.only(d), window) for d, of in self.open_calls.items()}
        for table in self.tables:
            table.add(attributed, window, spanning[table.part.direction])
        self.warning_counts.add(attributed, window)
        report = Report(attributed)
        self.totals.append(report.totals)
        self.graphs.append(report.graphs)
        self.wholes.update(share_denominators(report))
        self.ops |= owning_ops(report)

    def _joined(self, window: Window) -> WindowCapture:
        undeclared = undeclared_domains(window.capture, self.attribution_options)
        self.undeclared.append(undeclared)
        attribution_options = (
            without_domains(self.attribution_options, undeclared)
            if undeclared
            else self.attribution_options
        )
        return attribute_window(window, attribution_options, self.consistency.ranks)

    def aggregates(self) -> Aggregates:
        capture = self.skeleton
        tables = {
            table_accumulator.part.name: packed(
                table_accumulator.whole(self.open_calls[table_accumulator.part.direction])
            )
            for table_accumulator in self.tables
        }
        return Aggregates(
            place=self.task.place,
            source=self.name,
            facts=replace(capture.facts[0], recordings=()),
            totals=add_totals(self.totals),
            wholes=dict(self.wholes),
            ranges=self.series.survey.counts["ranges"],
            ops=frozenset(self.ops),
            warnings=(*capture.warnings, *self.warning_counts.lines(self.name)),
            tables=tables,
            undeclared=reduce(frozenset.intersection, self.undeclared),
            homes=tuple(self.consistency.ranks.homes),
            graphs=add_totals(self.graphs),
            use=Use(tuple(filter(None, (self.run.run(),)))),
        )


def _of_file(capture: Capture, given: str) -> Capture:
    return replace(capture, facts=tuple(replace(f, path=given) for f in capture.facts))


def _refuse(task: Task, series: Windows, skeleton: Capture) -> None:
    """Raise WindowsError for options and reports that need the whole report at once."""
    name, survey = skeleton.source[0], series.survey
    if task.work.attribution_options.adopt:
        raise WindowsError(name, "--adopt needs the whole report at once")
    if task.work.attribution_options.backward_under != CALLER:
        raise WindowsError(name, "--backward-under forward needs the whole report at once")
    options = task.work.attribution_options
    if 0 < survey.phases == survey.counts["ranges"] and not options.raw:
        raise WindowsError(
            name, "its start/end ranges are ops, which need the whole report at once"
        )
    if survey.has_repeated_calls:
        raise WindowsError(name, "API calls of two of its windows have one correlation id")
    if survey.phases > windows.MAX_PHASES:
        raise WindowsError(name, f"{survey.phases} start/end ranges are too many")
    if sidecar.with_recordings(skeleton, task.file, task.work.sidecar).facts != skeleton.facts:
        raise WindowsError(name, "recordings lie beside it")
