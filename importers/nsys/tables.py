"""How tables of an export are described: columns by the names of their sources, and the query for what is present.

Columns are probed; the version of an export is never asked for. A table or column that an export
lacks gives an empty frame or the missing value.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from bridge.importers.arrays import MISSING
from bridge.importers.errors import NotAReport
from bridge.importers.query import Query, Value

# -- Columns and tables


JSON, NCCL_CALLS = "json", "nccl_calls"  # the details that are read only where FLAG is set
FLAG = 1 << 32  # added to a row's number where rare columns have a value: see Column.flags

Present = Mapping[str, bool]  # columns of a table in an export: whether each is never NULL
VERSION = re.compile(r"(?:_V(\d+))?")  # ends the name of a table
Details = bool | Collection[str]  # which details to read: all, none, or these by our names

# The shorter of two texts that both give the number back. JSON writes infinity as 9e999.
JSON_NUMBER = (
    "iif(typeof({0}) IN ('real', 'integer'), replace(iif(CAST(CAST({0} AS TEXT) AS REAL) = {0},"
    " CAST({0} AS TEXT), printf('%!.17g', {0})), 'Inf', '9e999'), NULL)"
)


EVERY = "*"  # among names of details: all but those in ON_REQUEST
# Large tables of few uses: read only where they are asked for by name.
ON_REQUEST = frozenset(["call_chains", "system_call_chains", "samples"])


HOST_SIDE, GPU_SIDE = SIDES = ("host", "gpu")
ONLY: Mapping[str, str] = {side: f"only {side}" for side in SIDES}  # among names of details


def requested_side(details: Details) -> str:
    """Return the side that is read alone, '' for both."""
    if isinstance(details, bool):
        return ""
    return next((side for side, name in ONLY.items() if name in details), "")


def has_detail(details: Details, name: str) -> bool:
    if isinstance(details, bool):
        return details and name not in ON_REQUEST
    return name in details or (EVERY in details and name not in ON_REQUEST)


@dataclass(frozen=True)
class Column:
    """Describe a column of ours: it is read from the first of ``sources`` that is not NULL."""

    sources: tuple[str, ...]
    required: bool = False
    nullable: bool = False  # of a required column: NULL is `missing`, not damage
    text: bool = False
    missing: int = MISSING
    mixed: bool = False  # values of another type are read as missing
    detail: bool = False  # describes single rows; no table of metrics needs it
    none: int | None = None  # a value of the export that stands for a missing one
    real: bool = False  # numbers of any type in the export, read as texts
    binary: bool = False  # blobs, read as texts: their bytes, or hexadecimal digits
    rare: str = ""  # empty in most exports: read only for this detail, and where FLAG is set
    flags: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # by detail: FLAG is added where one of these is not NULL

    @property
    def kind(self) -> str:
        """The SQL type of the column in an export."""
        if self.binary:
            return "BLOB"
        return "REAL" if self.real else "TEXT" if self.text else "INTEGER"

    def value(self, present: Present, *, details: Details = True) -> Value | None:
        """Return what is read for the column, None if the table has no such column."""
        sources = tuple(name for name in self.sources if name in present)
        if not sources:
            return None
        if self.required:
            asked = (names for of, names in self.flags.items() if has_detail(details, of))
            flags = tuple(name for names in asked for name in names if name in present)
            missing = self.missing if self.nullable and not present[sources[0]] else None
            return Value(sources[:1], missing, flags=flags, flag=FLAG)
        if not self.mixed and present[sources[0]]:  # never NULL
            return Value(sources[:1], is_text=self.text)
        return Value(
            sources, "" if self.text else self.missing, is_text=self.text, mixed=self.mixed
        )

    def binary_sql(self, present: Present) -> str | None:
        """Return the SQL expression that reads a column of blobs as texts: hexadecimal digits."""
        name = self.sources[0]
        if name not in present:
            return None
        return f"""coalesce(iif(typeof("{name}") = 'blob', hex("{name}"), "{name}"), '')"""

    def number_sql(self, present: Present) -> str | None:
        """Return the SQL expression that reads a column of ``real`` numbers as texts."""
        sources = [JSON_NUMBER.format(f'"{name}"') for name in self.sources if name in present]
        return f"coalesce({', '.join([*sources, chr(39) * 2])})" if sources else None


def required(name: str, *, null: int | None = None) -> Column:
    """Describe a column without which the table cannot be read; NULL stands for ``null``, None: it is damage."""
    if null is None:
        return Column((name,), required=True)
    return Column((name,), required=True, missing=null, nullable=True)


def optional(*names: str, missing: int = MISSING) -> Column:
    """Describe a column that may be absent or have one of several names."""
    return Column(names, missing=missing)


def detail(*names: str, missing: int = MISSING, none: int | None = None) -> Column:
    """Describe an optional column that is needed only to show single rows."""
    return Column(names, missing=missing, detail=True, none=none)


def text(*names: str) -> Column:
    """Describe a column of texts, '' where it is absent."""
    return Column(names, text=True)


@dataclass(frozen=True)
class Table:
    """Describe a table of an export and the columns of ours that are read from it."""

    name: str
    columns: Mapping[str, Column]
    core: bool = False  # a report cannot be read if a required column is absent
    detail: str = ""  # the name of the detail that the whole table is

    def without(self, name: str) -> Table:
        """Return the table without one of its columns."""
        return replace(self, columns={n: c for n, c in self.columns.items() if n != name})

    def query(self, tables: Mapping[str, Present], *, details: Details = True) -> Query | None:
        """Return the query for an export with these tables, None if there is nothing to read."""
        table = self._newest(tables)
        if table is None or (self.detail and not has_detail(details, self.detail)):
            return None
        columns = {
            name: column
            for name, column in self.columns.items()
            if not column.rare and (not column.detail or has_detail(details, name))
        }
        query = _query(table, columns, tables[table], details=details)
        absent = [
            column.sources[0]
            for name, column in columns.items()
            if column.required and name not in query.columns
        ]
        if absent and self.core:
            raise NotAReport(f"table {table} has no column {absent[0]}: an unknown schema")
        # A table without a required column is another table of the same name.
        return query if query.columns and not absent else None

    def rest(self, tables: Mapping[str, Present], *, details: Details) -> Query | None:
        """Return the query for the columns that are empty in most exports."""
        table = self._newest(tables)
        rare = {
            name: column
            for name, column in self.columns.items()
            if column.rare and has_detail(details, column.rare)
        }
        return _query(table, rare, tables[table], details=True) if table and rare else None

    def is_in(self, tables: Mapping[str, Present]) -> bool:
        """Return whether an export with these tables has the table, of any version."""
        return self._newest(tables) is not None

    def _newest(self, tables: Mapping[str, Present]) -> str | None:
        """Return the table's name in this export; newer versions may have a suffix like _V2."""
        named = [t for t in tables if t.startswith(self.name)]
        versions = {t: VERSION.fullmatch(t.removeprefix(self.name)) for t in named}
        known = {t: int(found[1] or 0) for t, found in versions.items() if found}
        return max(known, key=known.__getitem__, default=None)


def _query(
    table: str, columns: Mapping[str, Column], present: Present, *, details: Details
) -> Query:
    """Return the query for those of the columns that are present."""
    values, sql, numbers, blobs = {}, {}, {}, {}
    for name, column in columns.items():
        if column.binary:
            if expression := column.binary_sql(present):
                sql[name], blobs[name] = expression, column.sources[0]
        elif column.real:
            if expression := column.number_sql(present):
                sql[name] = expression
                numbers[name] = tuple(source for source in column.sources if source in present)
        elif value := column.value(present, details=details):
            values[name], sql[name] = value, value.sql
    texts = frozenset(name for name in sql if columns[name].text)
    return Query(table, sql, texts, values=values, numbers=numbers, blobs=blobs)
