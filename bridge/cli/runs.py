"""``bridge runs``: what is in the store."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.cli import options


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
            f"  {units.time(run.gpu_ns):>10}  {units.percent(share):>7} in ops  {', '.join(run.source)}"
            f"{f'  ({run.name})' if run.name else ''}"
        )


@runs.command()
@options.store
@click.argument("run")
def show(db: Path, run: str) -> None:
    """Show one run, by number or name: its reports, its accounting and its ops."""
    from bridge.cli.import_ import show as breakdown
    from bridge.join.choices import Choices

    joined = options.joined((), db, options.run_of(run), Choices())
    for source, facts in zip(joined.report.source, joined.report.facts, strict=True):
        made = (
            f"Nsight Systems {facts.product} (schema {facts.schema})"
            if facts.product
            else "unknown version"
        )
        click.echo(f"{source}: {made}, {(facts.span[1] - facts.span[0]) / 1e9:.3f} s")
    breakdown(joined)


@runs.command()
@options.store
@click.argument("run")
def rm(db: Path, run: str) -> None:
    """Remove a run, by number or name, from the store."""
    from bridge import store

    gone = store.remove(db, options.run_of(run))
    click.echo(f"removed run {gone.id}: {', '.join(gone.source)}", err=True)
