"""``bridge report``: tables per op, kernel, copy or range."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options

if TYPE_CHECKING:
    import pandas as pd

    from bridge.joined import Joined

VIEWS = ("op", "op-kernel", "kernel", "copy", "range")
FORMATS = ("table", "json", "csv", "md")


@click.command()
@options.source
@click.option(
    "--by", type=click.Choice(VIEWS), default="op", show_default=True, help="What a row is."
)
@click.option(
    "--inclusive", is_flag=True, help="op-kernel: count a kernel for every op on its stack."
)
@click.option(
    "--names",
    type=click.Choice(("op", "raw")),
    default="op",
    show_default=True,
    help="raw: whole texts over all domains, as domain:text, instead of ops.",
)
@click.option(
    "--kernel-names",
    type=click.Choice(("short", "demangled", "mangled")),
    default="short",
    show_default=True,
    help="How kernels are named.",
)
@click.option("--sort", metavar="[+]COLUMN", help="Sort by this column, + for smallest first.")
@click.option("--top", type=click.IntRange(min=1), help="Show only this many rows.")
@click.option("--filter", "conditions", help="Only rows like 'op=aten::*, gpu_total>10us'.")
@options.rules_option
@options.graphs_option
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="Default: table, or by -o's suffix."
)
@options.output
def report(  # noqa: PLR0913, PLR0917 - one parameter per option
    reports: tuple[Path, ...],
    db: Path,
    run: int | None,
    by: str,
    inclusive: bool,
    names: str,
    kernel_names: str,
    sort: str | None,
    top: int | None,
    conditions: str | None,
    rules: Path | None,
    graphs: str | None,
    form: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Print a table of REPORTS, or of a run of the store.

    Times are on the GPU unless the heading says CPU. 'self' is of the innermost op only, 'total' of the
    op and everything under it, 'busy' the union of its intervals.
    """
    if inclusive and by != "op-kernel":
        raise click.UsageError("--inclusive goes with --by op-kernel")
    if output:
        options.spare_inputs(output, reports)
    choices = options.chosen(rules, raw=names == "raw", graphs=graphs)
    joined = options.joined(reports, db, run, choices, details=kernel_names == "mangled")
    table = joined.by(by, inclusive=inclusive, kernel_names=kernel_names)
    table = _chosen(table, conditions, sort, top)
    form = form or (_by_suffix(output) if output else "table")
    text = _text(joined, by, table, form, to_terminal=output is None)
    if output is None:
        click.echo(text, nl=False)
    else:
        from bridge.output import write

        write(output, text, force=force)
        click.echo(f"{output}: {len(table)} rows", err=True)


def _chosen(
    table: pd.DataFrame, conditions: str | None, sort: str | None, top: int | None
) -> pd.DataFrame:
    from bridge.analyze.filters import column_named, matching
    from bridge.joined import ordered

    try:
        if conditions:
            table = matching(table, conditions)
        if sort:
            column = column_named(table, sort.removeprefix("+"))
            table = ordered(table, [column], ascending=sort.startswith("+"))
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return table.head(top) if top else table


def _text(joined: Joined, by: str, table: pd.DataFrame, form: str, *, to_terminal: bool) -> str:
    from bridge.render import document

    if form == "json":
        return document.as_json(by, joined.report.source, joined.totals, table)
    if form == "csv":
        return document.as_csv(table)
    from bridge.render import accounting
    from bridge.render import table as tables

    account = accounting.line(joined.totals, joined.op_count)
    if form == "md":
        return f"{tables.as_markdown(options.headings(joined, by), table)}\n{account}\n"
    width = options.terminal_width() if to_terminal else 160
    return f"{tables.for_terminal(options.headings(joined, by), table, width)}\n{account}\n"


def _by_suffix(path: Path) -> str:
    suffix = path.suffix.removeprefix(".")
    return suffix if suffix in FORMATS else "table"
