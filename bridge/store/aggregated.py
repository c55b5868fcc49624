"""A run of aggregates: what workers made of each report of many, without a row of any.

The invariant: each report's tables are kept apart, as they came, so that reports can be put together anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sqlite_utils import Database

from bridge.scale.aggregates import Aggregates
from bridge.scale.together import Together, assembled
from bridge.store.loading import facts_of
from bridge.store.runs import Run, chosen, clean
from bridge.store.saving import facts_row, next_run, once, run_row, summaries
from bridge.store.tables import StoreError, opened


def save_aggregates(
    found: Together, path: Path, identity: str, tables: Iterable[str], rules: str = ""
) -> int:
    """Write a run of aggregates and return its number; that of the same one, if it is there.

    Raises OutputError if the store cannot be written; then it is as it was.
    """
    names = list(tables)
    return once(path, identity, rules, lambda: _saved(found, path, identity, names, rules))


def load_aggregates(path: Path, run: int | str | None = None) -> Together | None:
    """Read a run of aggregates by number or name, the newest by default; None if that run has rows.

    Raises StoreError if there is no such run, or what it holds makes no sense.
    """
    with opened(path) as database:
        found = chosen(database, path, run)
        if not found.tables:
            return None
        rows = database.table("reports").rows_where("run = ?", [found.id], order_by="report")
        try:
            parts = [_part(row, database, found) for row in rows]
            return assembled(parts, f"run {found.id} of {path}")
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path}: run {found.id} is damaged; import it again") from error


def _saved(found: Together, path: Path, identity: str, tables: list[str], rules: str) -> int:
    with opened(path) as database:
        clean(database)
        run = next_run(database)
        for part in found.parts:  # a turn per report
            database.table("reports").insert(_report(part, run))
            database.table("aggregates").insert_all(
                {"run": run, "report": part.place, "table": name, "data": data}
                for name, data in part.tables.items()
            )
        for table, rows in summaries(found.by, run).items():
            database.table(table).insert_all(rows)
        row = run_row(run, identity, rules, found.source, found.totals, found.op_count)
        database.table("runs").insert({**row, "tables": json.dumps(tables)})
    return run


def _report(part: Aggregates, run: int) -> dict[str, Any]:
    said = {
        "totals": part.totals,
        "wholes": part.wholes,
        "ranges": part.ranges,
        "ops": sorted(part.ops),
        "warnings": part.warnings,
        "known_by": part.known_by,
        "homes": part.homes,
    }
    row = {"run": run, "report": part.place, "source": part.source, **facts_row(part.facts)}
    return {**row, "aggregates": json.dumps(said)}


def _part(row: dict[str, Any], database: Database, run: Run) -> Aggregates:
    said = json.loads(row["aggregates"])
    of = "run = ? AND report = ?"
    tables = database.table("aggregates").rows_where(of, [run.id, row["report"]])
    return Aggregates(
        row["report"],
        row["source"],
        facts_of(row),
        said["totals"],
        said["wholes"],
        said["ranges"],
        frozenset(said["ops"]),
        tuple(said["warnings"]),
        {one["table"]: one["data"] for one in tables},
        said["known_by"],
        homes=tuple((rank, pid, known_by) for rank, pid, known_by in said.get("homes", [])),
    )
