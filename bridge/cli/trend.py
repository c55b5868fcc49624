"""``bridge trend``: the times of ops over a sequence of runs, and since which run they changed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import completion, options, outputs, selection_options
from bridge.cli.diff import FAILED, DiffRequest, Side, check_limits, noise_option, share
from bridge.cli.help import Command, option, report_option, table_option
from bridge.cli.options import doing, usage_errors
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from bridge.analyze.compare.trend import RunTimes
    from bridge.importers.listener import Listener
    from bridge.join.options import AttributionOptions
    from bridge.render.trend import TrendView
    from bridge.store import Run

FORMATS = ("table", "json", "csv", "html")
KINDS = ("op", "kernel", "step")
NUMBER = re.compile(r"(\d+)")
RECORDING = re.compile(r"bridge-.*\.jsonl")  # of a program, beside its report


@dataclass(frozen=True)
class Member:
    """A run of a trend: what it is called there, and where it is read; ``why`` it cannot be, "" mostly."""

    label: str
    side: Side
    source: tuple[str, ...]
    why: str = ""

    @classmethod
    def of_store(cls, run: Run) -> Member:
        label = run.label or run.name or f"run {run.id}"
        return cls(label, Side(run=run.id), run.source, AGGREGATES if run.tables else "")

    @classmethod
    def of(cls, text: str, db: Path) -> Iterator[Member]:
        """Yield what an argument names: the reports of a folder, a report, or a run of the store."""
        from bridge import store

        if Path(text).is_dir() and completion.report_names(Path(text)):
            for path in reports_in(Path(text)):
                yield cls(path.name.partition(".")[0], Side((path,)), (path.name,))
            return
        side = Side.of(text, db)
        if side.run is not None:
            yield cls.of_store(store.get_run(db, side.run))
            return
        names = tuple(Path(str(report)).name for report in side.reports)
        yield cls(names[0].partition(".")[0], side, names)

    def times(self, db: Path, request: DiffRequest, listener: Listener) -> RunTimes:
        """Read the run, and keep its times alone."""
        from bridge.analyze.compare.trend import RunTimes

        if self.why:
            return RunTimes.left_out(self.label, self.source, self.why)
        return RunTimes.of(self.side.load(db, request, listener).attributed, request.by, self.label)


class OncePrinter(options.Printer):
    """Prints what is said of several reports for the first of them alone."""

    def __init__(self) -> None:
        self.said: set[str] = set()

    def warn(self, lines: Iterable[str]) -> None:
        """Print the warnings that are new but for the report that they begin with."""
        new = [line for line in lines if line.partition(": ")[2] not in self.said]
        self.said.update(line.partition(": ")[2] for line in new)
        super().warn(new)


AGGREGATES = "aggregates, without rows"


def reports_in(folder: Path) -> list[Path]:
    """Return the reports of a folder by the numbers in their names, of a report and its export the report alone."""
    names = [name for name in completion.report_names(folder) if not RECORDING.fullmatch(name)]
    captured = {name.removesuffix(".nsys-rep") for name in names if name.endswith(".nsys-rep")}
    kept = [name for name in names if name.removesuffix(".sqlite") not in captured]
    return [folder / name for name in sorted(kept, key=_in_numbers)]


def _in_numbers(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in NUMBER.split(name)]


@click.command(
    cls=Command,
    examples=(
        "bridge trend",
        "bridge trend --last 30 -o trend.html",
        "bridge trend before.sqlite after.sqlite",
    ),
)
@click.argument("runs", nargs=-1, metavar="[RUN]...", shell_complete=completion.reports)
@options.store_option
@report_option(
    "--last", type=click.IntRange(min=1), metavar="N", help="Only the last N runs.", after="--db"
)
@table_option(
    "--by",
    type=click.Choice(KINDS),
    default=KINDS[0],
    show_default=True,
    help="What a row is: an op, a kernel, or the iterations of a loop (step).",
)
@option(
    "--fail-over",
    multiple=True,
    metavar="LIMIT",
    help="Exit with 3 if the newest change of all work or of the iteration time is a growth by more than this: 5%,"
    " 2ms. total:5%, iteration:5% check one time; op:5% checks each op with over 1 % of the time. May be repeated.",
    section="Limits",
)
@noise_option
@selection_options.top
@options.attribution_options
@options.no_cache_option
@outputs.output(FORMATS)
@click.pass_context
def trend(
    context: click.Context,
    /,
    runs: tuple[str, ...],
    db: Path,
    last: int | None,
    by: str,
    fail_over: tuple[str, ...],
    noise: str,
    top: int | None,
    attribution_options: AttributionOptions,
    output: Output,
) -> None:
    """Show how long ops take from run to run, and since which run they take longer or shorter.

    RUNS are in order: runs of the store by number or name, reports (several of one run with commas), or a folder of
    them. Without any, all runs of the store.
    """
    check_limits(fail_over)
    from bridge.analyze.compare.gates import Growth
    from bridge.analyze.compare.trend import Trend, check_gates

    gates = [Growth.parsed(text) for text in fail_over]
    with usage_errors():
        check_gates(gates, by)
    members = _members(runs, db)[-(last or 0) :]
    output.check([path for member in members for path in member.side.reports])
    from bridge.render.table import clean
    from bridge.render.trend import TrendView
    from bridge.source import TimeRange

    request = DiffRequest(
        by=by,
        kernel_names="readable",
        noise=noise,
        time_range=TimeRange(),
        attribution_options=attribution_options,
    )
    with usage_errors(), doing("reading runs") as now:
        found = Trend.of(list(_times(members, db, request, now)), by, share(noise))
        verdicts = found.judged(gates)
    is_cut = top is None and output.is_for_people
    rows = found.rows.head(options.TERMINAL_ROWS if is_cut else top or len(found.rows))
    view = TrendView(found, rows, len(found.rows) - len(rows), verdicts)
    _write(view, output)
    failed = [verdict for verdict in verdicts if not verdict.passed]
    for verdict in failed:
        click.echo(f"failed: {clean(verdict.line)}", err=True)
    if failed:
        context.exit(FAILED)


def _members(runs: Sequence[str], db: Path) -> list[Member]:
    """Return the runs that were named, or all of the store."""
    from bridge import store

    if not runs:
        return list(map(Member.of_store, store.list_runs(db)))
    return [member for text in runs for member in Member.of(text, db)]


def _times(
    members: Sequence[Member], db: Path, request: DiffRequest, now: Callable[[str], None]
) -> Iterator[RunTimes]:
    listener = OncePrinter()
    for number, member in enumerate(members, 1):
        now(f"reading {member.label}, run {number} of {len(members)}")
        yield member.times(db, request, listener)


def _write(view: TrendView, output: Output) -> None:
    """Write the result; on a terminal, failed limits are printed only on stderr."""
    from bridge.render import trend as texts

    if output.format == "table":
        verdicts = view.verdicts if output.path else [v for v in view.verdicts if v.passed]
        look = options.look(to_terminal=output.to_terminal)
        text = texts.for_terminal(replace(view, verdicts=verdicts), look)
    else:
        text = {"json": texts.as_json, "csv": texts.as_csv, "html": texts.page}[output.format](view)
    output.write(text, f"{len(view.trend.runs)} runs, {len(view.rows)} rows")
