"""Writes small exports of our own: for the demonstration, and for tests without a GPU.

Rows are given under our own column names; the tables get their real names from `schema`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path

from importers.nsys import schema
from importers.nsys.table import Table

Row = Mapping[str, int | float | str | None]


class Strings:
    """The table of strings in the making: every text gets an id."""

    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """Return the id of a text."""
        return self.ids.setdefault(text, len(self.ids) + 1)

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        return [{"id": number, "value": text} for text, number in self.ids.items()]


def write(
    path: Path, tables: Mapping[str, Iterable[Row]], versions: Mapping[str, str] | None = None
) -> None:
    """Write an export with these rows, by the names of `schema.READ`; a column left out is NULL."""
    about = [{"name": name, "value": value} for name, value in (versions or {}).items()]
    connection = sqlite3.connect(path)
    try:
        for name, rows in {**tables, **({"versions": about} if about else {})}.items():
            _fill(connection, schema.READ[name], rows)
        connection.commit()
    finally:
        connection.close()


def _fill(connection: sqlite3.Connection, table: Table, rows: Iterable[Row]) -> None:
    columns = {ours: column.theirs[0] for ours, column in table.columns.items()}
    kinds = {column.theirs[0]: column.kind for column in table.columns.values()}
    made = ", ".join(f'"{name}" {kind}' for name, kind in kinds.items())
    connection.execute(f'CREATE TABLE "{table.name}" ({made})')
    for row in rows:
        given = {columns[ours]: value for ours, value in row.items()}
        names, marks = ", ".join(f'"{c}"' for c in given), ", ".join("?" * len(given))
        connection.execute(
            f'INSERT INTO "{table.name}" ({names}) VALUES ({marks})', list(given.values())
        )
