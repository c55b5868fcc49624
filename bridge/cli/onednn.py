"""``bridge onednn``: the primitives that oneDNN ran on the CPU, from its log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options, outputs, selection_options
from bridge.cli.help import Command, option, table_option
from bridge.cli.outputs import Output
from bridge.knowledge.suggestions import unknown_name

if TYPE_CHECKING:
    from bridge.analyze.core.table import Table
    from bridge.importers.onednn import Log

DIMENSIONS = ("primitive", "impl", "prop", "problem", "layout", "attributes", "aux", "engine")
FORMATS = ("table", "json", "csv", "md")
STDIN = Path("/dev/stdin")
LONGEST = 120  # characters of a line that could not be read


def _dimensions(_context: click.Context, _option: click.Parameter, text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(options.parse_names(_context, _option, text)))
    unknown = next((name for name in names if name not in DIMENSIONS), None)
    if unknown or not names:
        raise click.BadParameter(unknown_name("dimension", unknown or text, DIMENSIONS))
    return names


@click.command(
    cls=Command,
    examples=(
        "ONEDNN_VERBOSE=1 python train.py | bridge onednn -",
        "bridge onednn onednn.log --by primitive,problem",
    ),
)
@click.argument("logs", nargs=-1, required=True, type=options.FILE)
@table_option(
    "--by",
    default="primitive",
    show_default=True,
    metavar="NAMES",
    callback=_dimensions,
    help=f"What a row is, by one or several, with commas: {', '.join(DIMENSIONS)}.",
)
@option(
    "--graph",
    is_flag=True,
    help="The partitions of graphs instead of primitives; those within them are primitives too.",
)
@selection_options.top
@outputs.output(FORMATS)
def onednn(
    logs: tuple[Path, ...],
    by: tuple[str, ...],
    graph: bool,
    top: int | None,
    output: Output,
) -> None:
    """Print the primitives that oneDNN ran, from LOGS written with ONEDNN_VERBOSE=1 (- for standard input).

    Level 2 also logs creations. Output of the program may stand between the lines. Logs of every
    version are read, from MKL-DNN 0.x on.
    """
    from bridge.analyze.tables import onednn as primitives
    from bridge.cli.options import doing
    from bridge.importers.onednn import load

    output.check(logs)
    with doing("reading"):
        log = load(*(STDIN if path == Path("-") else path for path in logs))
    table = primitives.by_dimensions(log, by, "graph" if graph else "primitive")
    _warn(log)
    form = output.format
    text = _text(
        log, by, table=table, form=form, top=top, graph=graph, to_terminal=output.to_terminal
    )
    output.write(text, f"{min(len(table), top or len(table))} rows")


def _warn(log: Log) -> None:
    if log.unread:
        example = log.unread[0][:LONGEST]
        lines = "1 line" if len(log.unread) == 1 else f"{len(log.unread)} lines"
        click.echo(f"warning: {lines} could not be read, such as {example!r}", err=True)


def _text(
    log: Log,
    by: tuple[str, ...],
    table: Table,
    form: str,
    top: int | None,
    *,
    graph: bool,
    to_terminal: bool,
) -> str:
    from bridge.analyze.tables.onednn import totals
    from bridge.cli.table_output import ListedTable
    from bridge.render import summaries

    fields = {
        "format": "bridge.onednn/1",
        "by": ",".join(by),
        "source": list(log.source),
        "library": list(log.info),
    }
    below = f"\n{summaries.primitives_line(totals(table))}{_others(log, graph=graph)}\n"
    listed = ListedTable("onednn", table.head(top) if top else table, fields, below=below)
    return listed.text(form, top=top, to_terminal=to_terminal)


def _others(log: Log, *, graph: bool) -> str:
    """Return a note on executions that the table leaves out."""
    from bridge.analyze.tables.onednn import executed

    ran = executed(log, "graph")
    if graph or not ran:
        return ""
    return f"; {ran} executions of graphs, by their primitives: --graph for them as a whole"
