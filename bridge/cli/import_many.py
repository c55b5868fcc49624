"""``bridge import`` in workers: many reports become one run of aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import known_reports, options, rank_options
from bridge.cli.progress import doing
from bridge.cli.worker_options import Where

if TYPE_CHECKING:
    from bridge.scale.combined import Together
    from bridge.scale.requests import Asked


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
    from bridge.join.choices import Choices

    tables = _tables(where, reports, keep)
    rank_options.check(rank_from, list(map(str, reports)))
    choices = Choices(options.read_rules(rules), rank_from=rank_from)
    grouped = rules.read_text(encoding="utf-8") if rules else ""
    names = [one.name for one in tables]
    if not more["sidecar"] and (
        there := known_reports.aggregated(
            reports, db, grouped, names, whole=bool(more["whole"]), ranks=rank_from
        )
    ):
        known_reports.said(there[0], db, reports)
        return there[0].id, there[1]
    found = where.together(reports, tables, choices, identify=True, **more)
    parts = [part.known_by for part in found.parts]
    left = len(reports) - len(
        parts
    )  # a run without some is another one than the run of those that it has
    identity = store.known_by([*parts, *([f"left-out:{left}"] if left else [])], names)
    identity = rank_options.identity(identity, rank_from)
    run = store.find(db, identity, grouped)
    if run:
        known_reports.said(run, db, reports)
        return run.id, found
    with doing(f"storing in {db}"):
        return store.save_aggregates(found, db, identity, names, grouped), found


def _tables(where: Where, reports: Sequence[Path], keep: Sequence[str]) -> tuple[Asked, ...]:
    """Return the tables that are kept: of reports that go in windows, those that windows tell."""
    from bridge.scale.requests import kept, key

    try:
        tables = kept(keep)
    except ValueError as error:
        raise _no_table(str(error)) from error
    if not where.larger(reports, tables):
        return tables
    from bridge.scale.windows.window import refusal, why_not, windowed_table

    of = {one.by: one for one in tables}
    for by in keep:
        if why := why_not(of[key(by)]):
            raise _no_table(f"{by}: {refusal(why)}")
    found = windowed_table(tables)
    left = sorted({one.by for one in tables} - {one.by for one in found})
    click.echo(f"larger than --memory: without the tables by {' '.join(left)}", err=True)
    return found


def _no_table(why: str) -> click.BadParameter:
    return click.BadParameter(why, param_hint="--keep")
