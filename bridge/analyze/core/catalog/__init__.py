"""The tables: what each answers, its columns and their meanings, and which function computes its rows."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bridge.analyze.core.catalog.column import (
    BYTES,
    COLUMNS,
    COUNT,
    ID,
    NAME,
    NS,
    NUMBER,
    PATH,
    ROW,
    SHARE,
    STEP,
    Column,
    TableColumns,
)
from bridge.analyze.core.catalog.views import VIEWS, View

__all__ = [
    "ON_HOST",
    "TABLES",
    "VIEWS",
    "Column",
    "TableColumns",
    "View",
    "column_named",
    "describe",
]

ON_HOST = " without activities"  # ends the names of columns to display without work on a GPU
# The columns of each table: of views, of tables by dimensions, and of other commands.
TABLES: dict[str, TableColumns] = {
    name: columns for name, columns in COLUMNS.items() if name[0] != "@"
}
# Columns of all tables by their names; those of comparisons hold texts.
_ALL = [c for name, table in TABLES.items() if name not in ("diff", "trend") for c in table.columns]
_BY_NAME = {column.name: column for column in reversed(_ALL)}
_MISSING = frozenset(column.name for column in _ALL if column.missing) | {"shared_bytes"}
_IDENTITIES = frozenset("pid tid stream context registers rank".split())
_OWN_UNITS = {"example": ROW, "step": STEP}
_PATHS = frozenset(["path", "module"])
_BY_SUFFIX = {"_ns": NS, "_bytes": BYTES, "share": SHARE}
_UPPER = {"gpu": "GPU", "cpu": "CPU", "api": "API", "ns": ""}
_OF_LITTLE_USE = frozenset(
    ["context", "registers", "shared_bytes"]
)  # if other columns name the row


def column_named(word: str, names: Iterable[str]) -> str | None:
    """Return the column of a table that a user means, None if there is none.

    ``names`` are the table's columns. A word is the name of a column, with or without ``_ns``, or
    its heading; of the latter two the case does not count, nor whether words are divided by blanks,
    commas, hyphens or underscores.
    """
    known = dict.fromkeys(names)
    exact = next((name for name in (word, f"{word}_ns") if name in known), None)
    if exact is not None or word.startswith("-"):
        return exact
    # Tables use one heading for different columns: those that describe most of these are meant.
    described = [len(known.keys() & table.by_name.keys()) for table in TABLES.values()]
    likely = (t for t, n in zip(TABLES.values(), described, strict=True) if n == max(described))
    columns = (c for table in likely for c in table.columns if c.name in known)
    words = _words(word)
    by_heading = next((c.name for c in columns if _words(c.heading) == words), None)
    return by_heading or next((name for name in known if _words(name) == words), None)


def _words(text: str) -> list[str]:
    return re.split(r"[\s,_-]+", text.casefold())


def describe(name: str, *, is_number: bool, is_float: bool = False) -> Column:
    """Return the description of a column of no table: the label of a dimension, a figure of advice.

    The unit follows from the name, else from the type of the values. A column of the same name in
    any table lends its unit.
    """
    heading = " ".join(word for part in name.split("_") if (word := _UPPER.get(part, part)))
    return Column(
        name,
        heading,
        _unit(name, is_number, is_float),
        missing=name in _MISSING,
        optional=name in _OF_LITTLE_USE,
    )


def _unit(name: str, is_number: bool, is_float: bool) -> str:
    if name in _OWN_UNITS:
        return _OWN_UNITS[name]
    if name in _PATHS:
        return PATH
    if name in _IDENTITIES:
        return ID
    if not is_number:
        return NAME
    if name in _BY_NAME:
        return _BY_NAME[name].unit
    suffix = next((unit for end, unit in _BY_SUFFIX.items() if name.endswith(end)), None)
    return suffix or (NUMBER if is_float else COUNT)
