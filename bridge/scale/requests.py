"""The table that each report is asked for, and its columns, so that the tables of all reports can be merged."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from bridge.analyze.core.catalog import TABLES, VIEWS
from bridge.analyze.core.catalog.column import FROM_TIMES, RATIO, REPORTS, WINDOWS, statistic_names
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.catalog.lookup import (
    FIXED,
    SELECTABLE,
    columns_are_chosen,
    columns_of,
    dimensions_of,
    rows_of,
)
from bridge.analyze.core.groups import quantiles_of_counted, ratio
from bridge.analyze.tables import statistics
from bridge.analyze.tables.request import BOTH, TableRequest
from bridge.analyze.tables.statistics import Columns, spread_of_counted
from bridge.importers.records import record
from bridge.scale.merging import PartialTable, Wholes

# -- Which columns add up over reports, and what the others are computed from


PREFIXES = (
    "",
    "gpu_",
    "cpu_",
)  # of statistics: of activities and API calls, of GPU times, of CPU times
MEDIAN = "median_ns"


def times_of(column: str) -> str:
    """Return the column of times that a statistic is computed from."""
    prefix = next((p for p in PREFIXES[1:] if column in statistic_names(p)), "")
    return f"{prefix}{statistics.TIMES}"


def needed(by: str, columns: Iterable[str]) -> tuple[str, ...]:
    """Return the columns that each report is asked for, to compute ``columns`` of all reports.

    Raises ValueError with a message for the user for a column that needs all reports at once.
    """
    described = columns_of(by).by_name
    result: list[str] = []
    for name in columns:
        column = described[name]
        if column.merge in (WINDOWS, REPORTS):
            result.append(name)
        elif column.merge == RATIO and column.ratio:
            result += (part for part in column.ratio if part in described)
        elif column.merge == FROM_TIMES:
            result.append(times_of(name))
        else:
            raise ValueError(f"no {name} with --workers: it needs all rows")
    return tuple(dict.fromkeys(result))


def figures(by: str, merged: PartialTable, whole: Wholes, columns: Iterable[str]) -> Columns:
    """Return columns of a merged table; `needed` names the parts they are computed from."""
    result: Columns = {**merged.sums}
    for prefix in PREFIXES:
        if (times := merged.times.get(f"{prefix}{statistics.TIMES}")) is not None:
            counted = (times.row, times.value, times.times, merged.rows)
            result |= spread_of_counted(prefix, *counted)
            (result[MEDIAN],) = quantiles_of_counted(*counted, 0.5)
    for name, part, of in columns_of(by).ratios():
        if part in result and (of in whole or of in result):
            total: np.ndarray | int = whole[of] if of in whole else result[of]
            result[name] = ratio(result[part], total)
    return {name: result[name] for name in columns}


def stored_columns(by: str) -> tuple[str, ...]:
    """Return the columns that a store keeps of every report: those that need no other report."""
    described = TABLES[rows_of(by)]
    times = (times_of(column.name) for column in described.columns if column.merge == FROM_TIMES)
    return (*described.stored, *dict.fromkeys(times))


# -- Which table each report is asked for


REPORT = "report"
# Dimensions whose rows always belong to one report.
OF_ONE_REPORT = frozenset(name for name, one in DIMENSIONS.items() if one.of_one_report)
# The tables that a store keeps: single dimensions and some pairs. Tables with about one row per call (paths with the
# number of a step, modules with their ops) are kept only on request (--keep).
SINGLE = tuple(name for name, one in DIMENSIONS.items() if one.kept and name not in VIEWS)
PAIRS = (
    "report,step report,phase report,module report,device op,kernel op,shape op,direction op,step op,kind"
    " op,rank kernel,direction kernel,device kernel,rank kind,rank"
).split()


@record
class PartRequest:
    """The table that each report is asked for: ``request`` without columns, and the ``columns`` that are merged.

    ``request.by`` is written as `key` writes it.
    """

    request: TableRequest
    columns: tuple[str, ...]

    @property
    def by(self) -> str:
        """The table's dimensions, or its name."""
        return self.request.by

    @property
    def direction(self) -> str:
        """The direction that is counted."""
        return self.request.direction

    @property
    def name(self) -> str:
        """The name under which the table is kept, whatever columns it has."""
        request = self.request
        names = [request.by, *(n for n in ("inclusive", "memory_kinds") if getattr(request, n))]
        names += [request.kernel_names] if request.kernel_names != "readable" else []
        return " ".join(names + ([request.direction] if request.direction != BOTH else []))


def key(by: str) -> str:
    """Return a table's name with its dimensions in one order, and without the report, which each report knows."""
    if by in VIEWS:
        return by
    names = set(dimensions_of(by))
    rest = names - {REPORT}
    is_other = rest <= FIXED and len(rest) == 1  # --by step is no breakdown
    return ",".join(sorted(names if is_other else rest or names))


def part_request(request: TableRequest) -> PartRequest:
    """Return what each report is asked for to make a table.

    Raises ValueError with a message for the user for a table that needs all reports at once.
    """
    check(request)
    return _part(request, needed(request.by, request.computed))


def is_of_reports(by: str) -> bool:
    """Return whether rows of a table belong to one report each, so that no two are merged."""
    return by not in VIEWS and not {REPORT, *OF_ONE_REPORT}.isdisjoint(dimensions_of(by))


def mergeable(tables: Iterable[str]) -> tuple[str, ...]:
    """Return the names under which tables are kept, of those in which rows of several reports become one."""
    return tuple(part_name(TableRequest(by)) for by in tables if not is_of_reports(by))


def check(request: TableRequest) -> None:
    """Raise ValueError with a message for the user for a table that needs all reports at once."""
    if not columns_are_chosen(request.by):
        raise ValueError(
            f"--by {request.by} needs all rows at once, which --workers does not have:"
            f" use {', '.join(SELECTABLE)}, or dimensions (--by list shows them)"
        )
    if request.metrics:
        raise ValueError("no metrics with --workers: they need all rows")


def _part(request: TableRequest, columns: Sequence[str]) -> PartRequest:
    bare = replace(request, by=key(request.by), columns=(), also=(), costs=None)
    return PartRequest(bare, tuple(columns))


def part_name(request: TableRequest) -> str:
    """Return the name of the stored table that answers a request."""
    return _part(request, ()).name


def whole_tables(tables: Sequence[str]) -> list[PartRequest]:
    """Return tables by name, with all columns that are merged.

    Raises ValueError with a message for the user for a table that needs all reports at once.
    """
    requests = [TableRequest(by) for by in tables]
    for request in requests:
        check(request)
    return [_part(request, stored_columns(request.by)) for request in requests]


def stored_tables(also: Sequence[str] = ()) -> tuple[PartRequest, ...]:
    """Return the tables that a store keeps: views, dimensions, some pairs of them, and those in ``also``.

    Raises ValueError with a message for the user for a table that needs all reports at once.
    """
    requests = [TableRequest(by) for by in (*SELECTABLE, *SINGLE, *PAIRS)]
    result = [_part(request, stored_columns(request.by)) for request in requests]
    result += whole_tables(also)
    for request in (
        TableRequest("op-kernel", inclusive=True),
        TableRequest("memcpy", memory_kinds=True),
    ):
        result.append(_part(request, stored_columns(request.by)))
    return tuple({part.name: part for part in result}.values())
