"""``bridge graph``: the graph of the calls of ops as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bridge.cli import options, outputs
from bridge.cli.help import Command
from bridge.cli.options import doing
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from bridge.source import ReportInput

FORMATS = ("json", "dot", "et")
NO_DATA = (
    "no data flow between ops in the report; torch.autograd.profiler.emit_nvtx(record_shapes=True)"
    " records it"
)


@click.command(
    cls=Command,
    examples=(
        "bridge graph report.sqlite -o ops.json",
        "bridge graph report.sqlite -o ops.dot",
        "bridge graph report.sqlite --format et -o ops.et.json",
    ),
)
@options.report_input
@outputs.output(FORMATS)
def graph(source: ReportInput, output: Output) -> None:
    """Write the graph of the calls of ops in REPORTS (or of a run of the store).

    Its edges are the data flow between ops, the ops around each op, and forward to backward ops.
    json is read by programs, dot by Graphviz, et by tools for PyTorch's execution traces.
    """
    output.check(source.reports)
    report = options.load(source, {"json"})
    from bridge.analyze.core import no_timeline
    from bridge.analyze.draw.op_graph import op_graph
    from bridge.importers.errors import ReportError
    from bridge.render.op_graph import WRITERS

    no_timeline.refuse(report.capture, "graph of ops")
    with doing("linking ops"):
        made = op_graph(report.attributed)
    names = ", ".join(report.capture.source)
    if not len(made.nodes):
        raise ReportError(
            f"{names}: no ops, so there is no graph; annotate the program (docs/annotate.md)"
        )
    if not made.has_data:
        click.echo(f"{names}: {NO_DATA}", err=True)
    text = "".join(WRITERS[output.format](made, report.capture.source))
    output.write(text, f"{len(made.nodes)} calls, {len(made.edges)} edges")
