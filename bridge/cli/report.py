"""``bridge report``: tables per op, kernel, copy or range."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.cli import options
from bridge.views import DIRECTED, VIEWS

if TYPE_CHECKING:
    import pandas as pd

    from bridge.join.choices import Choices
    from bridge.joined import Joined

FLAGS = {"inclusive": "op-kernel", "memory_kinds": "copy", "arguments": "range"}
DETAILS = {
    "memory_kinds": "source_kind target_kind",
    "arguments": "json",
}
READABLE = 1_000  # rows that a terminal gets: nobody reads more, and to lay them out takes long
FORMATS = ("table", "json", "csv", "md")


@click.command()
@options.source
@click.option(
    "--by", type=click.Choice(tuple(VIEWS)), default="op", show_default=True, help="What a row is."
)
@click.option(
    "--inclusive", is_flag=True, help="op-kernel: count a kernel for every op on its stack."
)
@click.option(
    "--direction",
    type=click.Choice(("forward", "backward", "both")),
    default="both",
    show_default=True,
    help="Count only what ran in this pass; not for module, forward-op, phase, wait.",
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
@click.option("--arguments", is_flag=True, help="range: columns of what each call says of itself.")
@click.option("--memory-kinds", is_flag=True, help="copy: pageable, pinned … memory apart.")
@click.option("--sort", metavar="[+]COLUMN", help="Sort by this column, + for smallest first.")
@click.option("--top", type=click.IntRange(min=1), help="Show only this many rows.")
@click.option("--filter", "conditions", help="Only rows like 'op=aten::*, gpu_total>10us'.")
@options.choices
@options.sidecar
@click.option(
    "--format", "form", type=click.Choice(FORMATS), help="Default: table, or by -o's suffix."
)
@options.output
def report(  # noqa: PLR0913, PLR0917 - one parameter per option
    reports: tuple[Path, ...],
    db: Path,
    run: int | None,
    choices: Choices,
    sidecar: tuple[Path, ...],
    by: str,
    names: str,
    sort: str | None,
    top: int | None,
    conditions: str | None,
    form: str | None,
    output: Path | None,
    force: bool,
    **view: Any,
) -> None:
    """Print a table of REPORTS, or of a run of the store.

    Times are on the GPU unless the heading says CPU. 'self' is of the innermost op only, 'total' of the
    op and everything under it, 'busy' the union of its intervals.
    """
    _check(by, **view)
    if output:
        options.check_output(output, reports, force=force)
    choices = replace(choices, raw=names == "raw")
    joined = options.joined(reports, db, run, choices, _details(by, **view), sidecar)
    table = _chosen(joined.by(by, **view), conditions, sort, top)
    form = form or (_by_suffix(output) if output else "table")
    shown = "copy by memory" if view["memory_kinds"] else joined.headings(by)
    text = _text(joined, by, shown, table, form, to_terminal=output is None)
    if output is None:
        click.echo(text, nl=False, color=options.look().color)
    else:
        from bridge.output import write

        write(output, text, force=force)
        click.echo(f"{output}: {len(table)} rows", err=True)


def _check(by: str, *, direction: str, **view: str | bool) -> None:
    for flag, only in FLAGS.items():
        if view[flag] and by != only:
            raise click.UsageError(f"--{flag.replace('_', '-')} goes with --by {only}")
    if direction != "both" and by not in DIRECTED:
        raise click.UsageError(f"--direction goes with --by {', '.join(DIRECTED)}")


def _details(by: str, *, kernel_names: str, **view: str | bool) -> set[str]:
    """Return the columns that the table needs and most do without."""
    found = set(VIEWS[by].details)
    for flag in FLAGS:
        found |= set(DETAILS.get(flag, "").split()) if view[flag] else set()
    return found | ({"mangled"} if kernel_names == "mangled" else set())


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


def _text(
    joined: Joined, by: str, shown: str, table: pd.DataFrame, form: str, *, to_terminal: bool
) -> str:
    from bridge.render import document

    if form == "json":
        return document.as_json(by, joined.report.source, joined.totals, table)
    if form == "csv":
        return document.as_csv(table)
    from bridge.render import accounting
    from bridge.render import table as tables

    account = accounting.line(joined.totals, joined.op_count)
    if form == "md":
        return f"{tables.as_markdown(shown, table)}\n{account}\n"
    if not len(table) and VIEWS[by].nothing:
        return f"{VIEWS[by].nothing}\n{account}\n"
    few = table.head(READABLE) if to_terminal else table
    left = len(table) - len(few)
    more = f"… and {left} more rows: a --filter, or --format csv for all\n" if left else ""
    return f"{tables.for_terminal(shown, few, options.look(to_terminal=to_terminal))}{more}\n{account}\n"


def _by_suffix(path: Path) -> str:
    suffix = path.suffix.removeprefix(".")
    return suffix if suffix in FORMATS else "table"
