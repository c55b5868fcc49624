"""Describe what is read from a table of an export: in SQL, and for readers of other files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from bridge.importers.records import record


@record
class Value:
    """A column of ours: the first of ``sources`` that is not NULL, else ``missing``.

    Attributes:
        sources: columns of the table.
        missing: the value where all are NULL; None: that is an error.
        is_text: whether it is a text, otherwise an integer.
        mixed: whether values of another type count as NULL; otherwise they are an error.
        flags: columns of which any value adds ``flag``.
        flag: a number.

    """

    sources: tuple[str, ...]
    missing: int | str | None = None
    is_text: bool = False
    mixed: bool = False
    flags: tuple[str, ...] = ()
    flag: int = 0

    @property
    def sql(self) -> str:
        """The SQL expression of the value."""
        names = [f'"{name}"' for name in self.sources]
        if self.mixed:
            kind = "text" if self.is_text else "integer"
            names = [f"iif(typeof({name}) = '{kind}', {name}, NULL)" for name in names]
        value = names[0]
        if self.missing is not None:
            missing = "''" if self.is_text else str(self.missing)
            value = f"coalesce({', '.join([*names, missing])})"
        if not self.flags:
            return value
        # A flag within another column costs a third of the time of a column of its own.
        flags = [f'"{name}"' for name in self.flags]
        any_flag = f"coalesce({', '.join([*flags, 'NULL'])})"
        return f"iif({any_flag} IS NULL, {value}, {value} + {self.flag})"


@record
class Query:
    """The columns to read from one table: our names, and the SQL expressions that give them.

    ``values`` describe the columns whose expressions are known. ``numbers`` are for columns that
    hold a number as text: the columns of the table it comes from, of which the first that is not
    NULL counts. ``blobs`` are for columns that hold blobs as text: the column of the table, whose
    bytes are read, or hexadecimal digits of them. ``rows`` are the first and the last rowid; None: all rows.
    """

    table: str
    columns: Mapping[str, str]
    texts: frozenset[str] = frozenset()
    rows: tuple[int, int] | None = None
    values: Mapping[str, Value] = field(default_factory=dict)
    numbers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    blobs: Mapping[str, str] = field(default_factory=dict)

    def sql(self, source: str, first: int | None, last: int | None) -> str:
        """Return the statement for first <= rowid < last; None stands for no limit.

        ``source`` stands after FROM.
        """
        columns = ", ".join(f'{sql} AS "{name}"' for name, sql in self.columns.items())
        limits = ((">=", first), ("<", last))
        condition = " AND ".join(
            f"rowid {operator} {limit}" for operator, limit in limits if limit is not None
        )
        return f"SELECT {columns} FROM {source}" + (f" WHERE {condition}" if condition else "")
