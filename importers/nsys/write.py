"""Write SQLite exports of Nsight Systems from rows: for captures of our own, the demonstration and tests."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bridge.importers.nsys import schema
from bridge.importers.nsys.tables import Table

Row = Mapping[str, int | float | str | None]


class Strings:
    """The table of strings of an export: every distinct text gets an id."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """Return the id of a text."""
        return self.ids.setdefault(text, len(self.ids) + 1)

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        return [{"id": number, "value": text} for text, number in self.ids.items()]


class ExportWriter:
    """Writes an SQLite export in columns; its tables are named as in `schema.READ`."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path)
        # The file is a draft until it is complete, so nothing is lost if the machine fails meanwhile.
        self._connection.execute("PRAGMA synchronous = OFF")
        self._connection.execute("PRAGMA journal_mode = OFF")
        self._created: set[str] = set()

    def append(self, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
        """Append rows, given as sequences of equal length by our names of the columns; None is NULL.

        A column that is left out is NULL.
        """
        described = schema.READ[table]
        if table not in self._created:
            self._connection.execute(_create_statement(described))
            self._created.add(table)
        names = ", ".join(f'"{described.columns[ours].sources[0]}"' for ours in columns)
        places = ", ".join("?" * len(columns))
        self._connection.executemany(
            f'INSERT INTO "{described.name}" ({names}) VALUES ({places})',
            zip(*columns.values(), strict=True),
        )

    def close(self) -> None:
        """Commit and close."""
        self._connection.commit()
        self._connection.close()


def without_zero(values: np.ndarray) -> Any:
    """Return values for `ExportWriter`, with NULL for 0."""
    return without(values, 0)


def without(values: np.ndarray, absent: int) -> Any:
    """Return values for `ExportWriter`, with NULL for an absent one."""
    return where(values != absent, values)


def where(mask: np.ndarray, values: np.ndarray) -> Any:
    """Return values for `ExportWriter`, with NULL where the mask is false."""
    if mask.all():
        return values
    result = values.astype(object)
    result[~mask] = None
    return result.tolist()


def write_export(
    path: Path, tables: Mapping[str, Iterable[Row]], versions: Mapping[str, str] | None = None
) -> None:
    """Write an SQLite export with these rows.

    ``tables`` maps names of `schema.READ` to rows, whose keys are our names of the columns; a
    column that is left out is NULL. ``versions`` are names and values of the table of versions.
    """
    version_rows = [{"name": name, "value": value} for name, value in (versions or {}).items()]
    connection = sqlite3.connect(path)
    try:
        for name, rows in {
            **tables,
            **({"versions": version_rows} if version_rows else {}),
        }.items():
            _write_table(connection, schema.READ[name], rows)
        connection.commit()
    finally:
        connection.close()


def _write_table(connection: sqlite3.Connection, table: Table, rows: Iterable[Row]) -> None:
    columns = {ours: column.sources[0] for ours, column in table.columns.items()}
    connection.execute(_create_statement(table))
    for row in rows:
        values = {columns[ours]: value for ours, value in row.items()}
        names, placeholders = ", ".join(f'"{c}"' for c in values), ", ".join("?" * len(values))
        connection.execute(
            f'INSERT INTO "{table.name}" ({names}) VALUES ({placeholders})', list(values.values())
        )


def _create_statement(table: Table) -> str:
    types = {column.sources[0]: column.kind for column in table.columns.values()}
    declarations = ", ".join(f'"{name}" {type_}' for name, type_ in types.items())
    return f'CREATE TABLE "{table.name}" ({declarations})'
