"""Tables that other distributions add: which are taken, and what is wrong with the others."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from typing import Any

from bridge.analyze.core.catalog import TABLES, VIEWS, TableColumns, View
from bridge.analyze.core.catalog.column import FRACTION, TEXT, UNITS
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.table import Array, Table
from bridge.analyze.tables.build import rows_function
from bridge.analyze.tables.request import TableRequest
from bridge.knowledge.entry_points import Addition

NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
RESERVED = frozenset(["list"])  # what `--by` takes besides names of tables


def add(additions: Iterable[Addition]) -> None:
    """Add tables to the catalogue, each a `View`.

    What is no `View`, has a name that is taken or is described wrongly is left out, with a warning.
    """
    for one in additions:
        with one:
            if defect := _defect(one.value):
                one.warn(defect)
            else:
                _add(one.value, one)


def _add(view: Any, addition: Addition) -> None:
    named = Addition(addition.distribution, f"table {view.name}")
    VIEWS[view.name] = replace(view, rows=_guarded(rows_function(view), view.columns, named))
    TABLES[view.name] = view.columns


def _defect(view: object) -> str:
    """Return why an object cannot be added to the tables, '' if it can."""
    if not isinstance(view, View):
        return f"{view!r} is not a View"
    if not isinstance(view.columns, TableColumns) or not callable(view.rows):
        return f"{view.name}: columns are a TableColumns, and rows is a function"
    if not isinstance(view.name, str) or not NAME.fullmatch(view.name):
        return f"{view.name!r} is no name of a table: write small letters, digits and hyphens"
    if view.name in {*VIEWS, *DIMENSIONS, *RESERVED}:
        return f"there is a table {view.name} already"
    if view.kind or view.directed or view.host:
        return f"{view.name}: kind, directed and host are for built-in tables"
    wrong = (
        ("column", {*view.sorted_by}, view.columns.names),
        ("unit", {column.unit for column in view.columns.columns}, UNITS),
        ("field of TableRequest", {*view.takes}, [field.name for field in fields(TableRequest)]),
    )
    named = (
        f"{view.name}: no {what} {min(odd)}"
        for what, used, known in wrong
        if (odd := used.difference(known))
    )
    return next(named, "" if view.columns.columns else f"{view.name}: no columns")


def _guarded(
    rows: Callable[..., Any], columns: TableColumns, addition: Addition
) -> Callable[..., Table]:
    """Return a function that raises ValueError alone, and whose tables are as they are described."""

    def guarded(*args: Any, **taken: Any) -> Table:
        table: Table = addition.call(lambda: _described(rows(*args, **taken), columns))
        return table

    return guarded


def _described(result: Any, columns: TableColumns) -> Table:
    """Return what a function returned as a table of the described columns; raise TypeError if it is none."""
    if not hasattr(result, "columns") or not hasattr(result, "attrs"):
        raise TypeError(f"rows returned {type(result).__name__}, not a Table")
    table = Table.of(result)
    if tuple(table.columns) != columns.names:
        raise TypeError(f"rows returned columns {table.columns}, described are {[*columns.names]}")
    return Table(
        {c.name: _typed(table[c.name], c.name, c.type) for c in columns.columns}, table.attrs
    )


def _typed(column: Array, name: str, kind: str) -> Array:
    """Return a column with values of its described type; raise TypeError if it holds others."""
    wanted = {TEXT: object, FRACTION: float}.get(kind, int)
    if len(column) and (column.dtype == object) != (kind == TEXT):
        raise TypeError(f"column {name} is described as {kind}, and holds {column.dtype} values")
    if column.dtype.kind == "f" and kind not in (TEXT, FRACTION) and (column % 1).any():
        raise TypeError(f"column {name} is described as {kind}, and holds fractions")
    return column.astype(wanted)
