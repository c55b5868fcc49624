"""``bridge report``: tables per op, kernel, memcpy, range …, or of several dimensions together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import columns_of
from bridge.analyze.tables.request import ALL, DEFAULT, NCU_DETAILS, TableRequest
from bridge.cli import (
    completion,
    limits,
    listing,
    ncu_option,
    options,
    outputs,
    selection_options,
    worker_options,
)
from bridge.cli.flop_options import costs
from bridge.cli.help import Command, attribution_option, row_option, table_option
from bridge.cli.listing import Listing
from bridge.cli.options import ReportInput, usage_errors
from bridge.cli.outputs import Output
from bridge.cli.selection_options import LIST, RowOptions, TimeRange
from bridge.cli.worker_options import WorkerOptions

if TYPE_CHECKING:
    import pandas as pd

    from bridge.analyze.cost.flops import Costs
    from bridge.analyze.run.ranks.table import Run
    from bridge.analyze.tables.source import TableSource
    from bridge.report import Report
    from bridge.store import StoredReport


STEP_VIEWS = ("step", "gap")  # views with a column of steps
NO_SIZES = (
    "no sizes of messages in the report; NCCL tells them in payloads of NVTX: record with"
    " nsys profile --trace=cuda,nvtx, and export with nsys export --type sqlite --include-blobs=true"
)
RANK = "rank"
RANK_TABLES = frozenset([RANK, "host", "skew"])  # tables that depend on the ranks of processes
# Options that only some tables have: with them the table is the one that was asked for.
SELECTING = ("by", "columns", "direction", "conditions", "sort", "metrics")
FORMATS = ("table", "json", "csv", "md")
DOCUMENTS = ("json", "csv")  # for programs


rare_table_option = partial(table_option, rare=True)
TABLE_OPTIONS = (
    table_option(
        "--by",
        default="op",
        show_default=True,
        metavar="TABLE",
        shell_complete=completion.tables,
        help="What a row is: op, op-kernel, kernel, step, module … or several with commas, as op,shape;"
        " list shows all.",
    ),
    table_option(
        "--columns",
        default="",
        metavar="NAMES",
        shell_complete=completion.columns,
        help="Only these columns, by name or heading, or sets of columns, with commas; list shows all.",
    ),
    table_option(
        "--direction",
        type=click.Choice(("forward", "backward", "both")),
        default="both",
        show_default=True,
        help="Count only what ran in this pass.",
    ),
    options.kernel_names,
    rare_table_option(
        "--inclusive", is_flag=True, help="op-kernel: count a kernel for every op on its stack."
    ),
    rare_table_option(
        "--arguments", is_flag=True, help="range: columns of what each call says of itself."
    ),
    rare_table_option(
        "--memory-kinds", is_flag=True, help="memcpy: pageable, pinned … memory apart."
    ),
    rare_table_option(
        "--idle-over",
        "idle_over_ns",
        metavar="TIME",
        callback=selection_options.time,
        help="gap, idle: only gaps longer than this.  [default: 10us for gap, 0 for idle]",
    ),
    rare_table_option(
        "--metrics",
        default="",
        metavar="NAMES",
        callback=options.parse_names,
        help="Columns of what Nsight Compute measured: short names as occupancy, or its own, with commas;"
        " list shows those there are.",
    ),
)


def _request(*, by: str, columns: str, **fields: Any) -> TableRequest:
    return TableRequest.of(by, columns, **fields)


@click.command(
    cls=Command,
    examples=(
        "bridge report report.sqlite --by kernel",
        'bridge report report.sqlite --by op,step --filter "op=*attention*"',
        "bridge report --run 1 --sort cpu_total --top 10",
        "bridge report report.sqlite --step 1..2 --format csv -o ops.csv",
    ),
)
@options.report_input
@options.collected("request", _request, *TABLE_OPTIONS)
@attribution_option(
    "--names",
    type=click.Choice(("op", "raw")),
    default="op",
    show_default=True,
    help="raw: whole texts over all domains, as domain:text, instead of ops.",
    rare=True,
)
@ncu_option.ncu
@selection_options.window
@selection_options.rows("op=aten::*, gpu>10us, step=3..5, kernel~gemm")
@row_option(
    "--fold/--no-fold",
    default=True,
    show_default=True,
    help="On a terminal: show Batch 0, Batch 1 … as Batch * (and other names that differ in a number"
    " that counts up, from eight on), and no rows without GPU time.",
)
@rare_table_option(
    "--running", is_flag=True, help="Add the running sum of the column that is sorted by."
)
@costs
@options.rank_from_option
@options.steps_option
@limits.only_option
@worker_options.workers
@outputs.output(FORMATS)
def report(
    source: ReportInput,
    request: TableRequest,
    names: str,
    ncu: tuple[Path, ...],
    time_range: TimeRange,
    rows: RowOptions,
    fold: bool,
    running: bool,
    costs: Costs | None,
    rank_from: str | None,
    step_name: str | None,
    only: str | None,
    workers: WorkerOptions,
    output: Output,
) -> None:
    """Print a table of REPORTS, or of a run of the store.

    A report is a file, a folder of reports, or a URL, as s3://bucket/report.sqlite. Times are on
    the GPU unless the heading says CPU. 'self' is of the innermost op only, 'total' of the op and
    everything under it, 'busy' the union of its intervals, 'span' first start to last end.
    """
    if LIST in (request.by, rows.sort) or request.columns == (LIST,):
        _names(request).write(output)
        return
    with usage_errors():
        rows, time_range = without_steps(request, rows, time_range)
        request = replace(request, costs=costs, also=rows.columns)
        request.check()
        details = request.details | (NCU_DETAILS if ncu else frozenset())
    source = _with_options(source, workers, raw=names == "raw", rank_from=rank_from, only=only)
    source = source.with_steps(step_name)
    output.check(source.reports)
    needs_rows = [*_options_on_rows(time_range, request, ncu), *(["--only"] if only else [])]
    request, answer = _without_rows(workers, request, source, needs_rows, fold=fold, output=output)
    if answer is None:
        report = ncu_option.with_ncu(source.load(details), ncu, source.attribution_options)
        request = _fitting(request, report)
        with usage_errors():
            report = time_range.of(report)
            if request.metrics == (LIST,):
                _write_metrics(report, rows, output)
                return
        answer = _folded(report, fold=fold and not rows.conditions, output=output)
    with usage_errors():
        table = table_rows(answer, request, rows, output.format, running=running)
    _warn_of_ranks(request, answer)
    options.warn(_sizes(request, table))
    from bridge.cli.table_output import TableOutput

    printed = TableOutput(
        answer, request.by, rows.unit, every=bool(request.columns), top=rows.top,
        conditions=rows.conditions, fold=fold and not (rows.conditions or rows.sort or request.columns),
        ranks=_ranks(request, answer), cycles=answer.cycles, side=only or "",
    )  # fmt: skip
    workers.check_output(answer.source, table, output.format)
    text = printed.text(table, output.format, to_terminal=output.to_terminal)
    output.write(text, f"{len(table)} rows")


def _with_options(
    source: ReportInput,
    workers: WorkerOptions,
    *,
    raw: bool,
    rank_from: str | None,
    only: str | None,
) -> ReportInput:
    """Return the input with the options that only this command has."""
    return replace(
        source,
        reports=worker_options.expand_reports(source.reports, workers),
        attribution=replace(source.attribution_options, raw=raw, rank_from=rank_from),
        only=only,
    )


def _names(request: TableRequest) -> Listing:
    """Return the list that was requested: of the tables, or of the columns of one."""
    formatter = click.HelpFormatter(width=options.terminal_width())
    if request.by == LIST:
        tables = [(view.name, view.question) for view in VIEWS.values()]
        dimensions = [(one.name, one.meaning) for one in DIMENSIONS.values()]
        with formatter.section("Tables"):
            formatter.write_dl(tables)
        with formatter.section("Dimensions, one or several with commas"):
            formatter.write_dl(dimensions)
        rows = [
            {"name": name, "kind": kind, "meaning": meaning}
            for kind, pairs in (("table", tables), ("dimension", dimensions))
            for name, meaning in pairs
        ]
        return Listing(listing.TABLES, rows, formatter.getvalue())
    with usage_errors():
        described = columns_of(request.by)
    formatter.write_dl([(column.name, column.meaning) for column in described.columns])
    sets = [DEFAULT, ALL, *described.sets] if described.sets else []
    if sets:
        formatter.write_text(f"Sets: {', '.join(sets)}.")
    rows = listing.column_rows(described.columns)
    return Listing(listing.COLUMNS, rows, formatter.getvalue(), {"by": request.by, "sets": sets})


def _folded(report: Report, *, fold: bool, output: Output) -> Report:
    """Return the report; for people at a terminal, the ops of numbered steps are one op each."""
    if (
        not fold
        or output.format != FORMATS[0]
        or not options.is_on_terminal(to_terminal=output.to_terminal)
    ):
        return report
    from bridge.analyze.core.folding import Folded

    folded = Folded.of(report.attributed)
    return replace(report, attributed=folded.attributed) if folded.ops else report


def _fitting(request: TableRequest, report: Report | StoredReport) -> TableRequest:
    """Return the request; where none was given and a report has no ranges, that for its kernels."""
    context = click.get_current_context()
    given = (context.get_parameter_source(name) for name in SELECTING)
    is_default = all(source in (None, ParameterSource.DEFAULT) for source in given)
    if not is_default or report.ranges or not report.totals["activities"]:
        return request
    kernels = len(report.by("kernel"))
    return replace(request, by="kernel" if kernels else "memcpy")


def _warn_of_ranks(request: TableRequest, answer: TableSource) -> None:
    """Print doubts about ranks, for a table that depends on them."""
    if RANK_TABLES.intersection(request.by.split(",")):
        options.warn(answer.rank_warnings)


def _sizes(request: TableRequest, table: pd.DataFrame) -> list[str]:
    """Return a line on how to record the sizes of collectives, if no row has one."""
    if request.by != "collective" or "bytes" not in table or not len(table):
        return []
    return [NO_SIZES] if (table["bytes"] == -1).all() else []


def _ranks(request: TableRequest, answer: TableSource) -> Run | None:
    """Return who the ranks are, for a table of ranks from rows with times."""
    from bridge.report import Report

    if request.by != RANK or not isinstance(answer, Report):
        return None
    from bridge.analyze.core import no_timeline
    from bridge.analyze.run.ranks.table import Run

    return Run.of(answer.attributed) if no_timeline.has_timeline(answer.capture) else None


def _options_on_rows(
    time_range: TimeRange, request: TableRequest, ncu: tuple[Path, ...]
) -> list[str]:
    """Return the given options that need the rows of a report."""
    metrics = ["--metrics"] if request.metrics else []
    return [*time_range.options, *(["--ncu"] if ncu else []), *metrics]


def _without_rows(
    workers: WorkerOptions,
    request: TableRequest,
    source: ReportInput,
    needs_rows: list[str],
    *,
    fold: bool,
    output: Output,
) -> tuple[TableRequest, TableSource | None]:
    """Return the request, and the report that answers it without reading rows into this process, if any."""
    with usage_errors():
        combined = worker_options.combined(workers, request, source, needs_rows)
    if combined is not None or needs_rows:
        return request, combined
    return _from_stored_tables(source, request, fold=fold, output=output)


def _from_stored_tables(
    source: ReportInput, request: TableRequest, *, fold: bool, output: Output
) -> tuple[TableRequest, TableSource | None]:
    """Return the request, and the run of the store whose stored tables answer it, None if none does.

    Its warnings are printed. Ops of numbered steps, which people see folded, need the rows.
    """
    from bridge.join.options import AttributionOptions

    if source.reports or source.sidecar or source.attribution_options != AttributionOptions():
        return request, None
    from bridge import store
    from bridge.join.families import folded_names

    stored = store.load_stored_report(source.db, source.run)
    if stored is None:
        return request, None
    fitting = _fitting(request, stored)
    is_folded = (
        fold
        and output.format == FORMATS[0]
        and options.is_on_terminal(to_terminal=output.to_terminal)
    )
    if not stored.answers(fitting) or (
        is_folded and folded_names(ops := list(stored.by("op")["op"])) != ops
    ):
        return request, None
    options.warn((*stored.warnings, *stored.defects))
    return fitting, stored


def without_steps(
    request: TableRequest, rows: RowOptions, time_range: TimeRange
) -> tuple[RowOptions, TimeRange]:
    """Turn a condition on steps into a part of the time, for a table without a column of steps."""
    by = request.by
    if request.arguments or by in STEP_VIEWS or (by not in VIEWS and "step" in by.split(",")):
        return rows, time_range
    rows, steps = rows.without_steps()
    return rows, replace(time_range, steps=time_range.steps or steps)


def table_rows(
    answer: TableSource, request: TableRequest, rows: RowOptions, form: str, *, running: bool
) -> pd.DataFrame:
    """Return the rows that meet the conditions, sorted and cut, with a running sum if requested.

    People count times from the first event, in conditions, too; documents keep the report's clock.
    """
    from bridge.analyze.core.filters import SORT_LIST, column_of, filter_rows
    from bridge.analyze.core.folding import moved
    from bridge.analyze.tables.build import sorted_by, with_running_sum

    table = moved(request.by, answer.table(request), -answer.began)
    table = filter_rows(table, rows.conditions)
    column = (
        column_of(table, rows.sort.removeprefix("+"), SORT_LIST)
        if rows.sort
        else sorted_by(request.by, table)
    )
    table = replace(rows, top=None).sorted_and_cut(table)
    if running:
        table = with_running_sum(table, column)
    table = table.head(rows.top) if rows.top else table
    return moved(request.by, table, answer.began) if form in DOCUMENTS else table


def _write_metrics(report: Report, rows: RowOptions, output: Output) -> None:
    """Write the list of the metrics that Nsight Compute measured."""
    from bridge.analyze.cost.metrics.values import metric_list
    from bridge.cli.table_output import TableOutput

    table = metric_list(report.capture)
    printed = TableOutput(report, LIST, rows.unit, every=True, top=rows.top)
    text = printed.text(table, output.format, to_terminal=output.to_terminal)
    output.write(text, f"{len(table)} rows")
