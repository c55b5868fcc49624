"""A run of aggregates: what workers made of each report of many, without a row of any.

The invariant: each report's tables are kept apart, as they came, so that reports can be put together anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from sqlite_utils import Database

from bridge.analyze.tables.views import VIEWS, heading, labels_of
from bridge.scale.aggregates import Aggregates
from bridge.scale.combined import Together, assembled
from bridge.store.loading import facts_of
from bridge.store.runs import Run, chosen, clean, described
from bridge.store.saving import facts_row, next_run, once, run_row, summaries
from bridge.store.tables import SUMMARIES, StoreError, opened
from importers.report import NSIGHT_COMPUTE

if TYPE_CHECKING:
    from bridge.analyze.totals import Totals


# -- What an import says of a run, read from the store without a row of any report


@dataclass(frozen=True)
class Kept:
    """The accounting of a run, its tables of `SUMMARIES`, and what its capture is worth, '' where nothing is wrong.

    ``ranges`` is how many ranges it has; ``warnings`` are those of its files, a line each.
    """

    totals: Totals
    op_count: int
    ranges: int
    worth: str
    warnings: tuple[str, ...]
    tables: Mapping[str, pd.DataFrame]

    def by(self, view: str) -> pd.DataFrame:
        """Return one of the tables, as it was."""
        return self.tables[view]

    def headings(self, view: str) -> str:
        """Return which headings a table gets for people."""
        return heading(view, activities=self.totals["activities"])


def kept(path: Path, run: int) -> Kept | None:
    """Read what was kept of a run of a timeline; None of another, and of one made before that was kept.

    Raises StoreError if it is not there.
    """
    found = described(path, run)
    with opened(path) as database:
        row = database.table("runs").get(found.id)
        reports = [*database.table("reports").rows_where("run = ?", [run], order_by="report")]
        timed = all(report["product"] != NSIGHT_COMPUTE for report in reports)
        if row["totals"] is None or found.tables or not timed:
            return None
        tables = {view: _table(database.conn, view, run) for view in SUMMARIES}
        extent = database.table("extents").get((run, "ranges"))
    return Kept(
        json.loads(row["totals"]),
        found.ops,
        extent["last"] - extent["first"] + 1,
        row["worth"] or "",
        tuple(line for report in reports for line in json.loads(report["warnings"])),
        tables,
    )


def _table(connection: Any, view: str, run: int) -> pd.DataFrame:
    """Return a run's rows of a table, in the order that they were written in, with the columns that it comes with."""
    sql = f"SELECT * FROM [{SUMMARIES[view]}] WHERE run = ? ORDER BY rowid"
    found = pd.read_sql_query(sql, connection, params=[run])
    columns = (*labels_of(view), *VIEWS[view].columns)
    return found[[c for c in columns if c in found.columns]]


# -- A run of aggregates: what workers made of each report of many, without a row of any


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
