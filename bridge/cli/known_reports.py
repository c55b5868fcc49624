"""Reports that are in the store already are told by their bytes, and shown from there, unread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.cli import rank_options

if TYPE_CHECKING:
    from bridge.scale.combined import Together
    from bridge.store import Kept, Run


def kept(
    reports: Sequence[Path],
    db: Path,
    rules: str,
    ncu: Sequence[Path],
    *,
    whole: bool,
    ranks: str | None,
) -> tuple[Run, Kept] | None:
    """Return the run of these reports and what was kept of it; None if that has to be found out by reading them."""
    from bridge import store

    def identity() -> str:
        return store.identity(reports, ncu=ncu, whole=whole)

    run = _run([*reports, *ncu], db, rules, ranks, identity)
    found = store.kept(db, run.id) if run and not run.tables else None
    return (run, found) if run and found else None


def aggregated(
    reports: Sequence[Path],
    db: Path,
    rules: str,
    tables: Sequence[str],
    *,
    whole: bool,
    ranks: str | None,
) -> tuple[Run, Together] | None:
    """Return the same of a run of aggregates."""
    from bridge import store

    def identity() -> str:
        return store.known_by([store.identity([path], whole=whole) for path in reports], tables)

    run = _run(reports, db, rules, ranks, identity)
    found = store.load_aggregates(db, run.id) if run else None
    return (run, found) if run and found else None


def said(run: Run, db: Path, reports: Sequence[Path]) -> None:
    """Say that there is nothing to import; and if names or order, by which ranks may be known, are others there."""
    names = tuple(path.name for path in reports)
    there = "" if names == run.source else f", where they are called {', '.join(run.source)}"
    click.echo(f"already imported as run {run.id} of {db}, on {run.created}{there}", err=True)


def _run(
    paths: Sequence[Path], db: Path, rules: str, ranks: str | None, identity: Callable[[], str]
) -> Run | None:
    """Return the run of some files; None where recordings may say more of them, or one cannot be read."""
    from bridge import store
    from importers.recording.sidecar import any_of

    if not db.exists() or not all(path.is_file() for path in paths) or any(map(any_of, paths)):
        return None
    try:
        known = identity()
    except OSError:
        return None  # whoever reads it says what is wrong
    return store.find(db, rank_options.identity(known, ranks), rules)
