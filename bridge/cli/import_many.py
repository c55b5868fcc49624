"""``bridge import`` in workers: many reports become one run of aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import options, rank_options
from bridge.cli.many import Where
from bridge.cli.progress import doing

if TYPE_CHECKING:
    from bridge.fleet.together import Together


def import_many(
    where: Where,
    reports: Sequence[Path],
    db: Path,
    rules: Path | None,
    keep: Sequence[str],
    rank_from: str | None = None,
    **more: object,
) -> tuple[int, Together]:
    """Aggregate reports and store what comes back; return the run's number and what it is of."""
    from bridge import store
    from bridge.fleet.asked import kept
    from bridge.join.choices import Choices

    try:
        tables = kept(keep)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--keep") from error
    rank_options.check(rank_from, list(map(str, reports)))
    choices = Choices(options.read_rules(rules), rank_from=rank_from)
    found = where.together(reports, tables, choices, identify=True, **more)
    grouped = rules.read_text(encoding="utf-8") if rules else ""
    names = [one.name for one in tables]
    known = store.known_by([part.known_by for part in found.parts], names)
    known = rank_options.identity(known, rank_from)
    run = store.find(db, known, grouped)
    if run:
        click.echo(f"already imported as run {run.id} of {db}, on {run.created}", err=True)
        return run.id, found
    with doing(f"storing in {db}"):
        return store.save_aggregates(found, db, known, names, grouped), found
