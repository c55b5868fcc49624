"""``bridge trace``: one timeline of ops, API calls and device work."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options

if TYPE_CHECKING:
    from bridge.join.choices import Choices

DRAWN = frozenset(
    "category grid_x grid_y grid_z block_x block_y block_z registers shared_static shared_dynamic"
    " source_kind target_kind graph json".split()
)


@click.command()
@options.source
@options.choices
@options.sidecar
@options.output
def trace(  # noqa: PLR0913, PLR0917 - a parameter per option
    reports: tuple[Path, ...],
    db: Path,
    run: int | None,
    choices: Choices,
    sidecar: tuple[Path, ...],
    output: Path | None,
    force: bool,
) -> None:
    """Write one timeline of REPORTS (or of a run of the store): ops, API calls, kernels, arrows.

    The file is Chrome trace JSON, compressed if its name ends in .gz; open it at ui.perfetto.dev.
    """
    if output is None:
        raise click.UsageError("name the output: -o trace.json.gz")
    if not output.name.endswith((".json", ".json.gz")):
        raise click.UsageError(f"{output}: a trace is written as .json or .json.gz")
    options.check_output(output, reports, force=force)
    joined = options.joined(reports, db, run, choices, DRAWN, sidecar)
    joined.export_chrome_trace(output, force=force)
    click.echo(f"{output}: open it at https://ui.perfetto.dev", err=True)
