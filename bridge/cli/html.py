"""``bridge html``: one report as a page to look at, or two beside each other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.analyze.tables.views import OF_ADVICE, OF_QUALITY
from bridge.cli import ncu_option, options, outputs
from bridge.cli.progress import doing

if TYPE_CHECKING:
    from bridge.join.choices import Choices

MOST = 2


@click.command("html")
@options.source
@ncu_option.ncu
@options.choices
@options.sidecar
@outputs.option
def html(  # noqa: PLR0913, PLR0917 - a parameter per option
    reports: tuple[Path, ...],
    db: Path,
    run: int | str | None,
    ncu: tuple[Path, ...],
    choices: Choices,
    sidecar: tuple[Path, ...],
    output: Path | None,
    force: bool,
) -> None:
    """Write a page of a report (or of a run of the store) to look at, or of two side by side.

    The page is one file that loads nothing and sends nothing; any browser opens it.
    """
    if output is None:
        raise click.UsageError("name the output: -o report.html")
    if output.suffix not in {".html", ".htm"}:
        raise click.UsageError(f"{output}: a page is written as .html")
    if len(reports) > MOST:
        raise click.UsageError(
            f"{len(reports)} reports: a page shows one, or two side by side; name two, or import"
            " several as one run (bridge import REPORT …) and leave them out here"
        )
    if sidecar and len(reports) == MOST:
        raise click.UsageError("--sidecar goes with one report: put recordings beside each of two")
    if ncu and len(reports) == MOST:
        raise click.UsageError(
            "--ncu goes with one report: import two with theirs, and compare runs"
        )
    outputs.check(output, reports, force=force)
    write_page(output, reports, db, run, choices, sidecar, ncu, force=force)
    click.echo(f"{output}: open it in a browser", err=True)


def write_page(  # noqa: PLR0913, PLR0917 - what `options.joined` takes
    output: Path,
    reports: tuple[Path, ...],
    db: Path,
    run: int | str | None,
    choices: Choices,
    sidecar: tuple[Path, ...],
    ncu: tuple[Path, ...] = (),
    *,
    force: bool = False,
) -> None:
    """Load what the options name, two reports as two sides, and write the page of it."""
    sides: list[tuple[Path, ...]] = [(report,) for report in reports] or [()]
    details = OF_ADVICE | OF_QUALITY | {"memory", "metrics"}
    found = [options.joined(side, db, run, choices, details, sidecar) for side in sides]
    found = [ncu_option.with_ncu(one, ncu, choices) for one in found]
    from bridge import exports

    with doing(f"writing {output}"):
        exports.page([one.attributed for one in found], output, force=force)
