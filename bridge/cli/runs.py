"""``bridge runs``: the runs of the store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import completion, hints, options
from bridge.cli.unknown_names import Group

if TYPE_CHECKING:
    from bridge.importers import Facts
    from bridge.store import HostTime, Run


@click.group(cls=Group, invoke_without_command=True)
@click.pass_context
def runs(context: click.Context) -> None:
    """List, show and remove the runs of the store; without a command, list those of the default store."""
    if context.invoked_subcommand is None:
        context.invoke(list_, db=hints.default_store())


@runs.command("list", short_help="List the runs, the newest last", examples=("bridge runs list",))
@options.store_option
def list_(db: Path) -> None:
    """List the runs, the newest last."""
    from bridge import store

    on_host = store.host_times(db)
    for run in store.list_runs(db):
        click.echo(
            f"{run.id:>4}  {_minute(run.created)}  {_size(run, on_host.get(run.id))}  {_worth(run)}"
            f"  {', '.join(run.source)}{_beside(run)}"
            f"{'  (aggregates)' if run.tables else ''}{f'  ({run.name})' if run.name else ''}"
            f"{f'  [{run.label}]' if run.label else ''}"
        )


def _minute(created: str) -> str:
    """Return a time as people write it, such as 2026-11-26 01:02 UTC."""
    return f"{created[:16].replace('T', ' ')} UTC"


def _size(run: Run, on_host: HostTime | None) -> str:
    """Return how much a run holds: its activities, or its ops where nothing ran on a GPU."""
    from bridge.render import units

    if on_host is not None:
        return f"{units.count(on_host.ops):>12} ops         {units.time(on_host.cpu_ns):>10}  {'on the CPU':>14}"
    share = run.attributed_ns / run.gpu_ns if run.gpu_ns else 0
    return (
        f"{units.count(run.activities):>12} activities"
        f"  {units.time(run.gpu_ns):>10}  {units.percent(share):>7} in ops"
    )


@runs.command(
    short_help="Show one run: its reports and its summary",
    examples=("bridge runs show 1", "bridge runs show nightly"),
)
@options.store_option
@click.argument("run", shell_complete=completion.runs)
def show(db: Path, run: str) -> None:
    """Show one run, by number or name: its reports, its accounting and its ops."""
    from bridge import store
    from bridge.cli.summary import summary_text
    from bridge.render.quality import score_text

    number = store.get_run(db, options.run_key(run)).id
    hints.select_run(db, number)
    if (aggregates := store.load_aggregates(db, number)) is not None:
        for part in aggregates.parts:
            click.echo(f"{part.source}: {_made(part.facts)}")
        _echo(summary_text(aggregates, options.look()))
        return
    from bridge.source import ReportInput

    report = options.load(ReportInput((), db, number))
    worth = store.get_run(db, number).quality
    for source, facts in zip(report.capture.source, report.capture.facts, strict=True):
        click.echo(f"{source}: {_made(facts)}")
    _echo(summary_text(report, options.look()))
    if worth is not None:
        click.echo(score_text(worth))


def _echo(text: str) -> None:
    click.echo(text, nl=False, color=options.look().color)


def _worth(run: Run) -> str:
    """Print the quality of the capture; nothing for runs that were not rated."""
    return "not rated  " if run.quality is None else f"quality {run.quality:>3}"


def _beside(run: Run) -> str:
    """Name the reports of Nsight Compute that were matched to a run."""
    return f", with {', '.join(run.ncu)}" if run.ncu else ""


def _made(facts: Facts) -> str:
    """Return what made a report, and how long its timeline is."""
    if not facts.timeline:
        return f"{facts.product} ({facts.schema})"
    made = f"Nsight Systems {facts.product} (schema {facts.schema})"
    length = f"{(facts.span[1] - facts.span[0]) / 1e9:.3f} s"
    return f"{made if facts.product else 'unknown version'}, {length}"


@runs.command(
    short_help="Compare runs with their checksums",
    examples=("bridge runs check", "bridge runs check nightly"),
)
@options.store_option
@click.argument("run", required=False, shell_complete=completion.runs)
def check(db: Path, run: str | None) -> None:
    """Compare stored runs with their checksums.

    Exits with status 1 if a run is damaged. Commands that read a run compare what they read.
    """
    from bridge import store

    numbers = store.run_numbers(db) if run is None else [store.get_run(db, options.run_key(run)).id]
    are_damaged = False
    for number in numbers:
        try:
            is_sealed = store.check_run(db, number)
        except store.StoreError as error:
            are_damaged = True
            click.echo(str(error))
        else:
            click.echo(f"run {number}: {'intact' if is_sealed else STORED_WITHOUT}")
    if are_damaged:
        raise click.exceptions.Exit(1)


STORED_WITHOUT = "all rows are there; an older version stored it without checksums"


@runs.command(short_help="Remove a run from the store", examples=("bridge runs rm 1",))
@options.store_option
@click.argument("run", shell_complete=completion.runs)
def rm(db: Path, run: str) -> None:
    """Remove a run, by number or name, from the store."""
    from bridge import store

    number, source = store.remove_run(db, options.run_key(run))
    click.echo(
        f"removed run {number}: {', '.join(source) or 'its description was damaged'}", err=True
    )
