"""Listing, finding and removing runs, and clearing what an import that died left behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from bridge.store.tables import MEASURED, SUMMARIES, StoreError, alone, opened
from importers.frames import FRAMES

# -- Listing, finding and removing runs, and clearing what an import that died left behind


OTHERS = ("names", "extents", "reports", "aggregates")
LISTS = ("source", "ncu", "tables")  # of names, as JSON


@dataclass(frozen=True)
class Run:
    """One import: its number, when it was made, of what, its headline figures in ns, its rules, its name or None.

    ``ncu`` are the reports of Nsight Compute that were matched to ``source``; ``quality`` is the score of the capture,
    None if that was not kept. ``tables`` are those that a run of aggregates has; such a run has no rows.
    """

    id: int
    created: str
    source: tuple[str, ...]
    activities: int
    gpu_ns: int
    attributed_ns: int
    ops: int
    identity: str
    rules: str
    name: str | None
    ncu: tuple[str, ...]
    quality: int | None
    tables: tuple[str, ...]


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


def described(path: Path, run: int | str | None = None) -> Run:
    """Return one run by number or name, the newest by default; raises StoreError if it is not there."""
    with opened(path) as database:
        return chosen(database, path, run)


def named(path: Path, run: int, name: str) -> Run | None:
    """Call a run by a name, which no other has from then on; return the one that had it, None if none else did.

    Raises StoreError for a name that is none.
    """
    check_name(name)
    with alone(path), opened(path) as database:
        rows = [*database.table("runs").rows_where("name = ? AND id != ?", [name, run])]
        database.execute("UPDATE runs SET name = NULL WHERE name = ?", [name])
        database.execute("UPDATE runs SET name = ? WHERE id = ?", [name, run])
        return _run(rows[0]) if rows else None


def check_name(name: str) -> None:
    """Raise StoreError for what cannot be the name of a run."""
    if not name.strip() or name.isdecimal():
        raise StoreError(f"{name!r} cannot name a run: a name is neither empty nor a number")


def chosen(database: Database, path: Path, run: int | str | None) -> Run:
    """Return a run by number or name, the newest without one; raises StoreError if there is none."""
    rows = [_run(row) for row in database.table("runs").rows_where(order_by="id desc")]
    if not rows:
        raise StoreError(f"{path}: no run in this store; 'bridge import REPORT' makes one")
    found = next((row for row in rows if run in (None, row.id, row.name or row.id)), None)
    if found is None:
        known = ", ".join(f"{r.id} ({r.name})" if r.name else str(r.id) for r in rows[::-1])
        raise StoreError(f"{path}: no run {run}; there are {known}")
    return found


def remove(path: Path, run: int | str) -> Run:
    """Take a run out and return what it was."""
    with alone(path), opened(path) as database:
        gone = chosen(database, path, run)
        database.execute("DELETE FROM runs WHERE id = ?", [gone.id])
        clean(database)
        database.conn.commit()
        database.vacuum()
        return gone


def clean(database: Database) -> None:
    """Delete all rows that belong to no run."""
    for table in (*FRAMES, *MEASURED, *OTHERS, *SUMMARIES.values()):
        database.execute(f"DELETE FROM [{table}] WHERE run NOT IN (SELECT id FROM runs)")


def _run(row: dict[str, object]) -> Run:
    fields = {name: row[name] for name in Run.__dataclass_fields__ if name not in LISTS}
    lists = {name: tuple(json.loads(str(row[name] or "[]"))) for name in LISTS}
    return Run(**lists, **fields)  # type: ignore[arg-type]
