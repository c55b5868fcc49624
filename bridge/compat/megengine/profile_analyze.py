"""MegEngine's profile_analyze, for profiles of static graphs and any report that bridge reads.

Usage: ``python -m bridge.compat.megengine.profile_analyze REPORT -t 10``.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np
import pandas as pd
from rich.box import ASCII
from rich.console import Console
from rich.table import Table

from bridge.compat.megengine.operators import (
    DEVICE,
    END,
    ENDS,
    HOST,
    NONE,
    NS,
    profile_operators,
    read_profile,
    report_operators,
    type_names,
)
from bridge.importers.errors import ReportError
from bridge.knowledge.expressions import Expression
from bridge.knowledge.package import UserError
from bridge.knowledge.suggestions import unknown_name
from bridge.report import Report, load

# -- Operators: one per call or per type


AGGREGATES = ("max", "min", "sum", "mean")
TIME = "time"
COLUMNS = (
    "time",
    "type",
    "name",
    "computation",
    "FLOPS",
    "memory",
    "bandwidth",
    "in_shapes",
    "out_shapes",
)
Source = Report | Mapping[str, Any]  # a report, or the profile of a static graph


@dataclass(frozen=True)
class OperatorRequest:
    """The operators to list; times in ns. ``aggregate`` makes one row of all calls of a type."""

    types: Sequence[str] = ()
    name: str | None = None
    dtype: str | None = None
    end: str = END
    aggregate: str | None = None
    order: str = TIME
    min_ns: int = 0
    max_ns: int | None = None


def operators(source: Source, side: str, request: OperatorRequest) -> pd.DataFrame:
    """Return a row per requested operator, in the requested order.

    Columns: ``time`` (ns), ``share`` of the time of all operators, ``cumulative`` time in this
    order, type, name, count, computation and memory (-1 if unknown), FLOPS and bandwidth (per
    second, NaN if undefined), in_shapes, out_shapes. Raises ValueError for an invalid order or
    expression.
    """
    of = report_operators if isinstance(source, Report) else profile_operators
    table, total = of(source, side, request.end)  # type: ignore[arg-type]
    table = _select(table, request)
    table = (
        _with_speeds(table) if request.aggregate is None else _aggregate(table, request.aggregate)
    )
    table = _sort(_within_times(table, request), request.order)
    return table.assign(share=table["time"] / max(total, 1), cumulative=table["time"].cumsum())


def _select(table: pd.DataFrame, request: OperatorRequest) -> pd.DataFrame:
    if request.types:
        table = table[table["type"].isin(type_names(request.types))]
    if request.name is not None:
        match = Expression(request.name, "the name").match
        table = table[table["name"].map(lambda name: match(name) is not None).astype(bool)]
    if request.dtype is not None:
        has_dtype = (
            table["dtype"].map(lambda types: request.dtype in types.split(", ")).astype(bool)
        )
        table = table[has_dtype]
    return table


def _within_times(table: pd.DataFrame, request: OperatorRequest) -> pd.DataFrame:
    max_ns = np.inf if request.max_ns is None else request.max_ns
    return table[(table["time"] >= request.min_ns) & (table["time"] <= max_ns)]


def _aggregate(table: pd.DataFrame, aggregate: str) -> pd.DataFrame:
    """Return one row per type; costs and speeds are of the calls with known costs."""
    groups = table.groupby("type", sort=False)
    rows = groups.agg(time=("time", aggregate), count=("count", "sum")).reset_index()
    for cost, speed in SPEEDS.items():
        known = table[table[cost] != NONE].groupby("type", sort=False)
        rows[cost] = rows["type"].map(known[cost].agg(aggregate)).fillna(NONE)
        # Only the time of these calls: that of the others would make the speed too low.
        rows[speed] = (
            rows["type"].map(known[cost].sum() / known["time"].sum().replace(0, np.nan)) * NS
        )
    return rows.assign(name="", in_shapes="", out_shapes="")


SPEEDS = {"computation": "FLOPS", "memory": "bandwidth"}


def _with_speeds(table: pd.DataFrame) -> pd.DataFrame:
    speeds = {
        speed: np.where(
            table[cost] == NONE, np.nan, table[cost] / table["time"].replace(0, np.nan) * NS
        )
        for cost, speed in SPEEDS.items()
    }
    return table.assign(**speeds)


def _sort(table: pd.DataFrame, order: str) -> pd.DataFrame:
    """Sort by a column, ascending with +; rows without a value come last."""
    column, ascending = order.removeprefix("+"), order.startswith("+")
    if column not in (*COLUMNS, "count"):
        raise ValueError(unknown_name("column", column, (*COLUMNS, "count"), "--help"))
    key = table[column]
    missing = (key == NONE) if column in SPEEDS else key.isna()
    keyed = table.assign(_missing=missing).sort_values(
        ["_missing", column, "name"], ascending=[True, ascending, True], kind="stable"
    )
    return keyed.drop(columns="_missing").reset_index(drop=True)


# -- Texts: a table, wiki markup, or plain lines


MAX_BAR = 15  # characters
TEXT_COLUMNS = ("operator info", "in_shapes", "out_shapes")  # columns whose lines may be wrapped
MIN_TEXT_WIDTH, BOX_WIDTH = 12, 3  # of these columns; of the box per column
FLOP_UNITS, BYTE_UNITS = (
    (1000, ("", "K", "M", "G", "T", "P")),
    (1024, ("byte", "KiB", "MiB", "GiB", "TiB", "PiB")),
)


def text_table(operators: pd.DataFrame, side: str, width: int) -> str:
    """Return the operators as a table; the figures of a cell are in lines.

    Names and shapes share the width that the figures leave. If that is below `MIN_TEXT_WIDTH` for
    one of them, the table is wider than ``width``.
    """
    headings, rows = _headings(side), _rows(operators)
    widths = _widths(headings, rows, width)
    grid = Table(box=ASCII, show_lines=True)
    for heading in headings:
        grid.add_column(heading, width=widths[heading], overflow="fold")
    for row in rows:
        grid.add_row(*row)
    width = sum(widths.values()) + BOX_WIDTH * len(headings) + 1
    console = Console(width=width, color_system=None, markup=False, emoji=False, highlight=False)
    with console.capture() as captured:
        console.print(grid)
    return captured.get()


def _widths(headings: list[str], rows: list[list[str]], width: int) -> dict[str, int]:
    """Return the width of each column: figures in full, texts as far as there is room."""
    cells = zip(*(map(str.splitlines, row) for row in rows), strict=True)
    lines = dict(zip(headings, cells, strict=False))
    widths = {
        heading: max(map(len, [heading, *chain(*lines.get(heading, ()))])) for heading in headings
    }
    left = (
        width
        - 1
        - sum(widths[h] for h in headings if h not in TEXT_COLUMNS)
        - BOX_WIDTH * len(headings)
    )
    for i, name in enumerate(sorted(TEXT_COLUMNS, key=widths.__getitem__)):
        widths[name] = min(widths[name], max(MIN_TEXT_WIDTH, left // (len(TEXT_COLUMNS) - i)))
        left -= widths[name]
    return widths


def wiki_markup(operators: pd.DataFrame, side: str) -> str:
    """Return the operators as Confluence markup, with bars for time and speeds."""
    headings = [*_headings(side), "time bar", "MFLOPS-bar", "bandwidth bar"]
    bars = zip(*(_bars(operators[c]) for c in ("time", "FLOPS", "bandwidth")), strict=True)
    lines = [f"||{'||'.join(headings)}||"]
    for row, ends in zip(_rows(operators), bars, strict=True):
        lines.append(f"|{'|'.join(_escape(cell) for cell in (*row, *ends))}|")
    return "\n".join(lines) + "\n"


def plain_lines(operators: pd.DataFrame) -> str:
    """Return the operators without times, a line each, to be compared with diff."""
    columns = (operators[c].astype(str) for c in ("type", "name", "in_shapes", "out_shapes"))
    lines = ("\t".join(row).rstrip() for row in zip(*columns, strict=True))
    return "".join(f"{line}\n" for line in lines)


def format_seconds(ns: float) -> str:
    """Return a time in seconds, as profile_analyze writes it."""
    return f"{ns / NS:.3g}" if ns < NS else f"{ns / NS:.3f}"


def format_amount(value: float, unit: tuple[int, tuple[str, ...]], suffix: str = "") -> str:
    """Return FLOPs or bytes with a prefix, '-' if unknown."""
    if value != value or value == NONE:  # noqa: PLR0124 - NaN
        return "-"
    base, prefixes = unit
    place = 0
    while value >= base and place + 1 < len(prefixes):
        value, place = value / base, place + 1
    return f"{value:.2f}{prefixes[place]}{suffix}"


def _headings(side: str) -> list[str]:
    return [
        f"{side} self time", "cumulative", "operator info", "computation", "FLOPS", "memory",
        "bandwidth", "in_shapes", "out_shapes",
    ]  # fmt: skip


def _rows(operators: pd.DataFrame) -> list[list[str]]:
    return [
        [
            f"#{place}\n{format_seconds(row['time'])}\n{100 * row['share']:.1f}%",
            format_seconds(row["cumulative"]),
            f"{row['type']}\n{row['name'] or row['count']}",
            format_amount(row["computation"], FLOP_UNITS, "FLO"),
            format_amount(row["FLOPS"], FLOP_UNITS, "FLOPS"),
            format_amount(row["memory"], BYTE_UNITS),
            format_amount(row["bandwidth"], BYTE_UNITS, "/s"),
            row["in_shapes"] or "-",
            row["out_shapes"] or "-",
        ]
        for place, row in enumerate(operators.to_dict("records"))
    ]


def _bars(column: pd.Series) -> list[str]:
    maximum = column.max()
    return [
        "" if not value > 0 else "#" * max(1, round(MAX_BAR * value / maximum))
        for value in column.tolist()
    ]


def _escape(cell: str) -> str:
    """Return a cell on one line, with the markup's own characters escaped."""
    return cell.replace("\n", " ").replace("|", "\\|") or " "


# -- The command


PARTS = ("summary", "device", "host")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("dump", type=click.Path(path_type=Path))
@click.option(
    "-t",
    "--top",
    type=click.IntRange(min=0),
    default=3,
    show_default=True,
    help="Number of operators.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    help="Only operators of this type, by its name here or in MegEngine. May be repeated.",
)
@click.option(
    "--aggregate-by", type=click.Choice(["type"]), help="One row for all operators of a type."
)
@click.option(
    "--aggregate",
    type=click.Choice(AGGREGATES),
    help="How their values become one; needs --aggregate-by.",
)
@click.option(
    "--opr-name", "name", metavar="REGEX", help="Only operators whose name begins with a match."
)
@click.option("--input-dtype", "dtype", help="Only operators with an input of this type.")
@click.option(
    "--top-end-key",
    "end",
    type=click.Choice(ENDS),
    default="end",
    show_default=True,
    help="end: time of the work; kern: time before it began.",
)
@click.option(
    "--order-by",
    "order",
    default="time",
    show_default=True,
    metavar="[+]COLUMN",
    help="+ for smallest first.",
)
@click.option("--copy-time", is_flag=True, help="Print the time of copies.")
@click.option("--min-time", type=click.FloatRange(min=0), default=0.0, help="In seconds.")
@click.option("--max-time", type=click.FloatRange(min=0), help="In seconds.")
@click.option("--show-host", is_flag=True, help="Also list the operators of the host.")
@click.option(
    "--dump-only-opr", is_flag=True, help="Only the operators, a line each, to compare with diff."
)
@click.option(
    "--confluence", "--wiki", "wiki", is_flag=True, help="Confluence's markup, with bars."
)
@click.option("--print-only", type=click.Choice(PARTS), help="Only this part.")
def main(dump: Path, **request: Any) -> None:
    """List the operators of DUMP that take longest.

    DUMP is a profile of a static graph (get_profile), or any report that bridge reads, as
    chrome_timeline.json.
    """
    try:
        click.echo(analyze(_load(dump), **request), nl=False)
    except (ReportError, UserError) as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.UsageError(str(error)) from error


def _load(dump: Path) -> Source:
    """Return the profile of a static graph in a file, or the report."""
    profile = read_profile(dump) if dump.is_file() and dump.suffix == ".json" else None
    return load(dump) if profile is None else profile


def analyze(  # noqa: PLR0913 - one parameter per option
    source: Source,
    *,
    top: int = 3,
    aggregate_by: str | None = None,
    aggregate: str | None = None,
    min_time: float = 0.0,
    max_time: float | None = None,
    copy_time: bool = False,
    show_host: bool = False,
    dump_only_opr: bool = False,
    wiki: bool = False,
    print_only: str | None = None,
    **filters: Any,
) -> str:
    """Return the output of `main`; times in seconds.

    Raises ValueError with a message for the user for an invalid request.
    """
    if bool(aggregate_by) != bool(aggregate):
        raise ValueError("--aggregate-by type and --aggregate go together")
    max_ns = None if max_time is None else round(max_time * NS)
    request = OperatorRequest(
        aggregate=aggregate, min_ns=round(min_time * NS), max_ns=max_ns, **filters
    )
    sides = (DEVICE, HOST) if show_host or print_only == HOST else (DEVICE,)
    result = {side: operators(source, side, request).head(top) for side in sides}
    if dump_only_opr:
        return "".join(plain_lines(table) for table in result.values())
    parts = {"summary": _summary(source, copy_time=copy_time)}
    for side, table in result.items():
        parts[side] = (
            wiki_markup(table, side)
            if wiki
            else text_table(table, side, shutil.get_terminal_size().columns)
        )
    return "\n".join(text for part, text in parts.items() if print_only in (None, part))


def _summary(source: Source, *, copy_time: bool) -> str:
    """Return the totals of all operators."""
    if isinstance(source, Report):
        return _report_summary(source, copy_time=copy_time)
    times = {side: profile_operators(source, side, END) for side in (DEVICE, HOST)}
    lines = [f"total {side} time: {format_seconds(total)}" for side, (_, total) in times.items()]
    if copy_time:
        table = times[DEVICE][0]
        copies = table[table["type"].str.contains("cop", case=False)]
        lines.append(_copy_line(int(copies["time"].sum()), len(copies)))
    return "".join(f"{line}\n" for line in lines)


def _copy_line(total: int, count: int) -> str:
    return f"copy time: tot={format_seconds(total)} avg={format_seconds(total / max(count, 1))}"


def _report_summary(report: Report, *, copy_time: bool) -> str:
    ops, gpus = report.by("op", columns="gpu_self,cpu_self"), report.by("device")
    lines = [
        f"total device time: {format_seconds(ops['gpu_self_ns'].sum())}",
        f"total host time: {format_seconds(ops['cpu_self_ns'].sum())}",
        f"device busy: {format_seconds(gpus['busy_ns'].sum())}",
    ]
    if not len(report.capture.activities):
        lines.append("no work of a GPU: the device is the CPU, its times are those of the host")
    if copy_time:
        copies = report.by("memcpy")
        lines.append(_copy_line(int(copies["total_ns"].sum()), int(copies["count"].sum())))
    return "".join(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
