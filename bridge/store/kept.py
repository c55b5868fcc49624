"""What an import says of a run, read from the store without a row of any report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from bridge.analyze.views import VIEWS, heading, labels_of
from bridge.store.runs import described
from bridge.store.tables import SUMMARIES, opened
from importers.report import NSIGHT_COMPUTE

if TYPE_CHECKING:
    from bridge.analyze.totals import Totals


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
