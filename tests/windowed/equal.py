"""What windows of a report amount to, compared with what comes of the whole report, row by row and time by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bridge.importers.errors import ReportError
from bridge.join.options import AttributionOptions
from bridge.scale.aggregates import Aggregates
from bridge.scale.loading import tasks_of
from bridge.scale.merging import PartialTable, unpacked
from bridge.scale.requests import PartRequest, stored_tables
from bridge.scale.task import FailedTask, Work
from bridge.scale.windows.aggregation import aggregated
from bridge.scale.windows.window import windowed_tables
from bridge.scale.worker import run_task

EVERY = windowed_tables(stored_tables(["path", "shape,op,kernel", "op,stream", "path,api"]))
DIRECTED = tuple(
    replace(one, request=replace(one.request, direction=way))
    for one in EVERY
    if one.by in {"op", "path", "op-kernel", "kernel,op"}
    for way in ("forward", "backward")
)
TABLES = (*EVERY, *DIRECTED)
TOLD = ("totals", "wholes", "ranges", "ops", "warnings", "facts", "source", "undeclared")


def both(
    path: Path,
    windows: int,
    at: Sequence[int] | None = None,
    tables: Sequence[PartRequest] = TABLES,
    **options: object,
) -> tuple[Aggregates, Aggregates]:
    """Return what comes of the whole report and of its windows; ReportError for one that cannot be read."""
    [task] = tasks_of([path], Work(tuple(tables), AttributionOptions(**options)))
    whole = run_task(task)
    if isinstance(whole, FailedTask):
        raise ReportError(whole.line)
    return whole, aggregated(task, path, windows, at)


def assert_equal(whole: Aggregates, apart: Aggregates) -> None:
    """Fail with the first table, or the first of what is told of the report, that differs."""
    for name in TOLD:
        assert getattr(apart, name) == getattr(whole, name), name
    assert apart.use.runs == whole.use.runs
    assert apart.tables.keys() == whole.tables.keys()
    for name, table in whole.tables.items():
        assert rows(unpacked(apart.tables[name])) == rows(unpacked(table)), name


def rows(table: PartialTable) -> list[tuple[object, ...]]:
    """List the rows of a table with every sum and every single time, in an order of their own."""
    listed: list[dict[str, list[tuple[int, int]]]] = [
        {name: [] for name in table.times} for _ in range(table.rows)
    ]
    for name, times in table.times.items():
        for row, value, often in zip(
            times.row.tolist(), times.value.tolist(), times.times.tolist(), strict=True
        ):
            listed[row][name].append((value, often))
    labels = zip(*(column.tolist() for column in table.labels.values()), strict=True)
    sums = {name: column.tolist() for name, column in sorted(table.sums.items())}
    found = [
        (label, {name: column[n] for name, column in sums.items()}, listed[n])
        for n, label in enumerate(labels)
    ]
    return sorted(found, key=repr)
