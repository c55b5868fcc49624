"""Listing, finding and removing runs, and clearing what an import that died left behind."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from bridge.store.tables import MEASURED, SUMMARIES, StoreError, alone, opened
from importers.frames import FRAMES

# -- What a report is known by: its size and a hash of sampled pages, or of every byte


PAGE = 4096
SAMPLES = 256


OF_AGGREGATES = "aggregates:"  # before what such a run is known by, and a hash of its tables
OF_NCU = "ncu:"  # before what a file is known by that was matched to the others


def identity(paths: Sequence[Path], *, ncu: Sequence[Path] = (), whole: bool = False) -> str:
    """Return what the contents of these files are known by, whatever they are called.

    Of a large file 256 pages spread over it are read, of which the first and the last always; ``whole``
    reads everything. ``ncu`` are reports of Nsight Compute, whose order counts.
    """
    own = sorted(_of(path, whole=whole) for path in paths)
    return "+".join([*own, *(OF_NCU + _of(path, whole=whole) for path in ncu)])


def without_ncu(identity: str) -> str:
    """Return what a run is known by, whatever was matched to it."""
    return "+".join(part for part in identity.split("+") if not part.startswith(OF_NCU))


def known_by(parts: Iterable[str], tables: Iterable[str]) -> str:
    """Return what a run of these tables of reports is known by, given what each report is known by."""
    digest = hashlib.blake2b("\n".join(sorted(tables)).encode(), digest_size=8).hexdigest()
    return "+".join([f"{OF_AGGREGATES}{digest}", *sorted(parts)])


def _of(path: Path, *, whole: bool) -> str:
    size = path.stat().st_size
    digest = hashlib.blake2b(digest_size=16)
    last = max(0, size - PAGE)
    whole = whole or size <= SAMPLES * PAGE
    with path.open("rb") as file:
        if whole:
            while block := file.read(1 << 20):
                digest.update(block)
        else:
            for i in range(SAMPLES):
                file.seek(last * i // (SAMPLES - 1))
                digest.update(file.read(PAGE))
    return f"{'all' if whole else 'pages'}:{size}:{digest.hexdigest()}"


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
