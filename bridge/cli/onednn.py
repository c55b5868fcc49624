"""``bridge onednn``: what oneDNN ran on the CPU, by its own log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options, outputs

if TYPE_CHECKING:
    import pandas as pd

    from importers.onednn import Log

DIMENSIONS = ("primitive", "impl", "prop", "problem", "layout", "attributes", "aux", "engine")
FORMATS = ("table", "json", "csv", "md")
STDIN = Path("/dev/stdin")
LONGEST = 120  # characters of a line that could not be read


def _dimensions(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(options.names(_context, _option, text)))
    unknown = next((name for name in names if name not in DIMENSIONS), None)
    if unknown or not names:
        raise click.BadParameter(f"{unknown or text!r} is none of {', '.join(DIMENSIONS)}")
    return names


@click.command()
@click.argument("logs", nargs=-1, required=True, type=options.FILE)
@click.option(
    "--by",
    default="primitive",
    show_default=True,
    metavar="NAMES",
    callback=_dimensions,
    help=f"What a row is, by one or several, with commas: {', '.join(DIMENSIONS)}.",
)
@click.option(
    "--graph",
    is_flag=True,
    help="The partitions of graphs instead of primitives; those within them are primitives too.",
)
@click.option("--top", type=click.IntRange(min=1), help="Show only this many rows.")
@outputs.formats(FORMATS)
@outputs.option
def onednn(  # noqa: PLR0913, PLR0917 - a parameter per option
    logs: tuple[Path, ...],
    by: tuple[str, ...],
    graph: bool,
    top: int | None,
    form: str | None,
    output: Path | None,
    force: bool,
) -> None:
    """Print what oneDNN ran, from LOGS that it wrote with ONEDNN_VERBOSE=1 (- for standard input).

    Level 2 logs creations too. The program's own output may stand between its lines. Logs of every version
    are read, from MKL-DNN 0.x on.
    """
    from bridge.analyze import primitives
    from bridge.cli.progress import doing
    from importers.onednn import load

    outputs.check(output, logs, force=force)
    with doing("reading"):
        log = load(*(STDIN if path == Path("-") else path for path in logs))
    table = primitives.by(log, by, "graph" if graph else "primitive")
    _warn(log)
    form = outputs.form_of(form, output, FORMATS)
    text = _text(log, by, table, form, top, graph=graph, to_terminal=output is None)
    outputs.give(text, output, f"{min(len(table), top or len(table))} rows", force=force)


def _warn(log: Log) -> None:
    if log.unread:
        example = log.unread[0][:LONGEST]
        lines = "1 line" if len(log.unread) == 1 else f"{len(log.unread)} lines"
        click.echo(f"warning: {lines} could not be read, such as {example!r}", err=True)


def _text(  # noqa: PLR0913 (what the output is made of)
    log: Log,
    by: tuple[str, ...],
    table: pd.DataFrame,
    form: str,
    top: int | None,
    *,
    graph: bool,
    to_terminal: bool,
) -> str:
    from bridge.analyze.primitives import totals
    from bridge.cli.terminal import for_people
    from bridge.render import document, summaries
    from bridge.render import table as tables

    name, rows = ",".join(by), table.head(top) if top else table
    if form == "json":
        head = {"format": "bridge.onednn/1", "by": name, "source": list(log.source)}
        return document.with_rows({**head, "library": list(log.info)}, rows)
    if form == "csv":
        return document.as_csv(rows)
    below = f"\n{summaries.primitives_line(totals(table))}{_others(log, graph=graph)}\n"
    if form == "md":
        return tables.as_markdown("onednn", rows) + below
    return for_people("onednn", rows, "--top", to_terminal=to_terminal) + below


def _others(log: Log, *, graph: bool) -> str:
    """Say what is in the log and not in the table."""
    from bridge.analyze.primitives import executed

    ran = executed(log, "graph")
    if graph or not ran:
        return ""
    return f"; {ran} executions of graphs, by their primitives: --graph for them as a whole"
