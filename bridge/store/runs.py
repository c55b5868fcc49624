"""Lists, finds, names, labels and removes runs, and deletes rows of imports that did not finish."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any, NamedTuple

from sqlite_utils import Database

from bridge.importers.frames import FRAMES
from bridge.importers.records import record
from bridge.knowledge.suggestions import unknown_name
from bridge.store.tables import (
    MEASURED,
    SUMMARIES,
    VERSION,
    StoreError,
    damaged,
    exclusive_writer,
    open_store,
)

LOG = logging.getLogger("bridge.store")

# -- Runs


OTHERS = ("names", "extents", "reports", "aggregates")
TABLES = (*FRAMES, *MEASURED, *OTHERS, *SUMMARIES.values())  # whose rows belong to a run
LISTS = ("source", "ncu", "tables")  # of names, as JSON
FIELDS = {  # types of the other columns; those that are not named are integers
    **dict.fromkeys(("created", "identity", "rules"), str),
    **dict.fromkeys(("name", "label"), str | None),
    "quality": int | None,
}
Row = dict[str, Any]


@record
class Run:
    """One import: its number, time, sources, headline figures in ns, rules, name and label.

    ``ncu`` are reports of Nsight Compute that were matched to ``source``; ``quality`` is the score
    of the capture, None if it was not stored. ``tables`` are those of a run of aggregates, which
    has no rows.
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
    label: str | None
    ncu: tuple[str, ...]
    quality: int | None
    tables: tuple[str, ...]


def list_runs(path: Path) -> list[Run]:
    """Return all runs, the newest last."""
    with open_store(path) as database:
        rows = [
            *database.table("runs").rows_where(order_by="id")
        ]  # a query half read keeps its lock
        return [_run(row, path) for row in rows]


class HostTime(NamedTuple):
    """The ops of a run without work on a GPU, and the CPU time of them all in ns."""

    ops: int
    cpu_ns: int


def host_times(path: Path) -> dict[int, HostTime]:
    """Return the ops and their CPU time of each run without activities that has ops."""
    sql = (
        "SELECT run, count(*), sum(cpu_self_ns) FROM op_summary"
        " WHERE run IN (SELECT id FROM runs WHERE activities = 0) GROUP BY run"
    )
    with open_store(path) as database:
        rows = database.execute(sql).fetchall()
    return {run: HostTime(ops, int(cpu_ns or 0)) for run, ops, cpu_ns in rows}


def run_numbers(path: Path) -> list[int]:
    """Return the numbers of all runs, the newest last."""
    with open_store(path) as database:
        return [n for (n,) in database.execute("SELECT id FROM runs ORDER BY id").fetchall()]


def find_run(path: Path, identity: str, rules: str = "") -> Run | None:
    """Return the run of reports with this identity and these rules, None if there is none."""
    if not path.exists():
        return None
    with open_store(path) as database:
        rows = [*database.table("runs").rows_where("identity = ? AND rules = ?", [identity, rules])]
        return _run(rows[0], path) if rows else None


def get_run(path: Path, run: int | str | None = None) -> Run:
    """Return a run by number or name, by default the newest. Raises StoreError if there is none."""
    with open_store(path) as database:
        return get_row(database, path, run)


def name_run(path: Path, run: int, name: str) -> Run | None:
    """Give a run a name, which no other run keeps; return the run that had it, None if no other had it.

    Raises StoreError for a text that is not a name.
    """
    check_name(name)
    with exclusive_writer(path), open_store(path) as database:
        rows = [*database.table("runs").rows_where("name = ? AND id != ?", [name, run])]
        database.execute("UPDATE runs SET name = NULL WHERE name = ?", [name])
        database.execute("UPDATE runs SET name = ? WHERE id = ?", [name, run])
        return _run(rows[0], path) if rows else None


def check_name(name: str) -> None:
    """Raise StoreError for a text that cannot be the name of a run."""
    if not name.strip() or name.isdecimal():
        raise StoreError(f"{name!r} cannot name a run: a name is neither empty nor a number")


def label_run(path: Path, run: int, label: str) -> None:
    """Give a run a label, which other runs may have too. Raises StoreError for a text that is no label."""
    check_label(label)
    with exclusive_writer(path), open_store(path) as database:
        database.execute("UPDATE runs SET label = ? WHERE id = ?", [label, run])


def check_label(label: str) -> None:
    """Raise StoreError for a text that cannot be the label of a run."""
    if not label.strip() or not label.isprintable():
        raise StoreError(f"{label!r} cannot label a run: a label is one line that is not empty")


def get_row(database: Database, path: Path, run: int | str | None) -> Run:
    """Return a run by number or name, by default the newest. Raises StoreError if there is none."""
    return _run(_row(database, path, run), path)


def _row(database: Database, path: Path, run: int | str | None) -> Row:
    rows = list(database.table("runs").rows_where(order_by="id desc"))
    if not rows:
        raise StoreError(f"{path}: no run in this store; 'bridge import REPORT' makes one")
    match = next((row for row in rows if run in (None, row.get("id"), row.get("name"))), None)
    if match is None:
        known = [
            str(name) for row in rows[::-1] for name in (row.get("name"), row.get("id")) if name
        ]
        raise StoreError(f"{path}: {unknown_name('run', run, known, 'bridge runs list')}")
    LOG.debug("%s: run %s of %d, schema %d", path, match["id"], len(rows), VERSION)
    return match


def remove_run(path: Path, run: int | str) -> tuple[int, tuple[str, ...]]:
    """Delete a run, which may be damaged; return its number and its sources as far as they are known."""
    with exclusive_writer(path), open_store(path) as database:
        row = _row(database, path, run)
        database.execute("DELETE FROM runs WHERE id = ?", [row["id"]])
        delete_orphans(database)
        database.conn.commit()
        database.vacuum()
    try:
        return row["id"], _run(row, path).source
    except StoreError:
        return row["id"], ()


def delete_orphans(database: Database) -> None:
    """Delete all rows that belong to no run."""
    for table in TABLES:
        database.execute(f"DELETE FROM [{table}] WHERE run NOT IN (SELECT id FROM runs)")


def delete_unfinished(database: Database) -> None:
    """Delete the rows of an import that did not finish: they are the last of their tables."""
    known = set(database.execute("SELECT id FROM runs").fetchall())
    sql = "SELECT run FROM [{}] ORDER BY rowid DESC LIMIT 1"
    if any(not known.issuperset(database.execute(sql.format(t)).fetchall()) for t in TABLES):
        delete_orphans(database)


def _run(row: Row, path: Path) -> Run:
    if missing := [name for name in Run.__dataclass_fields__ if name not in row]:
        raise damaged(path, row.get("id", 0), f"runs have no column {', '.join(missing)}")
    fields = {name: row[name] for name in Run.__dataclass_fields__ if name not in LISTS}
    lists = {name: _texts(row[name]) for name in LISTS}
    wrong = [name for name, texts in lists.items() if texts is None]
    wrong += ["source"] if lists["source"] == () else []
    wrong += [
        name for name, value in fields.items() if not isinstance(value, FIELDS.get(name, int))
    ]
    if wrong:
        raise damaged(path, row["id"], f"{', '.join(wrong)} in its row of runs")
    return Run(**lists, **fields)  # type: ignore[arg-type]  # both are checked above


def _texts(stored: object) -> tuple[str, ...] | None:
    """Return a list of texts that is stored as JSON; None for anything else."""
    try:
        texts = json.loads(str(stored or "[]"))
    except ValueError:
        return None
    is_list = isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    return tuple(texts) if is_list else None
