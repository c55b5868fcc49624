"""The columns of a table that people see, and the text of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bridge.analyze.core.catalog import TABLES, Column, TableColumns, describe
from bridge.analyze.core.catalog import column as spec
from bridge.analyze.core.table import Table
from bridge.render import units

MISSING = -1
RUNNING = "running_"
# The columns of `--by range`; further columns are arguments of calls.
RANGE = TABLES["range"].names


# -- The text of values


def plain(value: object) -> str:
    """Return a value as it is, '' for a missing one."""
    return "" if value == MISSING else str(value)


def number(value: float) -> str:
    """Return a number with two decimals."""
    return f"{value:.2f}"


def change(share: float) -> str:
    """Return a fraction in per cent with its sign; no change has a plus."""
    return f"{round(100 * share, 1) + 0.0:+.1f} %"


def step(value: int) -> str:
    """Return the number of a step."""
    return "outside" if value == MISSING else str(value)


def bytes_change(count: int) -> str:
    """Return a signed number of bytes."""
    return f"-{units.size(-count)}" if count < 0 else units.size(count)


def clock_offset(time: int) -> str:
    """Return the nanoseconds that are added to a clock, with their sign; '' for 0."""
    return f"{'-' if time < 0 else '+'}{units.time(abs(time))}" if time else ""


def row(index: int) -> str:
    """Return the row of a frame as `bridge why` takes it."""
    return f"#{index}"


WRITERS: Mapping[str, Callable[[Any], str]] = {
    spec.NAME: str,
    spec.PATH: str,
    spec.ID: plain,
    spec.STEP: step,
    spec.COUNT: units.count,
    spec.NUMBER: number,
    spec.FIGURE: units.figure,
    spec.NS: units.time,
    spec.INSTANT: units.time,
    spec.BYTES: units.size,
    spec.BYTES_CHANGE: bytes_change,
    spec.CLOCK_OFFSET: clock_offset,
    spec.SHARE: units.percent,
    spec.CHANGE: change,
    spec.PERCENT: units.of_hundred,
    spec.GB_PER_S: units.rate,
    spec.FLOP: units.flop,
    spec.TFLOP_PER_S: units.tflops,
    spec.ADDRESS: hex,
    spec.ROW: row,
}


def writer(column: Column, time_unit: str | None = None) -> Callable[[Any], str]:
    """Return the function that writes a column's values; ``time_unit`` is the unit of times."""
    write = WRITERS.get(column.unit) or partial(_metric, column.unit)
    if time_unit is not None and column.unit in spec.TIMES:
        write = partial(units.time_in, time_unit)
    return blank_if_missing(write) if column.missing else write


def blank_if_missing(write: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a function that writes nothing for a missing value."""
    return partial(_unless_missing, write)


def _unless_missing(write: Callable[[Any], str], value: object) -> str:
    return "" if value == MISSING else write(value)


def figure(name: str, value: Any) -> str:
    """Return the text of a value by the name of its column, for values outside of tables."""
    is_number = isinstance(value, int | float)
    return writer(describe(name, is_number=is_number, is_float=isinstance(value, float)))(value)


# -- The displayed columns


def displayed(by: str, table: Table, *, every: bool = False) -> tuple[Column, ...]:
    """Return the columns of a table that people see.

    ``by`` is a key of `bridge.analyze.core.catalog.TABLES`. ``every`` returns all columns of the table,
    as for requested columns. In tables with missing times (`attrs["unknown"]`) such times are
    written as ''; metrics of Nsight Compute (`attrs["units"]`) take precedence over columns that a
    terminal may leave out.
    """
    table_columns = TABLES.get(by)
    columns = (
        _all(table, table_columns)
        if every or table_columns is None
        else _usual(by, table, table_columns)
    )
    if table.attrs.get("unknown"):
        columns = tuple(replace(c, missing=c.missing or c.unit in spec.TIMES) for c in columns)
    metrics = table.attrs.get("units", ())
    if not metrics:
        return columns
    is_kept = [c.is_name or c.bar or c.name in metrics for c in columns]
    return tuple(
        c if kept else replace(c, optional=True) for c, kept in zip(columns, is_kept, strict=True)
    )


def _usual(by: str, table: Table, described: TableColumns) -> tuple[Column, ...]:
    """Return the columns that name rows, the displayed columns, and further requested columns."""
    labels, more = _label_and_extra_columns(by, list(table.columns))
    columns = [c for c in described.displayed if c.name in table and not _is_empty(c, table)]
    names = {c.name for c in described.displayed}
    details = [c for c in table.columns if c not in RANGE] if by == "range" else []
    return (
        *(_described(c, table, described) for c in labels if c not in names),
        *columns,
        *(_requested(_described(c, table, described)) for c in more),
        *(Column(c, c, spec.ID, optional=True) for c in details if not c.startswith(RUNNING)),
    )


def _requested(column: Column) -> Column:
    """Return a requested column; requested figures are not optional."""
    return replace(column, optional=column.is_name and column.optional, quiet=False)


def _is_empty(column: Column, table: Table) -> bool:
    """Return whether a column is `quiet` without a value, or `distinct` with one value only."""
    values = table[column.name]
    if column.distinct:
        return bool(len(values)) and bool((values == values[0]).all())
    if not (column.quiet and len(table)):
        return False
    if values.dtype == object:
        return {*values.tolist()} <= {"", MISSING}
    empty_values = (MISSING,) if column.unit in (spec.ID, spec.STEP) else (0, MISSING)
    return bool(np.isin(values, empty_values).all())


def _label_and_extra_columns(by: str, columns: list[str]) -> tuple[list[str], list[str]]:
    """Return the columns before the default ones (names of rows), and the other requested ones."""
    described = TABLES.get(by.partition(" ")[0])
    default = [c for c in columns if by in SELECTABLE and described and c in described.default]
    if not default:
        return [], [c for c in columns if c.startswith(RUNNING)]
    first = columns.index(default[0])
    return columns[:first], [c for c in columns[first:] if c not in default]


# Tables with selectable columns.
SELECTABLE = frozenset(
    name
    for name in TABLES
    if name.partition(" ")[0]
    in ("op", "ranges", "calls", "activities", "op-kernel", "kernel", "memcpy", "diff", "trend")
)


def _all(table: Table, described: TableColumns | None) -> tuple[Column, ...]:
    """Return all columns: names and the first figure, and the others as optional columns."""
    columns = [_described(c, table, described) for c in table.columns]
    first = next((c.name for c in columns if not c.is_name and not c.optional), None)
    return tuple(
        replace(c, optional=c.optional if c.is_name else c.name != first, bar=False, quiet=False)
        for c in columns
    )


def _described(name: str, table: Table, described: TableColumns | None) -> Column:
    """Return the description of a column; running sums follow their column, metrics their unit."""
    metrics = table.attrs.get("units", {})
    if name in metrics:
        return _metric_column(name, metrics[name])
    base = name.removeprefix(RUNNING)
    if described is not None and base in described.by_name:
        column = described.by_name[base]
        return (
            column
            if base == name
            else replace(column, name=name, heading=f"running {column.heading}", bar=False)
        )
    values = table[name]
    return describe(name, is_number=values.dtype != object, is_float=values.dtype.kind == "f")


# -- Metrics of Nsight Compute: the unit is in the heading, unless each value has it


GIGA = 1e9


def _hertz(value: float) -> str:
    return f"{value / GIGA:.2f} GHz"


def _rate(value: float) -> str:
    return units.rate(value / GIGA)


def _number(value: float | str) -> str:
    """Return a count without decimals, another number with two, a text as it is."""
    if isinstance(value, str):
        return value
    return units.count(value) if value == int(value) else f"{value:.2f}"


METRIC_WRITERS: dict[str, Callable[[Any], str]] = {  # units that are written with each value
    "%": units.of_hundred,
    "byte": units.size,
    "byte/block": units.size,
    "byte/s": _rate,
    "ns": units.time,
    "hz": _hertz,
}
# Units that the names of the metrics contain.
UNITLESS = frozenset(["", "register/thread", "inst", "cycle", "warp"])
METRIC = "metric in "


def _metric_column(name: str, unit: str) -> Column:
    """Describe a metric; underscores of a short name become blanks."""
    heading = name.replace("_", " ") if "__" not in name else name
    suffix = "" if unit in METRIC_WRITERS or unit in UNITLESS else f", {unit}"
    return Column(name, f"{heading}{suffix}", f"{METRIC}{unit}", missing=True)


def _metric(unit: str, value: Any) -> str:
    return METRIC_WRITERS.get(unit.removeprefix(METRIC), _number)(value)
