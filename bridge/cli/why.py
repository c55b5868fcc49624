"""``bridge why``: explains the attribution of one activity, from the kernel back to its op."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bridge.analyze.core.catalog.views import SOURCE_DETAILS
from bridge.cli import options
from bridge.cli.help import Command, output_option
from bridge.cli.hints import with_report

if TYPE_CHECKING:
    from bridge.analyze.checks.why import Why
    from bridge.report import Report
    from bridge.source import ReportInput

REPORTS = (".sqlite", ".nsys-rep")


@click.command(
    cls=Command,
    examples=(
        "bridge why report.sqlite gemm",
        'bridge why report.sqlite "#12"',
    ),
)
@options.report_input
@click.argument("what", metavar="NAME|#ROW")
@output_option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="json: the same facts as one object.",
)
def why(
    source: ReportInput,
    what: str,
    form: str,
) -> None:
    """Explain to which op a kernel, memcpy or memset of REPORTS (or of a run of the store) belongs, and why.

    Name it by its row in the frame of activities, '#12', or by its name or a part of it: then the
    longest activity of that name is explained. Times count from the first event of the report.
    """
    if not what or what.endswith(REPORTS):
        raise click.UsageError(
            "name what to explain after the report: a kernel, or '#ROW' in quotes"
        )
    explanation = explained(options.load(source, {"nccl_calls", *SOURCE_DETAILS}), what)
    from bridge.render import why as render

    if form == "json":
        click.echo(render.as_json(explanation), nl=False)
    else:
        click.echo(with_report(render.for_terminal(explanation)), nl=False)


def explained(report: Report, what: str) -> Why:
    """Return the explanation of the longest activity of a name, or of a row. Raises ReportError if there is none."""
    from bridge.analyze.checks.why import nothing_found, rows_of
    from bridge.analyze.checks.why import why as explain
    from bridge.importers.errors import ReportError

    rows = rows_of(report.attributed, what)
    if not len(rows):
        source = ", ".join(report.capture.source)
        raise ReportError(f"{source}: {nothing_found(report.attributed, what)}")
    return explain(report.attributed, rows)
