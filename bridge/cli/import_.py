"""``bridge import``: read, join, store, and show the breakdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from bridge.cli import completion, hints, options, worker_options
from bridge.cli.help import Command, option, rare_option
from bridge.cli.options import doing, usage_errors

if TYPE_CHECKING:
    from bridge.importers.remote import Location
    from bridge.join.options import AttributionOptions
    from bridge.report import Report
    from bridge.scale.combined import CombinedReport
    from bridge.scale.requests import PartRequest
    from bridge.scale.workers import WorkerOptions
    from bridge.store import Run, StoredReport


# -- Reports that are in the store: recognized by their bytes and shown without reading them


def known_run(
    reports: Sequence[Path],
    db: Path,
    rules: str,
    ncu: Sequence[Path],
    *,
    whole: bool,
    ranks: str | None,
) -> tuple[Run, StoredReport] | None:
    """Return the stored run of these reports and its tables; None if the reports must be read to tell."""
    from bridge import store

    def identity() -> str:
        return store.identity(reports, ncu=ncu, whole=whole)

    run = _run([*reports, *ncu], db, rules=rules, ranks=ranks, identity=identity)
    stored_report = store.load_stored_report(db, run.id) if run and not run.tables else None
    return (run, stored_report) if run and stored_report else None


def known_aggregates(
    reports: Sequence[Location],
    db: Path,
    rules: str,
    tables: Sequence[str],
    *,
    whole: bool,
    ranks: str | None,
) -> tuple[Run, CombinedReport] | None:
    """Return the stored run of aggregates of these reports, None if there is none, or if workers fetch some."""
    from bridge import store

    paths = [path for path in reports if isinstance(path, Path)]
    if len(paths) < len(reports):
        return None

    def identity() -> str:
        return store.aggregates_identity(
            [store.identity([path], whole=whole) for path in paths], tables
        )

    run = _run(paths, db, rules=rules, ranks=ranks, identity=identity)
    report = store.load_aggregates(db, run.id) if run else None
    return (run, report) if run and report else None


def say_known(run: Run, db: Path, reports: Sequence[Location]) -> None:
    """Print that the reports are stored already, and their stored names if those differ."""
    names = tuple(path.name for path in reports)
    elsewhere = "" if names == run.source else f", where they are called {', '.join(run.source)}"
    click.echo(f"already imported as run {run.id} of {db}, on {run.created}{elsewhere}", err=True)


def _run(
    paths: Sequence[Path], db: Path, rules: str, ranks: str | None, identity: Callable[[], str]
) -> Run | None:
    """Return the run of some files; None if there may be recordings beside them, or one cannot be read."""
    from bridge import store
    from bridge.importers.recording.read import has_candidates

    if (
        not db.exists()
        or not all(path.exists() for path in paths)
        or any(map(has_candidates, paths))
    ):
        return None
    try:
        known = identity()
    except OSError:
        return None  # reading it gives the message
    return store.find_run(db, options.identity_with_ranks(known, ranks), rules)


# -- Many reports on workers become one run of aggregates


def import_many(
    workers: WorkerOptions,
    reports: Sequence[Location],
    db: Path,
    rules: Path | None,
    keep: Sequence[str],
    rank_from: str | None = None,
    *,
    sidecar: tuple[Path, ...] = (),
    whole: bool = False,
) -> tuple[int, CombinedReport]:
    """Aggregate reports on workers and store the aggregates; return the run's number and the report."""
    from bridge import store
    from bridge.importers.remote import given
    from bridge.join.options import AttributionOptions
    from bridge.scale.requests import mergeable
    from bridge.scale.task import Work
    from bridge.source import check_ranks
    from bridge.store.tables import SUMMARIES

    tables = _tables(workers, reports, keep)
    with usage_errors():
        check_ranks(rank_from, list(map(given, reports)))
    attribution_options = AttributionOptions(options.read_rules(rules), rank_from=rank_from)
    grouped = rules.read_text(encoding="utf-8") if rules else ""
    names = [request.name for request in tables]
    if not sidecar and (
        known := known_aggregates(reports, db, grouped, names, whole=whole, ranks=rank_from)
    ):
        say_known(known[0], db, reports)
        return known[0].id, known[1]
    shown = mergeable(SUMMARIES)
    merged = tuple(name for name in names if name in shown)
    work = Work(tables, attribution_options, sidecar, identify=True, whole=whole, merged=merged)
    with usage_errors():
        report = workers.run(reports, work, options.PRINTER)
    parts = [part.known_by for part in report.parts]
    # A run that lacks some reports differs from a run of the others alone.
    left = len(reports) - len(parts)
    identity = store.aggregates_identity([*parts, *([f"left-out:{left}"] if left else [])], names)
    identity = options.identity_with_ranks(identity, rank_from)
    run = store.find_run(db, identity, grouped)
    if run:
        say_known(run, db, reports)
        return run.id, report
    with doing(f"storing in {db}"):
        return store.save_aggregates(report, db, identity, tables=names, rules=grouped), report


def _tables(
    workers: WorkerOptions, reports: Sequence[Location], keep: Sequence[str]
) -> tuple[PartRequest, ...]:
    """Return the tables to store: for reports that are read in windows, those that windows can make."""
    from bridge.scale.requests import key, stored_tables

    try:
        tables = stored_tables(keep)
    except ValueError as error:
        raise _no_table(str(error)) from error
    if not workers.larger(reports, tables):
        return tables
    from bridge.scale.windows.window import refusal, why_not, windowed_tables

    of = {request.by: request for request in tables}
    for by in keep:
        if why := why_not(of[key(by)]):
            raise _no_table(f"{by}: {refusal(why)}")
    result = windowed_tables(tables)
    left = sorted({part.by for part in tables} - {part.by for part in result})
    click.echo(f"larger than --memory-limit: without the tables by {' '.join(left)}", err=True)
    return result


def _no_table(why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint="--keep")


# -- The command


TRACE = "bridge trace REPORT -o trace.json.gz"


@dataclass(frozen=True)
class ImportRequest:
    """The files to import and the options; ``whole`` hashes every byte."""

    reports: tuple[Location, ...]
    db: Path
    rules: Path | None
    rank_from: str | None
    sidecar: tuple[Path, ...]
    graph_annotations: tuple[Path, ...]
    ncu: tuple[Path, ...]
    whole: bool

    @property
    def files(self) -> tuple[Path, ...]:
        """The reports on this machine."""
        return options.local_reports(self.reports)

    def attribution_options(self) -> AttributionOptions:
        """Return the options of the attribution; invalid rules are a usage error."""
        from bridge.join.options import AttributionOptions

        return AttributionOptions(options.read_rules(self.rules), rank_from=self.rank_from)

    def grouped(self) -> str:
        """Return the text of the rules, which is stored with the run."""
        return self.rules.read_text(encoding="utf-8") if self.rules else ""


class ImportResult(NamedTuple):
    """The run's number, the report to print, the next command, and a line on the quality of the capture."""

    run: int
    report: Report | StoredReport | CombinedReport
    next: str
    worth: str = ""


@click.command(
    "import",
    cls=Command,
    examples=(
        "bridge import report.sqlite",
        "bridge import rank0.sqlite rank1.sqlite --name nightly",
        "bridge import report.sqlite --label 4f2a91c",
        "bridge import report.nsys-rep --ncu kernels.ncu-rep",
        "bridge import report.nsys-rep --graph-annotations annotations.pkl",
    ),
)
@options.store_option
@options.rules_option
@options.sidecar
@options.graph_annotations
@options.no_cache_option
@options.rank_from_option
@options.ncu_option
@rare_option(
    "--verify", is_flag=True, help="Know a report by a hash of every byte, not of samples."
)
@option("--name", help="Call the run by this name, as bridge diff takes it.")
@option("--label", metavar="TEXT", help="What bridge trend writes at the run, as a commit.")
@option("--quiet", "-q", is_flag=True, help="Print no table.")
@worker_options.workers
@rare_option(
    "--keep",
    multiple=True,
    metavar="TABLE",
    shell_complete=completion.tables,
    help="With --workers: keep this table too, as op,step,rank. May be repeated.",
)
@partial(options.reports_argument, required=True)
def import_(
    reports: tuple[Location, ...],
    db: Path,
    rules: Path | None,
    sidecar: tuple[Path, ...],
    graph_annotations: tuple[Path, ...],
    rank_from: str | None,
    ncu: tuple[Path, ...],
    verify: bool,
    name: str | None,
    label: str | None,
    quiet: bool,
    keep: tuple[str, ...],
    workers: WorkerOptions,
) -> None:
    """Join REPORTS (.sqlite, .nsys-rep, .ncu-rep, .jsonl), store them as one run, and print the breakdown.

    A report may be a URL, as s3://bucket/report.sqlite. With --workers, aggregates of all reports
    together are stored, and no rows.
    """
    from bridge import store

    if name is not None:
        store.check_name(name)
    if label is not None:
        store.check_label(label)
    request = ImportRequest(
        reports=worker_options.expand_reports(reports, workers),
        db=db,
        rules=rules,
        rank_from=rank_from,
        sidecar=sidecar,
        graph_annotations=graph_annotations,
        ncu=ncu,
        whole=verify,
    )
    workers = replace(workers, quiet=quiet).within(request.reports)
    imported = _in_workers(request, workers, keep) if workers.given else _whole(request, keep)
    if name is not None:
        _call(db, imported.run, name)
    if label is not None:
        store.label_run(db, imported.run, label)
    hints.select_run(db, imported.run)
    if not quiet:
        _show(imported.report, imported.worth)
    table = "op" if imported.report.ranges else "kernel"
    following = hints.with_report(f"bridge report REPORT --by {table}, or {imported.next}")
    click.echo(f"run {imported.run} of {db}; next: {following}", err=True)


def _in_workers(
    request: ImportRequest, workers: WorkerOptions, keep: tuple[str, ...]
) -> ImportResult:
    """Aggregate reports on workers and store the aggregates."""
    if request.ncu:
        raise click.UsageError("--ncu needs the rows of a report: no --workers with it")
    if request.graph_annotations:
        raise click.UsageError(
            "--graph-annotations needs the rows of a report: no --workers with it"
        )
    number, report = import_many(
        workers, request.reports, db=request.db, rules=request.rules, keep=keep, rank_from=request.rank_from,
        sidecar=request.sidecar, whole=request.whole,
    )  # fmt: skip
    return ImportResult(number, report, "bridge report REPORT --by report,op")


def _whole(request: ImportRequest, keep: tuple[str, ...]) -> ImportResult:
    """Store reports with all their rows, unless they are in the store."""
    if keep:
        raise click.UsageError("--keep goes with --workers: else rows are kept")
    attribution_options, grouped = request.attribution_options(), request.grouped()
    if not (request.sidecar or request.graph_annotations):
        known = known_run(
            request.files,
            request.db,
            grouped,
            request.ncu,
            whole=request.whole,
            ranks=request.rank_from,
        )
        if known:
            run, stored = known
            options.warn(stored.warnings)
            say_known(run, request.db, request.reports)
            return ImportResult(run.id, stored, TRACE, stored.worth)
    return _read(request, attribution_options, grouped)


def _read(
    request: ImportRequest, attribution_options: AttributionOptions, grouped: str
) -> ImportResult:
    """Read reports and store them; the store may know them by a recording beside them."""
    from bridge import store
    from bridge.render import quality
    from bridge.source import ReportInput

    source = ReportInput(
        reports=request.reports,
        db=request.db,
        run=None,
        attribution=attribution_options,
        sidecar=request.sidecar,
        graph_annotations=request.graph_annotations,
        ncu=request.ncu,
    )
    report = options.load(source)
    recordings = [path for facts in report.capture.facts for path in facts.recordings]
    files = (*request.files, *recordings, *request.graph_annotations)
    identity = store.identity(files, ncu=request.ncu, whole=request.whole)
    identity = options.identity_with_ranks(identity, request.rank_from)
    run, worth = store.find_run(request.db, identity, grouped), quality.line(report.quality)
    if run:
        say_known(run, request.db, request.reports)
    with doing(f"storing in {request.db}"):
        number = (
            run.id if run else store.save(report, request.db, identity, rules=grouped, worth=worth)
        )
    timed = all(facts.timeline for facts in report.capture.facts)
    return ImportResult(number, report, TRACE if timed else "bridge report REPORT --by rule", worth)


def _call(db: Path, run: int, name: str) -> None:
    """Name the run, and print which run had the name before."""
    from bridge import store

    had = store.name_run(db, run, name)
    if had:
        click.echo(f"{name} was run {had.id}; it is run {run} from now on", err=True)


def _show(report: Report | StoredReport | CombinedReport, worth: str) -> None:
    """Print the summary, and the line on the quality of the capture."""
    from bridge.cli.summary import quality_line, summary_text

    look = options.look()
    click.echo(summary_text(report, look) + quality_line(worth), nl=False, color=look.color)
