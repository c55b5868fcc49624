"""``bridge why``: one attribution explained, from the kernel back to its op."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options

if TYPE_CHECKING:
    from bridge.analyze.why import Why
    from bridge.join.choices import Choices
    from bridge.report import Joined

REPORTS = (".sqlite", ".nsys-rep")


@click.command()
@options.source
@click.argument("what", metavar="NAME|#ROW")
@options.choices
@click.option(
    "--format",
    "form",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="json: the same facts as one object.",
)
def why(
    reports: tuple[Path, ...],
    what: str,
    db: Path,
    run: int | str | None,
    choices: Choices,
    form: str,
) -> None:
    """Explain whose a kernel, memcpy or memset of REPORTS (or of a run of the store) is, and why.

    It is named by its row in the frame of activities, '#12', or by its name or a part of it: then
    the longest of that name is explained. Times count from the report's first event.
    """
    if not what or what.endswith(REPORTS):
        raise click.UsageError(
            "name what to explain after the report: a kernel, or '#ROW' in quotes"
        )
    found = _explained(options.joined(reports, db, run, choices, details=False), what)
    from bridge.render import why as render

    click.echo(render.as_json(found) if form == "json" else render.for_terminal(found), nl=False)


def _explained(joined: Joined, what: str) -> Why:
    from bridge.analyze.why import nothing_found, rows_of
    from bridge.analyze.why import why as explain
    from importers.errors import ReportError

    rows = rows_of(joined.attributed, what)
    if not len(rows):
        source = ", ".join(joined.report.source)
        raise ReportError(f"{source}: {nothing_found(joined.attributed, what)}")
    return explain(joined.attributed, rows)
