"""Runs of aggregates, and the common tables of other runs: read without a row of any report.

The invariant: the tables of each report are stored separately, as workers sent them, so that they
can be merged again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from bridge.analyze.checks.summary import Summary
from bridge.analyze.core.catalog.lookup import column_meant, columns_of, labels_of, layout, nothing
from bridge.analyze.core.session_cycles import ActiveCycles
from bridge.analyze.core.table import Table
from bridge.analyze.core.totals import Totals, add_totals
from bridge.analyze.run.gpu_use import Use
from bridge.analyze.tables.request import TableRequest
from bridge.importers.capture import NSIGHT_COMPUTE
from bridge.importers.records import record
from bridge.knowledge.package import VERSION
from bridge.scale.aggregates import Aggregates
from bridge.scale.combined import CombinedReport, combine
from bridge.scale.merging import Part, PartialTable, unpacked
from bridge.store.checksums import check_small_rows, refusing_damage, seal
from bridge.store.loading import facts_of
from bridge.store.runs import delete_unfinished, get_row
from bridge.store.saving import facts_row, insert_tables, next_run, run_row, save_once, summaries
from bridge.store.tables import SUMMARIES, open_store

# -- Runs whose common tables are stored: read without a row of the run


@record
class StoredReport:
    """The accounting and the tables (`SUMMARIES`) of a stored run: a source of tables without its rows.

    ``worth`` is the line on the quality of the capture, "" if there is nothing to say; ``warnings``
    are those of the files. ``notes`` are what commands print with a table, the `defects` and the
    `cycles` of the report; None for a run of another version, whose tables may have other columns.
    """

    source: tuple[str, ...]
    totals: Totals
    op_count: int
    summary: Summary
    worth: str
    warnings: tuple[str, ...]
    notes: Mapping[str, Any] | None
    tables: Mapping[str, Table]

    @property
    def ranges(self) -> int:
        return self.summary.ranges

    @property
    def graphs(self) -> Totals:
        return self.summary.graphs or add_totals([])

    @property
    def use(self) -> Use:
        return self.summary.use

    @property
    def busy(self) -> Use:
        return replace(self.use, idle=())

    @property
    def began(self) -> int:
        """0, as none of the tables holds times."""
        return 0

    @property
    def rank_warnings(self) -> list[str]:
        """No warning: none of the tables has ranks."""
        return []

    @property
    def defects(self) -> tuple[str, ...]:
        """A line for each defect of the report, as `bridge.Report.warnings`."""
        return tuple((self.notes or {}).get("warnings", ()))

    @property
    def cycles(self) -> ActiveCycles | None:
        values = (self.notes or {}).get("cycles")
        return ActiveCycles(**values) if values else None

    @property
    def members(self) -> None:
        """None: no table of ranks is stored."""

    def fitting(self, request: TableRequest) -> TableRequest:
        """Return the request, or that for kernels or copies, as `TableRequest.fitting` does."""
        if self.notes is None:  # of another version, whose tables answer nothing
            return request
        return request.fitting(
            ranges=self.ranges,
            activities=self.totals["activities"],
            kernels=len(self.tables["kernel"]),
        )

    def answers(self, request: TableRequest) -> bool:
        """Return whether a stored table is the requested one, in its columns and in what it counts."""
        stored = self.tables.get(request.by)
        if self.notes is None or stored is None or not len(stored):  # no rows, no types of columns
            return False
        columns_are_stored = all(column_meant(name, [*stored.columns]) for name in request.also)
        return columns_are_stored and request == TableRequest(request.by, also=request.also)

    def table(self, request: TableRequest) -> Table:
        """Return the table of a request that is one of those that this report `answers`."""
        return self.tables[request.by]

    def layout(self, by: str) -> str:
        return layout(by, activities=self.totals["activities"])

    def nothing(self, by: str) -> str:
        return nothing(by, activities=self.totals["activities"], ranges=self.ranges)


def load_stored_report(path: Path, run: int | str | None) -> StoredReport | None:
    """Return the stored tables of a run; None for a run without a timeline or of an older version.

    Raises StoreError if there is no such run.
    """
    with open_store(path) as database:
        stored_run = get_row(database, path, run)
        with refusing_damage(path, stored_run.id):
            check_small_rows(database, path, stored_run.id)
            row = database.table("runs").get(stored_run.id)
            rows = database.table("reports").rows_where(
                "run = ?", [stored_run.id], order_by="report"
            )
            reports = [*rows]
            timed = all(report["product"] != NSIGHT_COMPUTE for report in reports)
            is_complete = row["totals"] is not None and row["summary"] is not None
            if not is_complete or stored_run.tables or not timed:
                return None
            summary = json.loads(row["summary"])
            is_current = row["checksum"] is not None and row["version"] == VERSION
            tables = {view: _table(database.conn, view, stored_run.id) for view in SUMMARIES}
            return StoredReport(
                source=stored_run.source,
                totals=json.loads(row["totals"]),
                op_count=stored_run.ops,
                summary=Summary.from_dict(summary),
                worth=row["worth"] or "",
                warnings=tuple(
                    line for report in reports for line in json.loads(report["warnings"])
                ),
                notes=summary.get("notes") if is_current else None,
                tables=tables,
            )


def _table(connection: Any, view: str, run: int) -> Table:
    """Return the rows of a table of a run, in the order in which they were written."""
    sql = f"SELECT * FROM [{SUMMARIES[view]}] WHERE run = ? ORDER BY rowid"
    cursor = connection.execute(sql, [run])
    names = [name for name, *_ in cursor.description]
    columns = [*zip(*cursor, strict=True)] or [()] * len(names)
    table = Table(dict(zip(names, columns, strict=True)))
    order = dict.fromkeys((*labels_of(view), *columns_of(view).default))
    return table[[c for c in order if c in table]]


# -- Runs of aggregates


def save_aggregates(
    report: CombinedReport, path: Path, identity: str, tables: Iterable[str], rules: str = ""
) -> int:
    """Write a run of aggregates and return its number, or the number of an equal run.

    Raises OutputError if the store cannot be written; the store does not change then.
    """
    names = list(tables)
    return save_once(
        path,
        identity,
        rules,
        lambda: _saved(report, path, identity=identity, tables=names, rules=rules),
    )


def load_aggregates(path: Path, run: int | str | None = None) -> CombinedReport | None:
    """Read a run of aggregates by number or name, by default the newest; None if that run has rows.

    Raises StoreError if there is no such run, or its data is damaged.
    """
    with open_store(path) as database:
        stored_run = get_row(database, path, run)
        if not stored_run.tables:
            return None
        with refusing_damage(path, stored_run.id):
            check_small_rows(database, path, stored_run.id)
            rows = database.table("reports").rows_where(
                "run = ?", [stored_run.id], order_by="report"
            )
            parts = [_part(row) for row in rows]
            tables = StoredTables(path, stored_run.id)
            return combine(parts, f"run {stored_run.id} of {path}", tables=tables)


@record
class StoredTables:
    """The tables of the reports of a run, read when they are asked for."""

    path: Path
    run: int

    def names(self) -> frozenset[str]:
        sql = (
            f"SELECT [table] FROM {OF_REPORTS} GROUP BY [table]"
            " HAVING count(*) = (SELECT count(*) FROM reports WHERE run = :run)"
        )
        return frozenset(name for (name,) in self._rows(sql))

    def each(self, name: str) -> Iterator[PartialTable]:
        sql = f"SELECT data FROM {OF_REPORTS} AND [table] = :of ORDER BY report"
        with refusing_damage(self.path, self.run):
            for (data,) in self._rows(sql, name):
                yield unpacked(data)

    def of(self, place: int) -> Part:
        sql = "SELECT [table], data FROM aggregates WHERE run = :run AND report = :of"
        return dict(self._rows(sql, place))

    def _rows(self, sql: str, of: str | int = "") -> Iterator[tuple[Any, ...]]:
        with open_store(self.path) as database, refusing_damage(self.path, self.run):
            yield from database.execute(sql, {"run": self.run, "of": of})


OF_REPORTS = "aggregates JOIN reports USING (run, report) WHERE run = :run"


def _saved(report: CombinedReport, path: Path, identity: str, tables: list[str], rules: str) -> int:
    with open_store(path) as database:
        delete_unfinished(database)
        run = next_run(database)
        database.table("reports").insert_all(_report(part, run) for part in report.parts)
        with database.conn as connection:  # a transaction, which the disk takes a while for
            connection.executemany(
                "INSERT INTO aggregates (run, report, [table], data) VALUES (?, ?, ?, ?)",
                (
                    (run, part.place, name, data)
                    for part in report.parts
                    for name, data in report.tables.of(part.place).items()
                ),
            )
        insert_tables(database, summaries(report.table, run))
        row = run_row(
            run,
            identity,
            rules=rules,
            source=report.source,
            totals=report.totals,
            ops=report.op_count,
        )
        database.table("runs").insert({**row, "tables": json.dumps(tables)})
        seal(database, run)
    return run


def _report(part: Aggregates, run: int) -> dict[str, Any]:
    values = {
        "totals": part.totals,
        "wholes": part.wholes,
        "ranges": part.ranges,
        "ops": sorted(part.ops),
        "warnings": part.warnings,
        "known_by": part.known_by,
        "homes": part.homes,
        "use": part.use.as_dict() if part.use else None,
        "graphs": part.graphs,
    }
    row = {"run": run, "report": part.place, "source": part.source, **facts_row(part.facts)}
    return {**row, "aggregates": json.dumps(values)}


def _part(row: dict[str, Any]) -> Aggregates:
    values = json.loads(row["aggregates"])
    return Aggregates(
        place=row["report"],
        source=row["source"],
        facts=facts_of(row),
        totals=values["totals"],
        wholes=values["wholes"],
        ranges=values["ranges"],
        ops=frozenset(values["ops"]),
        warnings=tuple(values["warnings"]),
        tables={},
        known_by=values["known_by"],
        homes=tuple((rank, pid, known_by) for rank, pid, known_by in values.get("homes", [])),
        use=Use.from_dict(values["use"]) if values.get("use") else None,
        graphs=values.get("graphs"),
    )
