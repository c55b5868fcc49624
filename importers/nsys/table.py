"""How a table of an export is read: which of its columns are ours, and what stands in for those it lacks.

Columns are probed, versions never asked: a table or column that an export lacks gives an empty frame
or the missing value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from importers.columns import Query
from importers.errors import NotAReport
from importers.frames import MISSING

JSON = "json"  # the detail that is read only where a flag says that there is any
FLAG = 1 << 32  # added to a number where there is more to read: see Column.flags

Present = Mapping[str, bool]  # the columns of a table of theirs: whether each is never NULL
Details = (
    bool | Collection[str]
)  # which columns are read that few need: all, none, or these of ours

# The shortest of two texts that gives the number back; JSON has no infinity but a number too large.
JSON_NUMBER = (
    "iif(typeof({0}) IN ('real', 'integer'), replace(iif(CAST(CAST({0} AS TEXT) AS REAL) = {0},"
    " CAST({0} AS TEXT), printf('%!.17g', {0})), 'Inf', '9e999'), NULL)"
)


def asked(details: Details, name: str) -> bool:
    """Whether a detail is to be read."""
    return details if isinstance(details, bool) else name in details


@dataclass(frozen=True)
class Column:
    """Where one of our columns comes from: the first of ``theirs`` that is not NULL."""

    theirs: tuple[str, ...]
    needed: bool = False
    text: bool = False
    missing: int = MISSING
    mixed: bool = False  # may hold values of another type than it should: leave those out
    detail: bool = False  # said of a single activity or range, and needed by no table of figures
    none: int | None = None  # a value that means what ``missing`` does in ours
    real: bool = False  # numbers of any type in theirs, texts in ours
    rare: bool = False  # empty in most exports: read only where a flag says that it is not
    flags: tuple[str, ...] = ()  # columns of theirs: where one of these is not NULL, FLAG is added

    @property
    def kind(self) -> str:
        """The type that the column has in an export."""
        return "REAL" if self.real else "TEXT" if self.text else "INTEGER"

    def sql(self, present: Present, *, details: Details = True) -> str | None:
        """Return the expression that reads it, or None where there is no such column."""
        found = [f'"{name}"' for name in self.theirs if name in present]
        if not found:
            return None
        if self.needed:
            return self._flagged(found[0], present) if asked(details, JSON) else found[0]
        if not (self.mixed or self.real) and present[found[0].strip('"')]:
            return found[0]  # never NULL, which saves what a coalesce costs
        if self.mixed:
            kind = "text" if self.text else "integer"
            found = [f"iif(typeof({name}) = '{kind}', {name}, NULL)" for name in found]
        if self.real:
            found = [JSON_NUMBER.format(name) for name in found]
        missing = "''" if self.text else str(self.missing)
        return f"coalesce({', '.join([*found, missing])})"

    def _flagged(self, own: str, present: Present) -> str:
        """A flag within another column costs a third of what one of its own would."""
        others = [f'"{name}"' for name in self.flags if name in present]
        if not others:
            return own
        return f"iif(coalesce({', '.join([*others, 'NULL'])}) IS NULL, {own}, {own} + {FLAG})"


def needed(name: str) -> Column:
    """A column without which the table means nothing."""
    return Column((name,), needed=True)


def maybe(*names: str, missing: int = MISSING) -> Column:
    """A column that may be absent, or go by several names."""
    return Column(names, missing=missing)


def detail(*names: str, missing: int = MISSING, none: int | None = None) -> Column:
    """A column that may be absent and that only those need who show single rows."""
    return Column(names, missing=missing, detail=True, none=none)


def text(*names: str) -> Column:
    """A column of texts, '' where absent."""
    return Column(names, text=True)


@dataclass(frozen=True)
class Table:
    """One table of theirs and the columns of ours that it fills."""

    name: str
    columns: Mapping[str, Column]
    core: bool = False  # a report whose table lacks a needed column cannot be read
    detail: str = ""  # the detail that all of it is: needed by no table of figures

    def query(self, tables: Mapping[str, Present], *, details: Details = True) -> Query | None:
        """Return how to read it from an export with these tables, None if there is nothing to read."""
        theirs = self._newest(tables)
        if theirs is None or (self.detail and not asked(details, self.detail)):
            return None
        wanted = {
            ours: c
            for ours, c in self.columns.items()
            if not c.rare and (self.detail or not c.detail or asked(details, ours))
        }
        query = _query(theirs, wanted, tables[theirs], details=details)
        absent = [c.theirs[0] for o, c in wanted.items() if c.needed and o not in query.columns]
        if absent and self.core:
            raise NotAReport(f"table {theirs} has no column {absent[0]}: an unknown schema")
        # Without a needed column it is another table of that name: what it would have told is not known.
        return query if query.columns and not absent else None

    def rest(self, tables: Mapping[str, Present]) -> Query | None:
        """Return how to read the columns that are empty in most exports."""
        theirs = self._newest(tables)
        rare = {ours: c for ours, c in self.columns.items() if c.rare}
        return _query(theirs, rare, tables[theirs], details=True) if theirs and rare else None

    def _newest(self, tables: Mapping[str, Present]) -> str | None:
        """Return the table's name in this export: newer ones may carry a suffix like _V2."""
        own = re.compile(rf"{self.name}(?:_V(\d+))?")
        found = [m for m in map(own.fullmatch, tables) if m]
        return max(found, key=lambda m: int(m[1] or 0)).string if found else None


def _query(
    theirs: str, wanted: Mapping[str, Column], present: Present, *, details: Details
) -> Query:
    """Return how to read those of the wanted columns that are there."""
    found = {ours: column.sql(present, details=details) for ours, column in wanted.items()}
    columns = {ours: sql for ours, sql in found.items() if sql}
    return Query(theirs, columns, frozenset(ours for ours in columns if wanted[ours].text))
