"""``bridge diff``: compares two reports, and fails a build at limits."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.cli import completion, listing, options, outputs, selection_options
from bridge.cli.help import Command, option, table_option
from bridge.cli.listing import Listing
from bridge.cli.options import usage_errors
from bridge.cli.outputs import Output
from bridge.cli.selection_options import LIST, RowOptions

if TYPE_CHECKING:
    from bridge.analyze.compare.gates import Budget
    from bridge.importers.listener import Listener
    from bridge.importers.remote import Location
    from bridge.join.options import AttributionOptions
    from bridge.render.diff import DiffView
    from bridge.report import Report
    from bridge.source import TimeRange


# -- The two sides: report files, or runs of the store


@dataclass(frozen=True)
class DiffRequest:
    """A comparison: dimensions of the rows, names of kernels, noise, part of the time, and attribution."""

    by: str
    kernel_names: str
    noise: str
    time_range: TimeRange
    attribution_options: AttributionOptions

    @property
    def details(self) -> set[str]:
        """The columns of a capture that importers read only where they are needed."""
        known = (DIMENSIONS.get(part.strip()) for part in self.by.split(","))
        names = {name for dimension in known if dimension for name in dimension.details}
        return names | ({"mangled"} & {self.kernel_names})


@dataclass(frozen=True)
class Side:
    """One side: report files, or without files a run of the store by number or name."""

    reports: tuple[Location, ...] = ()
    run: int | str | None = None

    @classmethod
    def of(cls, text: str, db: Path) -> Side:
        """Read an argument: an existing file, else a run; a text that looks like a file or a URL is one."""
        if options.PROTOCOL in text:
            from bridge.importers.remote import location

            return cls(tuple(map(location, text.split(","))))
        paths = tuple(Path(part) for part in text.split(","))
        if Path(text).exists():
            return cls((Path(text),))
        if len(paths) > 1 or paths[0].suffix or len(paths[0].parts) > 1 or not db.exists():
            return cls(paths)
        return cls(run=options.run_key(text))

    def load(self, db: Path, request: DiffRequest, listener: Listener = options.PRINTER) -> Report:
        """Load the part of the report that is requested. Raises ValueError if it does not have that time."""
        from bridge.source import ReportInput

        source = ReportInput(
            self.reports, db, self.run, request.attribution_options, time_range=request.time_range
        )
        return options.load(source, request.details, listener)

    def before(self, report: Report, db: Path) -> Side:
        """Return the newest run before this one, or of another report than this file, and print which it is."""
        from bridge import store

        local = options.local_reports(self.reports)
        recordings = [path for facts in report.capture.facts for path in facts.recordings]
        own = store.identity((*local, *recordings)) if local else ""
        run = store.get_run(db, self.run).id if not self.reports else None
        others = [
            r
            for r in store.list_runs(db)
            if store.without_ncu(r.identity) != own and (run is None or r.id < run)
        ]
        if not others:
            which = "run of another report" if run is None else f"run older than run {run}"
            raise store.StoreError(f"{db}: no {which} to compare with; name BEFORE")
        newest = others[-1]
        name = f" ({newest.name})" if newest.name else ""
        click.echo(f"before: run {newest.id}{name} of {db}, {', '.join(newest.source)}", err=True)
        return Side(run=newest.id)


def read_budget(path: Path) -> Budget:
    """Read a budget from a TOML file.

    Raises ValueError with a message for the user for an invalid budget, OSError for a file that
    cannot be opened.
    """
    from bridge.analyze.compare.gates import Budget

    try:
        return Budget.parsed(tomllib.loads(path.read_text(encoding="utf-8")))
    except RecursionError as error:
        raise ValueError("nested too deeply for a budget") from error


FAILED, SKIPPED = 3, 125  # exit statuses; git bisect run leaves a commit out at the latter
SIDES = 2  # of a comparison
FORMATS = ("table", "json", "csv", "md", "junit")
SUFFIXES = {"xml": "junit"}
noise_option = option(
    "--noise",
    metavar="SHARE",
    default="1%",
    show_default=True,
    help="Changes up to this size count as no change.",
    section="Limits",
)


@click.command(
    cls=Command,
    examples=(
        "bridge diff before.sqlite after.sqlite",
        "bridge diff before.sqlite after.sqlite --by op-kernel --top 10",
        "bridge diff before.sqlite after.sqlite --fail-over op:5%",
    ),
)
@click.argument("reports", nargs=-1, metavar="[BEFORE] AFTER", shell_complete=completion.reports)
@options.store_option
@table_option(
    "--by",
    default="op",
    show_default=True,
    metavar="TABLE",
    shell_complete=completion.tables,
    help="What a row is: op, op-kernel, kernel, kind, path, module, shape … or several with commas; list shows all.",
)
@option(
    "--fail-over",
    multiple=True,
    metavar="LIMIT",
    help="Exit with 3 if the activity time or the iteration time grew by more than this: 5%, 2ms. total:5%,"
    " iteration:5%, idle:5% check one time; op:5% checks each op with over 1 % of the time. May be repeated.",
    section="Limits",
)
@option(
    "--budget",
    type=options.FILE,
    help="Exit with 3 if AFTER exceeds the limits of this file (TOML).",
    section="Limits",
)
@noise_option
@option(
    "--bisect",
    is_flag=True,
    help="Exit with 125 if a report cannot be read or judged: git bisect run skips that commit.",
    section="Limits",
)
@options.kernel_names
@selection_options.time_range
@selection_options.rows("op=aten::*, diff>10us, state=slower")
@options.attribution_options
@options.no_cache_option
@outputs.output(FORMATS, SUFFIXES)
@click.pass_context
def diff(
    context: click.Context,
    /,
    reports: tuple[str, ...],
    db: Path,
    by: str,
    fail_over: tuple[str, ...],
    budget: Path | None,
    noise: str,
    bisect: bool,
    kernel_names: str,
    time_range: TimeRange,
    rows: RowOptions,
    attribution_options: AttributionOptions,
    output: Output,
) -> None:
    """Compare report AFTER with BEFORE, row by row, and fail where it got worse than allowed.

    Each is a report file or URL (several with commas), or a run of the store by number or name. Without
    BEFORE, a run is compared with the newest run before it, and a file with the newest run of
    another report. With AFTER and --budget alone, nothing is compared.
    """
    if by == LIST:
        _dimensions().write(output)
        return
    named = _named(reports, db)
    limits = _budget(budget)
    check_limits(fail_over)
    form = output.format
    if form == "junit" and not (fail_over or limits):
        raise click.UsageError("--format junit says what gates found: add --fail-over or --budget")
    if bisect and not (fail_over or limits):
        raise click.UsageError("--bisect says whether limits are kept: add --fail-over or --budget")
    output.check([path for side in named for path in side.reports])
    request = DiffRequest(
        by=by,
        kernel_names=kernel_names,
        noise=noise,
        time_range=time_range,
        attribution_options=attribution_options,
    )
    with _skipped(is_asked=bisect), usage_errors():
        sides = [side.load(db, request) for side in named]
        if len(named) == 1 and (fail_over or not limits):
            sides.insert(0, named[0].before(sides[0], db).load(db, request))
        view = compare_sides(sides, request, rows=rows, fail_over=fail_over, limits=limits)
    if rows.sort == LIST:
        _columns(by, view).write(output)
        return
    from bridge.analyze.compare.gates import BUDGET
    from bridge.render.table import clean

    _write(view, form, output, rows)
    failed = [verdict for verdict in view.verdicts if not verdict.passed]
    for verdict in failed:
        click.echo(f"failed: {clean(verdict.line)}", err=True)
    if failed:
        was_judged = any(one.change is not None or one.gate == BUDGET for one in failed)
        context.exit(FAILED if was_judged or not bisect else SKIPPED)


@contextmanager
def _skipped(*, is_asked: bool) -> Iterator[None]:
    """Give the errors of the block the status `SKIPPED` if that is asked for."""
    try:
        yield
    except Exception as error:
        if is_asked:
            vars(error).update(status=SKIPPED, exit_code=SKIPPED)
        raise


def _named(reports: Sequence[str], db: Path) -> list[Side]:
    """Return the one or two sides that were named."""
    if not reports:
        raise click.UsageError("name a report: [BEFORE] AFTER")
    if len(reports) > SIDES:
        raise click.UsageError("two reports are compared; several of one run go with commas: a,b")
    return [Side.of(text, db) for text in reports]


def _dimensions() -> Listing:
    """Return the list that ``--by list`` prints."""
    from bridge.analyze.compare import COMPARABLE, OP_KERNEL
    from bridge.analyze.core.catalog import VIEWS

    names = (OP_KERNEL, *COMPARABLE)
    rows = [
        {"name": name, "kind": "dimension", "meaning": DIMENSIONS[name].meaning}
        if name in DIMENSIONS
        else {"name": name, "kind": "table", "meaning": VIEWS[name].question}
        for name in names
    ]
    return Listing(listing.TABLES, rows, "".join(f"{name}\n" for name in names))


def _columns(by: str, view: DiffView) -> Listing:
    """Return the list that ``--sort list`` and ``--filter list`` print."""
    from bridge.analyze.core.catalog import TABLES, describe

    known = TABLES["diff"].by_name
    columns = [
        known.get(name)
        or describe(name, is_number=column.dtype != object, is_float=column.dtype.kind == "f")
        for name, column in view.rows.items()
    ]
    text = "".join(f"{name}\n" for name in view.rows)
    return Listing(listing.COLUMNS, listing.column_rows(columns), text, {"by": by, "sets": []})


def _budget(path: Path | None) -> Budget | None:
    if path is None:
        return None

    try:
        return read_budget(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.BadParameter(f"{path}: {reason}", param_hint="--budget") from error


def check_limits(texts: Sequence[str]) -> None:
    """Refuse invalid limits before any report is read."""
    from bridge.analyze.compare.gates import Growth

    try:
        for text in texts:
            Growth.parsed(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--fail-over") from error


def compare_sides(
    sides: list[Report],
    request: DiffRequest,
    rows: RowOptions,
    fail_over: Sequence[str],
    limits: Budget | None,
) -> DiffView:
    """Compare the sides, judge them, and select the rows to show."""
    from bridge.analyze.compare.steps import check_same_steps, filter_known_rows
    from bridge.analyze.core.table import Table
    from bridge.comparison import Diff, within
    from bridge.render.diff import DiffView

    if len(sides) == 1 and limits is not None:
        source = sides[0].capture.source
        return DiffView(
            before=(),
            after=source,
            comparison=None,
            rows=Table(),
            verdicts=within(sides[0], limits),
        )
    before, after = sides
    if request.time_range.steps:
        check_same_steps(before.attributed, after.attributed, *request.time_range.steps)
    diff = Diff(
        before=before,
        after=after,
        by=request.by,
        kernel_names=request.kernel_names,
        noise=share(request.noise),
    )
    verdicts = diff.judged(fail_over, limits)
    table = rows.sorted_and_cut(filter_known_rows(diff.comparison.rows, rows.conditions))
    sources = before.capture.source, after.capture.source
    return DiffView(*sources, diff.comparison, table, verdicts, overall=diff.overall)


def share(text: str) -> float:
    from bridge.knowledge.amounts import parse_amount

    number, unit = parse_amount(text)
    if unit != "%":
        raise ValueError(f"--noise {text}: write it as 1%")
    return float(number) / 100


def _write(view: DiffView, form: str, output: Output, rows: RowOptions) -> None:
    """Write the result; on a terminal, failed limits are printed only on stderr."""
    from bridge.render import diff as texts
    from bridge.render.ci_reports import as_junit

    if form == "json":
        text = texts.as_json(view)
    elif form == "csv":
        text = texts.as_csv(view)
    elif form == "junit":
        text = as_junit(view.verdicts)
    elif form == "md":
        text = texts.as_markdown(_with_time(view), rows.unit)
    else:
        look = replace(options.look(to_terminal=output.to_terminal), unit=rows.unit)
        verdicts = view.verdicts if output.path else [v for v in view.verdicts if v.passed]
        is_cut = rows.top is None and options.is_on_terminal(to_terminal=output.to_terminal)
        shown = _with_time(view)
        shown = texts.with_rows(shown, options.TERMINAL_ROWS) if is_cut else shown
        text = texts.for_terminal(replace(shown, verdicts=verdicts), look)
    output.write(text, f"{len(view.rows)} rows, {len(view.verdicts)} judged")


def _with_time(view: DiffView) -> DiffView:
    """Leave out rows without time on either side."""
    if view.comparison is None:
        return view
    return replace(view, rows=view.comparison.timed(view.rows))
