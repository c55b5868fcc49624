"""``bridge import``: read, join, store, and show the breakdown."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import click

from bridge.cli import counters, many, options, rank_options
from bridge.cli.import_many import import_many
from bridge.cli.progress import doing

if TYPE_CHECKING:
    from bridge.fleet.together import Together
    from bridge.joined import Joined

TOP = 15


@click.command("import")
@options.store
@options.rules_option
@options.sidecar
@options.rank_from
@counters.ncu
@click.option(
    "--verify", is_flag=True, help="Know a report by a hash of every byte, not of samples."
)
@click.option("--name", help="Call the run by this name, as bridge diff takes it.")
@click.option("--quiet", "-q", is_flag=True, help="Print no table.")
@many.workers
@click.option(
    "--keep",
    multiple=True,
    metavar="TABLE",
    help="With --workers: keep this table too, as op,step,rank. May be repeated.",
)
@click.argument("reports", nargs=-1, required=True, type=options.FILE)
def import_(  # noqa: PLR0913, PLR0917 - what it takes
    reports: tuple[Path, ...],
    db: Path,
    rules: Path | None,
    sidecar: tuple[Path, ...],
    rank_from: str | None,
    ncu: tuple[Path, ...],
    verify: bool,
    name: str | None,
    quiet: bool,
    keep: tuple[str, ...],
    **where: Any,
) -> None:
    """Join REPORTS (.sqlite, .nsys-rep, .ncu-rep, .jsonl), keep them as one run of the store, print the breakdown.

    With --workers or --scheduler a run of aggregates: figures of all reports together, and no rows.
    """
    from bridge import store

    if name is not None:
        store.check_name(name)
    workers = many.Where(**where, quiet=quiet)
    reports = many.expanded(reports)
    found: Joined | Together
    if workers.asked:
        if ncu:
            raise click.UsageError("--ncu needs the rows of a report: no --workers with it")
        number, found = import_many(
            workers, reports, db, rules, keep, rank_from, sidecar=sidecar, whole=verify
        )
    else:
        if keep:
            raise click.UsageError("--keep goes with --workers or --scheduler: else rows are kept")
        number, found = _import(reports, db, rules, sidecar, ncu, verify, rank_from)
    if name is not None:
        _call(db, number, name)
    if not quiet:
        show(found)
        _worth(found, number)
    _said(found, number, db)


def _import(  # noqa: PLR0913, PLR0917 - the same
    reports: tuple[Path, ...],
    db: Path,
    rules: Path | None,
    sidecar: tuple[Path, ...],
    ncu: tuple[Path, ...],
    verify: bool,
    rank_from: str | None,
) -> tuple[int, Joined]:
    """Store reports with all their rows; return the run's number and what it is of."""
    from bridge import store
    from bridge.join.choices import Choices

    choices = Choices(options.read_rules(rules), rank_from=rank_from)
    joined = options.joined(reports, db, None, choices, sidecar=sidecar)
    joined = counters.with_ncu(joined, ncu, choices)
    grouped = rules.read_text(encoding="utf-8") if rules else ""
    recordings = [path for facts in joined.report.facts for path in facts.recordings]
    known = store.identity((*reports, *recordings), ncu=ncu, whole=verify)
    known = rank_options.identity(known, rank_from)
    run = store.find(db, known, grouped)
    if run:
        click.echo(f"already imported as run {run.id} of {db}, on {run.created}", err=True)
        return run.id, joined
    with doing(f"storing in {db}"):
        return store.save(joined, db, known, grouped), joined


def _said(found: Joined | Together, number: int, db: Path) -> None:
    """Say which run it is, and what to ask of it."""
    if _is_joined(found):
        next_one = "bridge trace -o trace.json.gz" if _timed(found) else "bridge report --by rule"
    else:
        next_one = "bridge report --by report,op"
    click.echo(f"run {number} of {db}; next: bridge report --by op | {next_one}", err=True)


def _is_joined(found: Joined | Together) -> TypeGuard[Joined]:
    from bridge.joined import Joined

    return isinstance(found, Joined)


def _worth(joined: Joined | Together, run: int) -> None:
    """Print what the capture is worth, unless nothing stands against it; of aggregates nothing is known."""
    from bridge.render import quality

    if not _is_joined(joined):
        return
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


def show(found: Joined | Together) -> None:
    """Print the kernels of each op, and where every activity went."""
    from bridge.fleet.together import Together
    from bridge.render import accounting, table, units

    ranges = found.ranges if isinstance(found, Together) else len(found.report.ranges)
    by = "op-kernel" if ranges else "kernel"
    by = by if found.totals["activities"] else "op"
    rows = found.by(by)
    look = options.look()
    shown = table.for_terminal(found.headings(by), rows.head(TOP), look)
    click.echo(shown, color=look.color)
    if len(rows) > TOP:
        click.echo(f"… and {len(rows) - TOP} more rows: bridge report --by {by}")
    if by == "op-kernel" and (moved := int(found.by("copy")["total_ns"].sum())):
        click.echo(f"and copies and fills, {units.time(moved)}: bridge report --by copy\n")
    click.echo(accounting.line(found.totals, found.op_count))
