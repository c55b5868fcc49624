"""``bridge annotate``: where ranges would explain the GPU time that is in no op."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bridge.analyze.core.catalog.lookup import SAMPLE_DETAILS, host_tables
from bridge.analyze.core.catalog.views import SOURCE_DETAILS
from bridge.cli import options, outputs
from bridge.cli.help import Command, option
from bridge.cli.hints import with_report
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from bridge.source import ReportInput


@click.command(
    cls=Command,
    examples=(
        "bridge annotate report.sqlite",
        "bridge annotate report.sqlite --inside forward",
        "bridge annotate report.sqlite --format json -o places.json",
    ),
)
@options.report_input
@option(
    "--inside",
    "inside",
    multiple=True,
    metavar="OP",
    help="An op that holds too much: its work counts as that in no op. May be repeated.",
)
@outputs.output(("text", "json"))
def annotate(source: ReportInput, inside: tuple[str, ...], output: Output) -> None:
    """List where ranges would explain most GPU time of REPORTS (or of a run of the store) that is in no op.

    Each place has the line of code to add. Places come from the call stacks of CUDA calls, from samples of the CPU, and
    from what the work repeats: docs/annotate.md says how sure each is.
    """
    from bridge.analyze.checks.annotate import places_to_annotate
    from bridge.importers.errors import ReportError
    from bridge.render import annotate as render

    output.check(source.reports)
    report = options.load(source, {*SOURCE_DETAILS, *SAMPLE_DETAILS})
    if not len(report.capture.activities):
        host = host_tables(len(report.capture.ranges))
        raise ReportError(f"{', '.join(report.source)}: no work on a GPU in the report; {host}")
    with options.usage_errors():
        answer = places_to_annotate(report.attributed, inside)
    if output.format == "json":
        text = render.as_json(answer, report.source)
    else:
        look = options.look(to_terminal=output.to_terminal)
        text = with_report(render.for_terminal(answer, look.width))
    output.write(text, "the places to annotate")
