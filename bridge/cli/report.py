"""``bridge report``: tables per op, kernel, memcpy, range …, or of several dimensions together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import columns_of
from bridge.analyze.tables.request import ALL, DEFAULT, TableRequest
from bridge.cli import (
    completion,
    listing,
    options,
    outputs,
    selection_options,
    worker_options,
)
from bridge.cli.flop_options import costs
from bridge.cli.help import Command, attribution_option, row_option, table_option
from bridge.cli.listing import Listing
from bridge.cli.options import usage_errors
from bridge.cli.outputs import Output
from bridge.cli.selection_options import LIST, RowOptions

if TYPE_CHECKING:
    from bridge.analyze.core.table import Table
    from bridge.analyze.cost.flops import Costs
    from bridge.analyze.tables.table_source import TableSource
    from bridge.scale.workers import WorkerOptions
    from bridge.source import ReportInput, TimeRange


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
@options.ncu_option
@selection_options.time_range
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
@options.only_option
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
    from bridge.plugins import add_tables
    from bridge.source import open_source

    add_tables("" if request.by == LIST else request.by)
    if LIST in (request.by, rows.sort) or request.columns == (LIST,):
        _names(request).write(output)
        return
    with usage_errors():
        rows, time_range = without_steps(request, rows, time_range)
        request = replace(
            request, costs=costs, also=rows.columns, is_default=_is_default(SELECTING)
        )
        request.check()
    source = replace(
        source.attributed_by(raw=names == "raw", rank_from=rank_from, steps=step_name),
        reports=worker_options.expand_reports(source.reports, workers),
        only=only, ncu=ncu, time_range=time_range, workers=workers,
    )  # fmt: skip
    output.check(source.reports)
    folds = fold and not rows.conditions and output.is_for_people
    with usage_errors():
        answer = open_source(source, request, options.PRINTER, fold=folds)
        if request.metrics == (LIST,):
            _write_metrics(answer, request, rows, output)
            return
        request = answer.fitting(request)
        table = table_rows(answer, request, rows, output.format, running=running)
    options.warn(_doubts(request, answer, table))
    from bridge.cli.table_output import TableOutput

    printed = TableOutput(
        answer, request.by, rows.unit, every=bool(request.columns), top=rows.top,
        conditions=rows.conditions, fold=fold and not (rows.conditions or rows.sort or request.columns),
        ranks=answer.members if request.by == RANK else None, cycles=answer.cycles, side=only or "",
    )  # fmt: skip
    workers.check_output(answer.source, table, output.format)
    text = printed.text(table, output.format, to_terminal=output.to_terminal)
    output.write(text, f"{len(table)} rows")


def _is_default(names: Sequence[str]) -> bool:
    """Return whether none of these parameters of the running command was given."""
    context = click.get_current_context()
    given = (context.get_parameter_source(name) for name in names)
    return all(source in (None, ParameterSource.DEFAULT) for source in given)


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


def _doubts(request: TableRequest, answer: TableSource, table: Table) -> list[str]:
    """Return doubts about ranks for a table of them, and how to record sizes of collectives if none has one."""
    if RANK_TABLES.intersection(request.by.split(",")):
        return answer.rank_warnings
    if request.by != "collective" or "bytes" not in table or not len(table):
        return []
    return [NO_SIZES] if (table["bytes"] == -1).all() else []


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
) -> Table:
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


def _write_metrics(
    answer: TableSource, request: TableRequest, rows: RowOptions, output: Output
) -> None:
    """Write the list of the metrics that Nsight Compute measured."""
    from bridge.cli.table_output import TableOutput

    table = answer.table(request)
    printed = TableOutput(answer, LIST, rows.unit, every=True, top=rows.top)
    text = printed.text(table, output.format, to_terminal=output.to_terminal)
    output.write(text, f"{len(table)} rows")
