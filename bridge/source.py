"""The one door to a table: from files, or a run of the store, to what answers a request.

`open_source` alone knows whether rows, windows of time, workers or stored tables answer. All of them are a
`TableSource`, which is all that whoever asks for a table knows. What is no table needs rows: `load_report`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.importers.listener import SILENT, Listener
from bridge.scale.workers import WorkerOptions

if TYPE_CHECKING:
    from bridge.analyze.tables.request import TableRequest
    from bridge.analyze.tables.table_source import TableSource
    from bridge.importers import Capture
    from bridge.importers.ncu.metrics import Metrics
    from bridge.importers.nsys.tables import Details
    from bridge.importers.remote import Location
    from bridge.join.options import AttributionOptions
    from bridge.report import Report
    from bridge.scale.combined import CombinedReport
    from bridge.scale.requests import PartRequest
    from bridge.store import StoredReport

LOG = logging.getLogger("bridge.source")
ONE_PROCESS = WorkerOptions()  # this one, and as much memory as it takes


# -- What is named: files or a run, how they are read, and which part of them


@dataclass(frozen=True)
class TimeRange:
    """A part of a report: host times from ``first`` to ``last`` in ns, steps, ranges of a name."""

    first: int | None = None
    last: int | None = None
    steps: tuple[int, int] | None = None
    name: str | None = None

    @property
    def options(self) -> list[str]:
        names = {
            "--from": self.first,
            "--to": self.last,
            "--step": self.steps,
            "--range": self.name,
        }
        return [option for option, value in names.items() if value is not None]

    def of(self, report: Report) -> Report:
        """Return what began in that time. Raises ValueError with a message for the user if there is no such time."""
        return report.within(
            first_ns=self.first, last_ns=self.last, steps=self.steps, range_name=self.name
        )


@dataclass(frozen=True)
class ReportInput:
    """What a user names: report files or a run of the store, and how they are read.

    Attributes:
        reports: files, or URLs; without any, the run of the store is read.
        db: the store.
        run: a run by number or name; None for the newest.
        attribution: how activities are attributed; None for the default.
        sidecar: recordings that belong to the reports.
        graph_annotations: files in which PyTorch says what nodes of CUDA graphs are.
        only: the side that is read alone, ``host`` or ``gpu``; None for both.
        ncu: reports of Nsight Compute of the same program.
        time_range: the part of the time.
        workers: who reads the reports, and within which memory.

    """

    reports: tuple[Location, ...]
    db: Path
    run: int | str | None = None
    attribution: AttributionOptions | None = None
    sidecar: tuple[Path, ...] = ()
    graph_annotations: tuple[Path, ...] = ()
    only: str | None = None
    ncu: tuple[Path, ...] = ()
    time_range: TimeRange = TimeRange()
    workers: WorkerOptions = ONE_PROCESS

    @property
    def attribution_options(self) -> AttributionOptions:
        """How activities are attributed."""
        from bridge.join.options import AttributionOptions

        return self.attribution or AttributionOptions()

    def attributed_by(self, **options: Any) -> ReportInput:
        """Return the input with other options of the attribution: ``raw``, ``rank_from``, ``steps``."""
        return replace(self, attribution=replace(self.attribution_options, **options))

    def check(self) -> None:
        """Raise ValueError with a message for the user if files and options do not go together."""
        from bridge.importers.remote import given

        if self.reports and self.run is not None:
            raise ValueError("give either report files or --run, which reads the store")
        if self.sidecar and not self.reports:
            raise ValueError("--sidecar goes with report files: name them")
        if self.graph_annotations and not self.reports:
            raise ValueError(
                "--graph-annotations goes with report files: name them, or import both"
            )
        if self.graph_annotations and self.only == "host":
            raise ValueError("--graph-annotations is about work of GPUs: leave --only host out")
        if self.workers.memory and not self.reports:
            raise ValueError("--memory-limit goes with report files: a run is read as a whole")
        if self.reports:
            check_ranks(self.attribution_options.rank_from, list(map(given, self.reports)))

    def needing_rows(self, request: TableRequest) -> list[str]:
        """Return the given options that need the rows of a report."""
        given = {
            "--ncu": self.ncu,
            "--metrics": request.metrics,
            "--only": self.only,
            "--graph-annotations": self.graph_annotations,
        }
        return [*self.time_range.options, *(option for option, value in given.items() if value)]


# -- The door


def open_source(
    source: ReportInput, request: TableRequest, listener: Listener = SILENT, *, fold: bool = False
) -> TableSource:
    """Return what answers a request: rows, windows of time, workers, or the stored tables of a run.

    ``fold`` makes the ops of numbered steps one op where rows answer. Raises ReportError for files that
    cannot be read, StoreError for a run that is not there, and ValueError with a message for the user for
    options that do not go together.
    """
    source.check()
    if source.workers.given:
        return _of_workers(source, request, listener)
    answer: TableSource | None
    if source.reports:
        answer = _in_windows(source, request, listener)
    else:
        answer = _of_store(source, request, listener, fold=fold)
    return _of_rows(source, request, listener, fold=fold) if answer is None else answer


def _of_workers(source: ReportInput, request: TableRequest, listener: Listener) -> CombinedReport:
    if not source.reports or source.run is not None:
        raise ValueError("--workers goes with reports: name them, and no --run")
    from bridge.scale.requests import part_request

    _refuse(source.needing_rows(request), "reports apart")
    LOG.debug("workers answer: %s", source.workers.workers)
    part = part_request(request)
    return _combined(source.workers, source, part, by=request.by, listener=listener)


def _in_windows(
    source: ReportInput, request: TableRequest, listener: Listener
) -> CombinedReport | None:
    """Return the report that is read in windows, None if the reports fit into the limit of memory."""
    if source.run is not None or not source.workers.memory:
        return None
    from bridge.analyze.core.catalog.lookup import columns_are_chosen
    from bridge.analyze.tables.request import TableRequest
    from bridge.scale.requests import PartRequest
    from bridge.scale.windows.window import windowed_request

    # Tables that windows cannot make take about what ops take.
    sized = request if columns_are_chosen(request.by) else TableRequest("op")
    raw = source.attribution_options.raw
    if not source.workers.larger(source.reports, [PartRequest(sized, ())], raw=raw):
        return None
    what = "reports larger than --memory-limit"
    _refuse(source.needing_rows(request), what, "without --memory-limit it works")
    LOG.debug("windows of time answer: the reports need more than the limit of memory")
    part = windowed_request(request)
    return _combined(source.workers.alone(), source, part, by=request.by, listener=listener)


def _combined(
    workers: WorkerOptions, source: ReportInput, part: PartRequest, by: str, listener: Listener
) -> CombinedReport:
    from bridge.scale.requests import is_of_reports
    from bridge.scale.task import Work

    merged = () if is_of_reports(by) else (part.name,)
    work = Work((part,), source.attribution_options, source.sidecar, merged=merged)
    return workers.run(source.reports, work, listener)


def _of_store(
    source: ReportInput, request: TableRequest, listener: Listener, *, fold: bool
) -> CombinedReport | StoredReport | None:
    """Return a run of aggregates, or the stored tables that answer the request; None if rows are needed."""
    from bridge import store
    from bridge.join.options import AttributionOptions

    is_joined_anew = source.attribution_options != AttributionOptions()
    aggregates = store.load_aggregates(source.db, source.run)
    if aggregates is not None:
        if is_joined_anew:
            raise ValueError(
                f"{aggregates.called}: its reports were joined as they are, in no other way;"
                " give the reports themselves"
            )
        _refuse(source.needing_rows(request), aggregates.called)
        LOG.debug("aggregates answer: %s", aggregates.called)
        return aggregates
    if source.needing_rows(request) or source.sidecar or is_joined_anew:
        return None
    stored = store.load_stored_report(source.db, source.run)
    if stored is None or not stored.answers(stored.fitting(request)):
        return None
    if fold and _folds(stored):
        return None
    LOG.debug("stored tables answer")
    listener.warn((*stored.warnings, *stored.defects))
    return stored


def _folds(stored: StoredReport) -> bool:
    """Return whether the stored ops have numbered steps that are one op when folded."""
    from bridge.join.families import folded_names

    ops: list[str] = stored.tables["op"]["op"].tolist()
    return folded_names(ops) != ops


def _of_rows(
    source: ReportInput, request: TableRequest, listener: Listener, *, fold: bool
) -> Report:
    needing = source.needing_rows(request)
    LOG.debug("rows answer; options that need them: %s", ", ".join(needing) or "none")
    report = load_report(source, request.details, listener)
    if not fold:
        return report
    from bridge.analyze.core.folding import Folded

    folded = Folded.of(report.attributed)
    return replace(report, attributed=folded.attributed) if folded.ops else report


def _refuse(
    options: Sequence[str], what: str, remedy: str = "give the reports, without --workers"
) -> None:
    """Raise ValueError for options that need the rows of all reports at once."""
    for option in options:
        raise ValueError(f"{option} needs the rows of {what}: {remedy}")


# -- Rows


def load_report(
    source: ReportInput, details: Details = True, listener: Listener = SILENT
) -> Report:
    """Read and attribute the rows of a report; ``details`` are the optional columns that are read.

    Raises as `open_source` does.
    """
    from bridge.report import join

    if source.ncu and details is not True:
        from bridge.analyze.tables.request import NCU_DETAILS

        details = frozenset({*(details or ()), *NCU_DETAILS})
    if len(source.reports) > 1 and details is not True:
        from bridge.analyze.core.catalog.views import OF_GROUPS

        details = frozenset({*(details or ()), *OF_GROUPS})  # collectives align clocks
    capture, attribution = _read(source, details, listener)
    with listener.doing("joining"):
        report = join(capture, attribution)
    listener.warn((*capture.warnings, *report.warnings))
    return source.time_range.of(with_metrics(report, source, listener))


def _read(
    source: ReportInput, details: Details, listener: Listener
) -> tuple[Capture, AttributionOptions]:
    """Return the frames of the files or of the run, and how to attribute them."""
    from bridge.importers.sides import select_side

    source.check()
    if source.only:
        details = _of_side(details, source.only)
    attribution = source.attribution_options
    if source.reports:
        capture = read_files(
            source.reports,
            details,
            source.sidecar,
            listener,
            graph_annotations=source.graph_annotations,
        )
        return capture, attribution
    capture, attribution = _stored_run(source, details, listener)
    check_ranks(attribution.rank_from, capture.source)
    return select_side(capture, source.only) if source.only else capture, attribution


def _of_side(details: Details, side: str) -> Details:
    """Return the details of one side of a report."""
    from bridge import importers

    named = {importers.EVERY} if details is True else set(details or ())
    return frozenset({*named, importers.ONLY[side]})


def check_ranks(expression: str | None, paths: Sequence[str]) -> None:
    """Raise ValueError if an expression for ranks matches none of the paths."""
    from bridge.join.options import any_rank_matches

    if expression is not None and not any_rank_matches(expression, paths):
        raise ValueError(f"--rank-from {expression!r} finds no rank in {', '.join(paths)}")


def read_files(
    reports: Sequence[Location],
    details: Details,
    sidecar: Sequence[Path],
    listener: Listener,
    *,
    graph_annotations: Sequence[Path] = (),
) -> Capture:
    """Return the frames of report files."""
    from bridge import importers, plugins
    from bridge.scale import malloc

    malloc.keep_for([path for path in reports if isinstance(path, Path)])
    what = str(reports[0]) if len(reports) == 1 else f"{len(reports)} reports"
    with listener.doing(f"reading {what}"):
        return importers.load(
            *reports,
            details=details,
            sidecar=sidecar,
            graph_annotations=graph_annotations,
            more_readers=plugins.readers,
            listener=listener,
        )


def _stored_run(
    source: ReportInput, details: Details, listener: Listener
) -> tuple[Capture, AttributionOptions]:
    """Return the rows of a run, and how to attribute them: by its own rules, if no others are given."""
    from bridge import store  # sqlite-utils takes a while, and a report needs none of it
    from bridge.importers.nsys.tables import has_detail
    from bridge.join import options
    from bridge.scale import malloc

    malloc.keep_for([source.db])
    run = store.get_run(source.db, source.run)
    with listener.doing(f"reading run {run.id} of {source.db}"):
        capture = store.load(source.db, run.id, metrics=has_detail(details, "metrics"))
    with store.refusing_damage(source.db, run.id):
        rules = options.rules(run.rules) if run.rules else ()
    attribution = source.attribution_options
    return capture, replace(attribution, op_rules=attribution.op_rules or rules)


# -- Metrics of Nsight Compute for a report with a timeline


def with_metrics(report: Report, source: ReportInput, listener: Listener) -> Report:
    """Match metrics of Nsight Compute to the kernels of a report; the listener hears how certain the matches are."""
    if not source.ncu:
        return report
    from bridge.analyze.core import no_timeline
    from bridge.analyze.cost.metrics import matching
    from bridge.report import Report

    if not no_timeline.has_timeline(report.capture):
        raise ValueError("--ncu goes with a report that has a timeline, as of nsys")
    matched = [_matched(report, path, source.attribution_options, listener) for path in source.ncu]
    capture = replace(report.capture, metrics=matching.merge_metrics(matched))
    return Report(replace(report.attributed, capture=capture))


def _matched(
    report: Report, path: Path, attribution: AttributionOptions, listener: Listener
) -> Metrics:
    """Read a report of Nsight Compute and match it."""
    from bridge.analyze.core import no_timeline
    from bridge.analyze.cost.metrics import matching
    from bridge.importers.errors import ReportError
    from bridge.report import join

    measured = join(read_files([path], True, (), listener), attribution)
    if no_timeline.has_timeline(measured.capture):
        raise ReportError(f"{path.name}: no report of Nsight Compute, which --ncu takes")
    with listener.doing("matching kernels"):
        match = matching.match_metrics(report.attributed, measured.attributed)
    listener.say(f"{path.name}: {match.line}")
    return match.capture.metrics
