"""Listing, finding and removing runs, and clearing what an import that died left behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from bridge.store.tables import SUMMARIES, StoreError, alone, opened
from importers.frames import FRAMES


@dataclass(frozen=True)
class Run:
    """One import: its number, when it was made, of what, its headline figures in ns, its rules."""

    id: int
    created: str
    source: tuple[str, ...]
    activities: int
    gpu_ns: int
    attributed_ns: int
    ops: int
    identity: str
    rules: str


def listed(path: Path) -> list[Run]:
    """Return every run, the newest last."""
    with opened(path) as database:
        return [_run(row) for row in database.table("runs").rows_where(order_by="id")]


def find(path: Path, identity: str, rules: str = "") -> Run | None:
    """Return the run of reports with these contents under these rules, if there is one."""
    if not path.exists():
        return None
    with opened(path) as database:
        rows = database.table("runs").rows_where("identity = ? AND rules = ?", [identity, rules])
        return next((_run(row) for row in rows), None)


def described(path: Path, run: int | None = None) -> Run:
    """Return one run, the newest by default; raises StoreError if it is not there."""
    with opened(path) as database:
        return chosen(database, path, run)


def chosen(database: Database, path: Path, run: int | None) -> Run:
    """Return a run by number, the newest without one; raises StoreError if there is none."""
    rows = [_run(row) for row in database.table("runs").rows_where(order_by="id desc")]
    if not rows:
        raise StoreError(f"{path}: no run in this store; 'bridge import REPORT' makes one")
    found = next((row for row in rows if run in (None, row.id)), None)
    if found is None:
        known = ", ".join(str(row.id) for row in rows[::-1])
        raise StoreError(f"{path}: no run {run}; there are {known}")
    return found


def remove(path: Path, run: int) -> Run:
    """Take a run out and return what it was."""
    with alone(path), opened(path) as database:
        gone = chosen(database, path, run)
        database.execute("DELETE FROM runs WHERE id = ?", [run])
        clean(database)
        database.conn.commit()
        database.vacuum()
        return gone


def clean(database: Database) -> None:
    """Delete all rows that belong to no run."""
    for table in (*FRAMES, "names", "extents", "reports", *SUMMARIES.values()):
        database.execute(f"DELETE FROM [{table}] WHERE run NOT IN (SELECT id FROM runs)")


def _run(row: dict[str, object]) -> Run:
    fields = {name: row[name] for name in Run.__dataclass_fields__ if name != "source"}
    return Run(source=tuple(json.loads(str(row["source"]))), **fields)  # type: ignore[arg-type]
