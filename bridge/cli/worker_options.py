"""Options of workers that read many reports, their progress, and the report that they make together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from bridge.cli import options
from bridge.cli.help import option
from bridge.cli.options import ReportInput

if TYPE_CHECKING:
    import pandas as pd

    from bridge.analyze.tables.request import TableRequest
    from bridge.importers.remote import Location
    from bridge.join.options import AttributionOptions
    from bridge.scale.aggregates import Aggregates
    from bridge.scale.combined import CombinedReport
    from bridge.scale.requests import PartRequest
    from bridge.scale.task import FailedTask

F = TypeVar("F", bound=Callable[..., Any])


def _bytes(context: click.Context, _option: click.Parameter, text: str | None) -> int:
    if text is None or context.resilient_parsing:
        return 0
    from bridge.scale.windows.window import parse_memory

    try:
        return parse_memory(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


class WorkerPool(click.ParamType):  # type: ignore[type-arg] # generic in new versions of click only
    """A number of processes, or the address of a Dask scheduler."""

    name = "N|ADDRESS"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002 - click 8.1 passes no context
        """Return the placeholder in the help."""
        return self.name

    def convert(
        self, value: Any, _option: click.Parameter | None, _context: click.Context | None
    ) -> int | str:
        """Return the number, or the address. Raises `click.BadParameter` for other text."""
        text = str(value)
        if "://" in text:
            return text
        if not text.isdecimal() or not int(text):
            self.fail(f"{text!r}: write a number of processes from 1 on, or tcp://host:port")
        return int(text)


worker_option = partial(option, section="Workers", rare=True)
OPTIONS = (
    worker_option(
        "--workers",
        type=WorkerPool(),
        help="Read each report in one of N processes, or on the Dask cluster at ADDRESS (tcp://host:8786);"
        " only aggregates come back: see docs/fleet.md.",
    ),
    worker_option(
        "--memory-limit",
        "memory",
        metavar="SIZE",
        callback=_bytes,
        help="Limit the memory of each worker, as 2GB or 512MiB: larger reports are read in windows of time,"
        " with equal results: see docs/memory-limit.md.",
    ),
    worker_option(
        "--strict", is_flag=True, help="With --workers: stop at a report that cannot be read."
    ),
)


@dataclass(frozen=True)
class Plan:
    """The work on every report: tables, attribution, recordings, and how contents are identified."""

    tables: tuple[PartRequest, ...]
    attribution_options: AttributionOptions
    sidecar: tuple[Path, ...] = ()
    identify: bool = False
    whole: bool = False


@dataclass(frozen=True)
class WorkerOptions:
    """The workers that read reports: a number of processes, or the address of a Dask scheduler.

    ``strict`` stops at the first broken report.
    """

    workers: int | str | None
    strict: bool
    memory: int = 0
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.strict and not self.given:
            raise click.UsageError("--strict goes with --workers")

    @property
    def given(self) -> bool:
        """Whether workers are requested."""
        return bool(self.workers)

    def larger(
        self, reports: Sequence[Location], tables: Sequence[PartRequest], *, raw: bool = False
    ) -> bool:
        """Tell whether reports need more than --memory-limit: any of them if workers read one each, else all together.

        Reports that workers fetch may. ``raw`` says that ranges are called by their whole texts.
        """
        if not self.memory:
            return False
        paths = [path for path in reports if isinstance(path, Path)]
        if len(paths) < len(reports):
            return True
        from bridge.scale.windows.window import BASE, MANY, memory_needed

        sizes = [memory_needed(path, tables, raw=raw) for path in paths if path.exists()]
        most = max(sizes, default=0) if self.given else sum(sizes)
        return BASE + MANY * (len(tables) > 1) + most > self.memory

    def check_output(self, source: Sequence[str], table: pd.DataFrame, form: str) -> None:
        """Raise ReportError if a table is too large to be written within --memory-limit by this process."""
        if self.memory and not self.given:
            from bridge.scale.windows.window import check_output

            check_output(source, self.memory, table.size, form)

    def within(self, reports: Sequence[Location]) -> WorkerOptions:
        """Return the workers for an import: this process in windows if the reports need more than --memory-limit."""
        if not self.memory or self.given:
            return self
        from bridge.scale.requests import stored_tables

        return self.alone() if self.larger(reports, stored_tables()) else self

    def alone(self) -> WorkerOptions:
        """Return this process as the only worker, which stops at the first broken report."""
        return replace(self, workers=1, strict=True, quiet=True)

    def run(self, reports: Sequence[Location], plan: Plan) -> CombinedReport:
        """Return the report that workers make; print warnings and failures on stderr."""
        from bridge.scale.loading import Workers, run, tasks_of
        from bridge.scale.task import Work

        count, address = (
            (1, self.workers) if isinstance(self.workers, str) else (self.workers, None)
        )
        pool = Workers(count or 1, address)
        work = Work(
            plan.tables,
            plan.attribution_options,
            plan.sidecar,
            pool.threads,
            plan.identify,
            plan.whole,
            self.memory,
        )
        tasks = tasks_of(reports, work)
        # A recording that fits no report is an error, as without workers.
        strict = self.strict or bool(plan.sidecar)
        with options.usage_errors():
            report = run(tasks, pool, WorkerProgress(len(tasks), strict, self.quiet))
        options.warn(report.warnings)
        if left := len(tasks) - len(report.parts):
            click.echo(f"{left} of {len(tasks)} reports left out: they cannot be read", err=True)
        return report


def workers(command: F) -> F:
    """Give a command the options of workers as one parameter ``workers``."""
    return options.collected("workers", WorkerOptions, *OPTIONS)(command)


class WorkerProgress:
    """Prints on stderr the outcome of each report, in the order in which they end."""

    def __init__(self, reports: int, strict: bool, quiet: bool) -> None:
        self.reports, self.strict, self.quiet = reports, strict, quiet
        self.ended = 0

    def __call__(self, outcome: Aggregates | FailedTask) -> None:
        """Print an outcome; raise ReportError for a broken report if ``strict``."""
        from bridge.importers.errors import ReportError
        from bridge.render import units
        from bridge.render.table import clean
        from bridge.scale.task import FailedTask

        self.ended += 1
        if isinstance(outcome, FailedTask):
            if self.strict:
                raise ReportError(outcome.line)
            click.echo(f"broken: {clean(_with_folder(outcome))}", err=True)
        elif not self.quiet:
            activities = units.count(outcome.totals["activities"])
            text = f"{self.ended} of {self.reports}: {outcome.source}, {activities} activities"
            click.echo(clean(text), err=True)


def _with_folder(broken: FailedTask) -> str:
    """Return the message for a broken report with its folder: many files have the same name."""
    if not isinstance(broken.path, Path) or str(broken.path) in broken.line:
        return broken.line
    return f"{broken.path.parent}: {broken.line}"


def expand_reports(reports: Sequence[Location], workers: WorkerOptions) -> tuple[Location, ...]:
    """Return the files of names, patterns and folders; those at URLs are fetched unless workers do it."""
    if all(isinstance(path, Path) and path.is_file() for path in reports):  # nothing to load
        return tuple(reports)
    from bridge.scale.loading import expand_paths as files

    expanded = files(reports)
    return tuple(expanded) if workers.given else options.local_reports(expanded)


def combined(
    workers: WorkerOptions,
    request: TableRequest,
    source: ReportInput,
    needs_rows: Sequence[str],
) -> CombinedReport | None:
    """Return the report that answers a request without its rows in this process, None if rows are read.

    That is the report of workers, or a run of the store without rows. ``needs_rows`` are given
    options that need the rows of all reports. Raises ValueError with a message for the user if
    there are any, or if the table needs rows.
    """
    if not workers.given and source.reports and source.run is None and workers.memory:
        return _in_windows(workers, request, source, needs_rows)
    if not workers.given:
        report = None if source.reports else _stored(source)
        if report is not None:
            _check(report.called, needs_rows)
        return report
    if not source.reports or source.run is not None:
        raise click.UsageError("--workers goes with reports: name them, and no --run")
    from bridge.scale.requests import part_request

    _check("reports apart", needs_rows)
    plan = Plan((part_request(request),), source.attribution_options, source.sidecar)
    return workers.run(source.reports, plan)


def _in_windows(
    workers: WorkerOptions,
    request: TableRequest,
    source: ReportInput,
    needs_rows: Sequence[str],
) -> CombinedReport | None:
    """Return the report that is read in windows, None if the reports fit into --memory-limit."""
    from bridge.analyze.core.catalog.lookup import columns_are_chosen
    from bridge.analyze.tables.request import TableRequest
    from bridge.scale.requests import PartRequest
    from bridge.scale.windows.window import windowed_request

    # Tables that windows cannot make take about what ops take.
    sized = request if columns_are_chosen(request.by) else TableRequest("op")
    raw = source.attribution_options.raw
    if not workers.larger(source.reports, [PartRequest(sized, ())], raw=raw):
        return None
    _check("reports larger than --memory-limit", needs_rows, "without --memory-limit it works")
    part = windowed_request(request)
    plan = Plan((part,), source.attribution_options, source.sidecar)
    return workers.alone().run(source.reports, plan)


def _check(
    what: str, needs_rows: Sequence[str], remedy: str = "give the reports, without --workers"
) -> None:
    """Refuse options that need the rows of all reports at once."""
    for name in needs_rows:
        raise ValueError(f"{name} needs the rows of {what}: {remedy}")


def _stored(source: ReportInput) -> CombinedReport | None:
    """Return a run of aggregates, None if the run has rows."""
    from bridge import store
    from bridge.join.options import AttributionOptions

    report = store.load_aggregates(source.db, source.run)
    if report is not None and source.attribution_options != AttributionOptions():
        raise ValueError(
            f"{report.called}: its reports were joined as they are, in no other way; give the reports themselves"
        )
    return report
