"""Several reports as one, made from their aggregates: the same tables and accounting as `bridge.Report`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Unpack

import numpy as np

from bridge import plugins
from bridge.analyze.checks.summary import LARGEST_OPS, OpTime, Summary, profilers
from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import dimensions_of, layout, nothing
from bridge.analyze.core.table import Table
from bridge.analyze.core.totals import Totals, add_totals
from bridge.analyze.run.gpu_use import Use
from bridge.analyze.run.ranks.members import duplicate_rank_warnings
from bridge.analyze.tables.build import arranged
from bridge.analyze.tables.request import TableOptions, TableRequest
from bridge.join.options import UnknownDomainError
from bridge.scale.aggregates import Aggregates
from bridge.scale.merging import (
    Part,
    PartialTable,
    Wholes,
    batches,
    merge_all,
    merge_tables,
    unpacked,
)
from bridge.scale.requests import (
    OF_ONE_REPORT,
    REPORT,
    check,
    figures,
    is_of_reports,
    needed,
    part_name,
)
from bridge.scale.spool import KeptTables

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class CombinedReport:
    """Aggregates of several reports, in the order of their places.

    ``called`` is the name of the reports in messages. ``tables`` has the tables of each report, ``merged`` those that
    workers have merged, in few parts.
    """

    parts: tuple[Aggregates, ...]
    called: str
    tables: KeptTables
    merged: tuple[Part, ...] = ()

    @property
    def source(self) -> tuple[str, ...]:
        return tuple(part.source for part in self.parts)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings that the user should read before trusting the figures, one line each."""
        return tuple(line for part in self.parts for line in part.warnings)

    @property
    def began(self) -> int:
        """0, as no table of several reports holds times."""
        return 0

    @property
    def cycles(self) -> None:
        """None: aggregates do not know the cycles of a session."""

    @property
    def rank_warnings(self) -> list[str]:
        files = zip(self._files, self.parts, strict=True)
        return duplicate_rank_warnings(
            [(file, home) for file, part in files for home in part.homes]
        )

    @property
    def ranges(self) -> int:
        return sum(part.ranges for part in self.parts)

    @cached_property
    def totals(self) -> Totals:
        return add_totals([part.totals for part in self.parts])

    @cached_property
    def graphs(self) -> Totals:
        return add_totals([part.graphs for part in self.parts if part.graphs is not None])

    @property
    def op_count(self) -> int:
        return len(frozenset[str]().union(*(part.ops for part in self.parts)))

    @cached_property
    def use(self) -> Use:
        """The use of the GPUs; empty unless it is known of all reports."""
        uses = [part.use for part in self.parts if part.use is not None]
        if len(uses) < len(self.parts):
            return Use()
        return uses[0] if len(uses) == 1 else Use.merged(uses, self._files)

    @property
    def busy(self) -> Use:
        """The use of the GPUs, as aggregates know no causes of idle time."""
        return self.use

    @property
    def summary(self) -> Summary:
        """The facts that aggregates tell: use of the GPUs and the largest ops."""
        ops = self.table(TableRequest("op")).head(LARGEST_OPS)
        columns = (ops[c].tolist() for c in ("op", "gpu_self_ns"))
        largest = tuple(OpTime(*row) for row in zip(*columns, strict=True))
        return Summary(
            use=self.use,
            iterations=(),
            ops=largest,
            gpu_ns=self.totals["gpu_ns"],
            ranges=self.ranges,
            advice=None,
            is_judged=False,
            attributed_ns=self.totals["attributed_ns"],
            source=self.source,
            profiler=profilers(part.facts for part in self.parts),
        )

    @property
    def members(self) -> None:
        """None: aggregates do not know the processes of a run."""

    def fitting(self, request: TableRequest) -> TableRequest:
        """Return the request: its table is the only one that was made."""
        return request

    def layout(self, by: str) -> str:
        """Return the name of the columns that people see of a table, by `bridge.analyze.core.catalog.lookup.layout`."""
        return layout(by, activities=self.totals["activities"])

    def nothing(self, by: str) -> str:
        return nothing(by, activities=self.totals["activities"], ranges=self.ranges)

    def by(
        self,
        view: str | Sequence[str],
        *,
        columns: str | Sequence[str] = (),
        **options: Unpack[TableOptions],
    ) -> pd.DataFrame:
        """Return a table, as `bridge.Report.by` does.

        Raises ValueError with a message for the user for a table or a column that needs the rows of
        all reports.
        """
        return self.table(plugins.table_request(view, columns, **options)).to_pandas()

    def table(self, request: TableRequest) -> Table:
        """Return the table that a request asks for; raises ValueError as `by` does."""
        check(request)
        whole = self._whole

        def make(wanted: Sequence[str]) -> Table:
            tables = [
                self._figures(request, merged, whole, wanted) for merged in self._merged(request)
            ]
            return tables[0] if len(tables) == 1 else Table.concat(tables)

        return arranged(request, make)

    def _figures(
        self, request: TableRequest, merged: PartialTable, whole: Wholes, wanted: Sequence[str]
    ) -> Table:
        for column in needed(request.by, wanted):
            if column not in merged.sums and column not in merged.times:
                raise ValueError(f"{self.called}: no {column} is kept; give the reports themselves")
        return Table({**merged.labels, **figures(request.by, merged, whole, wanted)})

    @property
    def _whole(self) -> Wholes:
        """The denominators of shares."""
        sums: Counter[str] = Counter()
        for part in self.parts:
            sums.update(part.wholes)
        return dict(sums)

    def _merged(self, request: TableRequest) -> Iterator[PartialTable]:
        """Yield the merged table; where rows are of one report each, those of some reports at a time."""
        by, name = request.by, part_name(request)
        if name not in self.tables.names():
            raise ValueError(f"{self.called}: no table {name!r} is kept; {HINT}")
        if not is_of_reports(by):
            is_merged = self.merged and name in self.merged[0]
            kept = (unpacked(part[name]) for part in self.merged if is_merged)
            merged = merge_all(kept if is_merged else self.tables.each(name))
            yield _placed(merged, by, "", several=False)
            return
        files = self._files
        parts = (
            _placed(table, by, file, several=len(files) > 1)
            for table, file in zip(self.tables.each(name), files, strict=True)
        )
        apart = not OF_ONE_REPORT.isdisjoint(dimensions_of(by))
        for batch in batches(parts):
            yield merge_tables(batch, apart=apart)

    @property
    def _files(self) -> list[str]:
        """The names of the files; files of one name get their place among all, as in ``r.sqlite (2)``."""
        several = Counter(self.source)
        return [
            f"{part.source} ({part.place + 1})" if several[part.source] > 1 else part.source
            for part in self.parts
        ]


HINT = "give the reports themselves, or import them with --keep"


def _placed(table: PartialTable, by: str, file: str, *, several: bool) -> PartialTable:
    """Return the table of one report with the names that its file has among all files."""
    if by in VIEWS:
        return table
    names, labels = dimensions_of(by), dict(table.labels)
    if REPORT in names or (several and not {"thread", "process"}.isdisjoint(names)):
        labels[REPORT] = np.full(table.rows, file, object)
    if several and "device" in labels:
        labels["device"] = np.array([*(f"{n} in {file}" for n in labels["device"]), None], object)[
            :-1
        ]
    # With one file, rows have no column for it unless the user asks for `report`.
    order = [
        c for n in names for c in DIMENSIONS[n].label_columns if several or n == c or c != REPORT
    ]
    return replace(table, labels={c: labels[c] for c in order if c in labels})


def combine(
    parts: Sequence[Aggregates],
    called: str = "these reports",
    *,
    tables: KeptTables,
    merged: tuple[Part, ...] = (),
) -> CombinedReport:
    """Return one report from the aggregates of workers, which may come in any order.

    Raises UnknownDomainError for a requested domain that no report has.
    """
    ordered = tuple(sorted(parts, key=lambda part: part.place))
    unknown = frozenset.intersection(*(part.undeclared for part in ordered))
    if unknown:
        raise UnknownDomainError(f"no domain {min(unknown)!r} in any of the reports")
    return CombinedReport(ordered, called, tables, merged)
