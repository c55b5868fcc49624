"""An export of several processes split into one per process: a copy without the rows of the others."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

LOWER = 0xFFFFFF  # of a global thread id: the thread; above it is the process


def processes(path: Path) -> list[int]:
    """List the processes (as in globalPid) that did any work or called anything."""
    with closing(
        sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    ) as db:
        found = {
            row[0]
            for table, column in _owned(db)
            if table.startswith(("CUPTI_ACTIVITY", "NVTX_EVENTS"))
            for row in db.execute(f'SELECT DISTINCT {_process(column)} FROM "{table}"')
        }
    return sorted(found - {None})


def split(path: Path, folder: Path) -> list[Path]:
    """Write a report per process into a folder, and return them in the order of the processes."""
    parts = []
    for number, process in enumerate(processes(path)):
        part = folder / f"{path.stem}-{number}.sqlite"
        shutil.copyfile(path, part)
        with closing(sqlite3.connect(part)) as db:
            for table, column in _owned(db):
                db.execute(f'DELETE FROM "{table}" WHERE {_process(column)} IS NOT ?', (process,))
            db.commit()
            db.execute("VACUUM")
        parts.append(part)
    return parts


def _owned(db: sqlite3.Connection) -> list[tuple[str, str]]:
    """List the tables whose rows are of a process, and the column that says which."""
    tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = []
    for table in tables:
        columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")')]
        owner = next((c for c in ("globalPid", "globalTid") if c in columns), None)
        if owner:
            found.append((table, owner))
    return found


def _process(column: str) -> str:
    return f'"{column}" & ~{LOWER}'
