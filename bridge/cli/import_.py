"""``bridge import``: read, join, store, and show the breakdown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from bridge.cli import known_reports, ncu_option, options, rank_options, worker_options
from bridge.cli.import_many import import_many
from bridge.cli.progress import doing

if TYPE_CHECKING:
    from bridge.join.choices import Choices
    from bridge.report import Joined
    from bridge.scale.combined import Together
    from bridge.store import Kept

TOP = 15
TRACE = "bridge trace -o trace.json.gz"


@dataclass(frozen=True)
class Asked:
    """What is to be imported, and how; ``whole``: known by every byte."""

    reports: tuple[Path, ...]
    db: Path
    rules: Path | None
    rank_from: str | None
    sidecar: tuple[Path, ...]
    ncu: tuple[Path, ...]
    whole: bool

    def choices(self) -> Choices:
        """Return what is chosen of the attribution; a usage error for rules that are none."""
        from bridge.join.choices import Choices

        return Choices(options.read_rules(self.rules), rank_from=self.rank_from)

    def grouped(self) -> str:
        """Return the text of the rules, which a run keeps."""
        return self.rules.read_text(encoding="utf-8") if self.rules else ""


class Imported(NamedTuple):
    """The run's number and what is shown of it; what to ask next; what the capture is worth, '' if nothing is wrong."""

    run: int
    found: Joined | Kept | Together
    next: str
    worth: str = ""


@click.command("import")
@options.store
@options.rules_option
@options.sidecar
@options.rank_from
@ncu_option.ncu
@click.option(
    "--verify", is_flag=True, help="Know a report by a hash of every byte, not of samples."
)
@click.option("--name", help="Call the run by this name, as bridge diff takes it.")
@click.option("--quiet", "-q", is_flag=True, help="Print no table.")
@worker_options.workers
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
    workers = worker_options.Where(**where, quiet=quiet)
    asked = Asked(worker_options.expanded(reports), db, rules, rank_from, sidecar, ncu, verify)
    workers = workers.within(asked.reports)
    imported = _in_workers(asked, workers, keep) if workers.asked else _whole(asked, keep)
    if name is not None:
        _call(db, imported.run, name)
    if not quiet:
        show(imported.found)
        if imported.worth:
            click.echo(f"{imported.worth} (bridge quality --run {imported.run})")
    click.echo(
        f"run {imported.run} of {db}; next: bridge report --by op | {imported.next}", err=True
    )


def _in_workers(asked: Asked, workers: worker_options.Where, keep: tuple[str, ...]) -> Imported:
    """Store what workers made of reports."""
    if asked.ncu:
        raise click.UsageError("--ncu needs the rows of a report: no --workers with it")
    number, together = import_many(
        workers, asked.reports, asked.db, asked.rules, keep, asked.rank_from,
        sidecar=asked.sidecar, whole=asked.whole,
    )  # fmt: skip
    return Imported(number, together, "bridge report --by report,op")


def _whole(asked: Asked, keep: tuple[str, ...]) -> Imported:
    """Store reports with all their rows, unless they are there."""
    if keep:
        raise click.UsageError("--keep goes with --workers or --scheduler: else rows are kept")
    choices, grouped = asked.choices(), asked.grouped()
    if not asked.sidecar:
        there = known_reports.kept(
            asked.reports, asked.db, grouped, asked.ncu, whole=asked.whole, ranks=asked.rank_from
        )
        if there:
            run, kept = there
            options.warn(kept.warnings)
            known_reports.said(run, asked.db, asked.reports)
            return Imported(run.id, kept, TRACE, kept.worth)
    return _read(asked, choices, grouped)


def _read(asked: Asked, choices: Choices, grouped: str) -> Imported:
    """Read reports and store them; those that only a recording beside them tells apart may be there."""
    from bridge import store
    from bridge.render import quality

    joined = options.joined(asked.reports, asked.db, None, choices, sidecar=asked.sidecar)
    joined = ncu_option.with_ncu(joined, asked.ncu, choices)
    recordings = [path for facts in joined.report.facts for path in facts.recordings]
    identity = store.identity((*asked.reports, *recordings), ncu=asked.ncu, whole=asked.whole)
    identity = rank_options.identity(identity, asked.rank_from)
    run, worth = store.find(asked.db, identity, grouped), quality.line(joined.quality)
    if run:
        known_reports.said(run, asked.db, asked.reports)
    with doing(f"storing in {asked.db}"):
        number = run.id if run else store.save(joined, asked.db, identity, grouped, worth)
    timed = all(facts.timeline for facts in joined.report.facts)
    return Imported(number, joined, TRACE if timed else "bridge report --by rule", worth)


def _call(db: Path, run: int, name: str) -> None:
    """Give a run its name, and say whose that was."""
    from bridge import store

    had = store.named(db, run, name)
    if had:
        click.echo(f"{name} was run {had.id}; it is run {run} from now on", err=True)


def show(found: Joined | Kept | Together) -> None:
    """Print the kernels of each op, and where every activity went."""
    from bridge.render import headings, table, units

    by = "op-kernel" if found.ranges else "kernel"
    by = by if found.totals["activities"] else "op"
    rows = found.by(by)
    look = options.look()
    shown = table.for_terminal(found.headings(by), rows.head(TOP), look)
    click.echo(shown, color=look.color)
    if len(rows) > TOP:
        click.echo(f"… and {len(rows) - TOP} more rows: bridge report --by {by}")
    if by == "op-kernel" and (moved := int(found.by("memcpy")["total_ns"].sum())):
        click.echo(f"and memcpys and memsets, {units.time(moved)}: bridge report --by memcpy\n")
    click.echo(headings.line(found.totals, found.op_count))
