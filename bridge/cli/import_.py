"""``bridge import``: read, join, store, and show the breakdown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import counters, options
from bridge.cli.progress import doing

if TYPE_CHECKING:
    from bridge.joined import Joined

TOP = 15


@click.command("import")
@options.store
@options.rules_option
@options.sidecar
@counters.ncu
@click.option(
    "--verify", is_flag=True, help="Know a report by a hash of every byte, not of samples."
)
@click.option("--name", help="Call the run by this name, as bridge diff takes it.")
@click.option("--quiet", "-q", is_flag=True, help="Print no table.")
@click.argument("reports", nargs=-1, required=True, type=options.FILE)
def import_(  # noqa: PLR0913, PLR0917 - what it takes
    reports: tuple[Path, ...],
    db: Path,
    rules: Path | None,
    sidecar: tuple[Path, ...],
    ncu: tuple[Path, ...],
    verify: bool,
    name: str | None,
    quiet: bool,
) -> None:
    """Join REPORTS (.sqlite, .nsys-rep, .ncu-rep, .jsonl), keep them as one run of the store, print the breakdown."""
    from bridge import store
    from bridge.join.choices import Choices

    if name is not None:
        store.check_name(name)
    choices = Choices(options.read_rules(rules))
    joined = options.joined(reports, db, None, choices, sidecar=sidecar)
    joined = counters.with_ncu(joined, ncu, choices)
    grouped = rules.read_text(encoding="utf-8") if rules else ""
    recordings = [path for facts in joined.report.facts for path in facts.recordings]
    known = store.identity((*reports, *recordings), ncu=ncu, whole=verify)
    run = store.find(db, known, grouped)
    if run:
        click.echo(f"already imported as run {run.id} of {db}, on {run.created}", err=True)
    with doing(f"storing in {db}"):
        number = run.id if run else store.save(joined, db, known, grouped)
    if name is not None:
        _call(db, number, name)
    if not quiet:
        show(joined)
        _worth(joined, number)
    next_one = "trace -o trace.json.gz" if _timed(joined) else "report --by rule"
    click.echo(f"run {number} of {db}; next: bridge report --by op | bridge {next_one}", err=True)


def _worth(joined: Joined, run: int) -> None:
    """Print what the capture is worth, unless nothing stands against it."""
    from bridge.render import quality

    line = quality.line(joined.quality, f"bridge quality --run {run}")
    if line:
        click.echo(line)


def _call(db: Path, run: int, name: str) -> None:
    """Give a run its name, and say whose that was."""
    from bridge import store

    had = store.named(db, run, name)
    if had:
        click.echo(f"{name} was run {had.id}; it is run {run} from now on", err=True)


def _timed(joined: Joined) -> bool:
    return all(facts.timeline for facts in joined.report.facts)


def show(joined: Joined) -> None:
    """Print the kernels of each op, and where every activity went."""
    from bridge.render import accounting, table, units

    by = "op-kernel" if len(joined.report.ranges) else "kernel"
    by = by if len(joined.report.activities) else "op"
    rows = joined.by(by)
    look = options.look()
    shown = table.for_terminal(joined.headings(by), rows.head(TOP), look)
    click.echo(shown, color=look.color)
    if len(rows) > TOP:
        click.echo(f"… and {len(rows) - TOP} more rows: bridge report --by {by}")
    if by == "op-kernel" and (moved := _moved(joined)):
        click.echo(f"and copies and fills, {units.time(moved)}: bridge report --by copy\n")
    click.echo(accounting.line(joined.totals, joined.op_count))


def _moved(joined: Joined) -> int:
    """Return the time of copies and fills in ns, which no table of kernels has."""
    from importers import frames

    kinds = frames.is_kind(joined.report.activities, frames.COPY, frames.FILL)
    return int(joined.attributed.duration[kinds].sum())
