"""Which columns of a table people see, under which heading, and in which unit."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from bridge.analyze.tables.views import BROKEN_DOWN, VIEWS
from bridge.render import headings
from bridge.render.column_specs import MEMORY, RANKS, SHOWN, Shown, measured, unknown
from bridge.render.headings import given

FIXED = {**MEMORY, **RANKS}  # no other columns can be asked for
PATHS = ("path", "module")
OF_RANGE = (
    "name path start_ns duration_ns thread gpu_start_ns gpu_span_ns gpu_busy_ns activities".split()
)


def shown(by: str, table: pd.DataFrame) -> tuple[Shown, ...]:
    """Return what is shown of a table; where some times are not known, those are left empty."""
    found = _shown(by, table)
    found = tuple(map(unknown, found)) if table.attrs.get("unknown") else found
    metrics = table.attrs.get("units", ())  # asked for: what a table always has gives way to them
    kept = [s.is_name or s.bar or s.column in metrics for s in found]
    if not metrics:
        return found
    return tuple(s if keep else replace(s, extra=True) for s, keep in zip(found, kept, strict=True))


def _shown(by: str, table: pd.DataFrame) -> tuple[Shown, ...]:
    """Return what is shown of a table: of one that has no headings of its own all columns, told by their names.

    Of ranges also what calls say; of a table broken down, first what tells its rows apart.
    """
    if by in FIXED:
        return tuple(s for s in FIXED[by] if s.column in table and _says(s, table))
    if by not in SHOWN:
        return _all(table)
    names, more = _unusual(by, list(table.columns))
    said = [c for c in table.columns if c not in OF_RANGE] if by == "range" else []
    return (
        *(_told(c, table) for c in names if c not in {s.column for s in SHOWN[by]}),
        *(s for s in SHOWN[by] if s.column in table and _says(s, table)),
        *(_told(c, table) for c in more),
        *(Shown(c, c, given, extra=True) for c in said),
    )


def _says(shown: Shown, table: pd.DataFrame) -> bool:
    """Tell whether a column says anything, or tells rows apart, if that is what it is there for."""
    if shown.apart:
        return shown.column in table and len(table[shown.column].unique()) != 1
    nothing = ("", headings.MISSING) if shown.text in (str, given) else (0, headings.MISSING)
    return not (shown.quiet and len(table) and table[shown.column].isin(nothing).all())


def _unusual(by: str, columns: list[str]) -> tuple[list[str], list[str]]:
    """Return the columns that stand before the usual figures of a table, and those among and after that were asked for."""
    rows = by.partition(" ")[0]
    view = BROKEN_DOWN.get(rows) or VIEWS.get(rows)
    usual = [c for c in columns if view and c in view.columns]
    if not usual:
        return [], [c for c in columns if c.startswith("running_")]
    first = columns.index(usual[0])
    return columns[:first], [c for c in columns[first:] if c not in usual]


def _all(table: pd.DataFrame) -> tuple[Shown, ...]:
    """Return all columns: the names, the first figure, and as many of the others as there is room for."""
    every = [_told(c, table) for c in table.columns]
    first = next((s.column for s in every if not s.is_name and not s.extra), None)
    return tuple(s if s.is_name or s.column == first else replace(s, extra=True) for s in every)


def _told(column: str, table: pd.DataFrame) -> Shown:
    """Return a column as its name tells that it is to be shown; a metric by its unit."""
    units = table.attrs.get("units", {})
    if column in units:
        return measured(column, units[column])
    text, extra = headings.text(column, table[column]), column in headings.OF_LITTLE_USE
    return Shown(column, headings.heading(column), text, is_path=column in PATHS, extra=extra)
