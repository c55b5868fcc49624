"""Tables that other distributions add: which are taken, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from bridge.analyze.core.catalog import TABLES, VIEWS, TableColumns, View
from bridge.analyze.core.catalog.dimensions import DIMENSIONS
from bridge.analyze.core.table import Table
from bridge.analyze.tables.build import rows_function
from bridge.knowledge.entry_points import Addition


def add(additions: Iterable[Addition]) -> None:
    """Add tables to the catalogue, each a `View`.

    What is no `View`, has a name that is taken or is described in part is left out, with a warning.
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
    if view.name in VIEWS or view.name in DIMENSIONS:
        return f"there is a table {view.name} already"
    if view.kind or view.directed or view.host:
        return f"{view.name}: kind, directed and host are for built-in tables"
    unknown = {*view.sorted_by}.difference(view.columns.names)
    return f"{view.name}: no column {unknown.pop()} to sort by" if unknown else ""


def _guarded(
    rows: Callable[..., Any], columns: TableColumns, addition: Addition
) -> Callable[..., Table]:
    """Return a function that raises ValueError alone, and whose tables have the described columns."""

    def guarded(*args: Any, **taken: Any) -> Table:
        try:
            return _described(rows(*args, **taken), columns)
        except MemoryError:
            raise
        except Exception as error:
            raise ValueError(addition.failure(error)) from error

    return guarded


def _described(table: Any, columns: TableColumns) -> Table:
    """Return what a function returned, if it is a table of these columns; else raise TypeError."""
    if not isinstance(table, Table):
        raise TypeError(f"rows returned {type(table).__name__}, not a Table")
    if tuple(table.columns) != columns.names:
        raise TypeError(f"rows returned columns {table.columns}, described are {[*columns.names]}")
    return table
