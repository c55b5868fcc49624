"""``bridge runs``: what is in the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options

if TYPE_CHECKING:
    from bridge.store import Run
    from importers import Facts


@click.group()
def runs() -> None:
    """List, show and remove the runs of the store."""


@runs.command("list")
@options.store
def list_(db: Path) -> None:
    """List the runs, the newest last."""
    from bridge import store
    from bridge.render import units

    for run in store.listed(db):
        share = run.attributed_ns / run.gpu_ns if run.gpu_ns else 0
        click.echo(
            f"{run.id:>4}  {run.created}  {units.count(run.activities):>12} activities"
            f"  {units.time(run.gpu_ns):>10}  {units.percent(share):>7} in ops  {_worth(run)}  {', '.join(run.source)}{_beside(run)}"
            f"{'  (aggregates)' if run.tables else ''}{f'  ({run.name})' if run.name else ''}"
        )


@runs.command()
@options.store
@click.argument("run")
def show(db: Path, run: str) -> None:
    """Show one run, by number or name: its reports, its accounting and its ops."""
    from bridge import store
    from bridge.cli.import_ import show as breakdown
    from bridge.join.choices import Choices

    number = options.run_of(run)
    if (together := store.load_aggregates(db, number)) is not None:
        for part in together.parts:
            click.echo(f"{part.source}: {_made(part.facts)}")
        breakdown(together)
        return
    joined = options.joined((), db, number, Choices())
    worth = store.described(db, number).quality
    for source, facts in zip(joined.report.source, joined.report.facts, strict=True):
        click.echo(f"{source}: {_made(facts)}")
    breakdown(joined)
    if worth is not None:
        click.echo(f"capture quality {worth} of 100")


def _worth(run: Run) -> str:
    """Say what the capture is worth; nothing of a run that was made before that was kept."""
    return f"quality {'' if run.quality is None else run.quality:>3}"


def _beside(run: Run) -> str:
    """Name the reports of Nsight Compute that were matched to those of a run."""
    return f", with {', '.join(run.ncu)}" if run.ncu else ""


def _made(facts: Facts) -> str:
    """Say what made a report, and of a timeline how long it is."""
    if not facts.timeline:
        return f"{facts.product} ({facts.schema})"
    made = f"Nsight Systems {facts.product} (schema {facts.schema})"
    length = f"{(facts.span[1] - facts.span[0]) / 1e9:.3f} s"
    return f"{made if facts.product else 'unknown version'}, {length}"


@runs.command()
@options.store
@click.argument("run")
def rm(db: Path, run: str) -> None:
    """Remove a run, by number or name, from the store."""
    from bridge import store

    gone = store.remove(db, options.run_of(run))
    click.echo(f"removed run {gone.id}: {', '.join(gone.source)}", err=True)
