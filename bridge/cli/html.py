"""``bridge html``: one report as a page, or two side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.analyze.core.catalog.lookup import ADVICE_DETAILS, QUALITY_DETAILS
from bridge.analyze.core.catalog.views import SOURCE_DETAILS
from bridge.cli import options, outputs
from bridge.cli.help import Command
from bridge.cli.options import doing
from bridge.cli.outputs import Output

if TYPE_CHECKING:
    from bridge.importers.remote import Location
    from bridge.source import ReportInput

MOST = 2


@click.command(
    "html",
    cls=Command,
    examples=(
        "bridge html report.sqlite -o report.html",
        "bridge html before.sqlite after.sqlite -o compared.html",
    ),
)
@options.report_input
@options.ncu_option
@outputs.output()
def html(
    source: ReportInput,
    ncu: tuple[Path, ...],
    output: Output,
) -> None:
    """Write a report (or a run of the store) as a page, or two side by side.

    The page is one file that loads nothing and sends nothing; any browser opens it.
    """
    path, reports = output.path, source.reports
    if path is None:
        raise click.UsageError("name the output: -o report.html")
    if path.suffix not in {".html", ".htm"}:
        raise click.UsageError(f"{path}: a page is written as .html")
    if len(reports) > MOST:
        raise click.UsageError(
            f"{len(reports)} reports: a page shows one, or two side by side; name two, or import"
            " several as one run (bridge import REPORT …) and leave them out here"
        )
    if source.sidecar and len(reports) == MOST:
        raise click.UsageError("--sidecar goes with one report: put recordings beside each of two")
    if ncu and len(reports) == MOST:
        raise click.UsageError(
            "--ncu goes with one report: import two with theirs, and compare runs"
        )
    output.check(reports)
    write_page(path, source, ncu, force=output.force)
    click.echo(f"{path}: open it in a browser", err=True)


def write_page(
    output: Path, source: ReportInput, ncu: tuple[Path, ...] = (), *, force: bool = False
) -> None:
    """Load the report, or two as two sides, and write the page of it."""
    sides: list[tuple[Location, ...]] = [(report,) for report in source.reports] or [()]
    details = {*ADVICE_DETAILS, *QUALITY_DETAILS, *SOURCE_DETAILS, "memory", "metrics"}
    values = [options.load(replace(source, reports=side, ncu=ncu), details) for side in sides]
    from bridge import exports
    from bridge.plugins import every_check

    with doing(f"writing {output}"):
        attributed = [report.attributed for report in values]
        exports.page(attributed, output, checks=every_check(), force=force)
