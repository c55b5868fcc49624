"""Mutations of SQLite exports: cells, columns, tables, the schema."""

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from bridge.importers.nsys import schema
from fuzz import octets, values

OURS = tuple(table.name for table in schema.READ.values())
RECURSIVE = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS {} FROM n"
STEPS = 5_000  # of 10 000 instructions of SQLite's, which all mutations of a file may take
HOSTILE = ('x"; DROP TABLE StringIds; --', "<b>", "a'b", "rowid", "=1+1", "\x1b[31m", "select", "ü")


class Mutated:
    """A copy of an export that is open for changes."""

    def __init__(self, connection: sqlite3.Connection, chance: random.Random) -> None:
        self.run = connection.execute
        self.chance = chance
        found = self.run("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        self.tables = [name for (name,) in found]

    def table(self) -> str:
        """Return a table, mostly one that is read."""
        ours = [name for name in self.tables if name in OURS]
        return self.chance.choice(ours if ours and self.chance.random() < 0.95 else self.tables)

    def column(self, table: str) -> str:
        return str(self.chance.choice(self.columns(table)))

    def columns(self, table: str) -> list[str]:
        return [row[1] for row in self.run(f'PRAGMA table_info("{table}")')]

    def rows(self, table: str) -> str:
        """Return a condition that holds for one row, some, or all."""
        last = self.run(f'SELECT max(rowid) FROM "{table}"').fetchone()[0] or 1
        one = self.chance.randrange(1, max(2, last + 1))
        return self.chance.choice(
            (f"rowid = {one}", f"rowid = {one}", f"rowid % 7 = {one % 7}", "1")
        )

    def value(self) -> object:
        chance = self.chance
        made = chance.choice((None, 0, 0, 0, "text", "text", "bytes", "real"))
        if made == "text":
            return values.text(chance).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        if made == "bytes":
            return values.octets(chance)
        return (
            chance.choice(values.REALS if made == "real" else values.INTEGERS)
            if made is not None
            else None
        )


def cells(db: Mutated) -> None:
    """Write a value over cells."""
    table = db.table()
    db.run(f'UPDATE "{table}" SET "{db.column(table)}" = ? WHERE {db.rows(table)}', [db.value()])


def no_text(db: Mutated) -> None:
    """Write bytes that are no UTF-8 as a text."""
    table = db.table()
    sql = f'UPDATE "{table}" SET "{db.column(table)}" = CAST(? AS TEXT) WHERE {db.rows(table)}'
    db.run(sql, [db.chance.choice((b"\xff\xfe", b"a\0b", b"\xed\xa0\x80", b"\xc3"))])


def moved(db: Mutated) -> None:
    """Add to numbers, or multiply them."""
    table = db.table()
    column = db.column(table)
    change = db.chance.choice(
        ("+ 1", "- 1", "* -1", "+ 1000000000000", "* 1000000", "/ 1000", "| 4294967296", "% 3")
    )
    db.run(f'UPDATE "{table}" SET "{column}" = "{column}" {change} WHERE {db.rows(table)}')


def swapped(db: Mutated) -> None:
    """Write one column over another."""
    table = db.table()
    db.run(
        f'UPDATE "{table}" SET "{db.column(table)}" = "{db.column(table)}" WHERE {db.rows(table)}'
    )


def deleted(db: Mutated) -> None:
    """Delete rows."""
    table = db.table()
    db.run(f'DELETE FROM "{table}" WHERE {db.rows(table)}')


def repeated(db: Mutated) -> None:
    """Insert rows once more, so that ids are there twice."""
    table = db.table()
    columns = ", ".join(
        f'"{name}"' for name in db.columns(table) if name != "id" or db.chance.random() < 0.5
    )
    db.run(
        f'INSERT OR IGNORE INTO "{table}" ({columns}) SELECT {columns} FROM "{table}" WHERE {db.rows(table)}'
    )


def far_rows(db: Mutated) -> None:
    """Give a row a number far beyond the others."""
    table, number = db.table(), db.chance.choice((-(2**63), -5, 2**40, 2**63 - 1))
    db.run(
        f'UPDATE OR IGNORE "{table}" SET rowid = {number} WHERE rowid = (SELECT max(rowid) FROM "{table}")'
    )


def dropped(db: Mutated) -> None:
    """Drop a table or a column."""
    table = db.table()
    db.run(
        f'DROP TABLE "{table}"'
        if db.chance.random() < 0.4
        else f'ALTER TABLE "{table}" DROP COLUMN "{db.column(table)}"'
    )


def renamed(db: Mutated) -> None:
    """Rename a table or a column, to a name that hurts or to that of another."""
    table, name = (
        db.table(),
        db.chance.choice((*HOSTILE, *OURS, "start", "end", "textId")).replace('"', '""'),
    )
    what = (
        f'RENAME TO "{name}"'
        if db.chance.random() < 0.4
        else f'RENAME COLUMN "{db.column(table)}" TO "{name}"'
    )
    db.run(f'ALTER TABLE "{table}" {what}')


def added(db: Mutated) -> None:
    """Add columns, tables, views and triggers that nobody asked for."""
    table, name = db.table(), db.chance.choice(HOSTILE).replace('"', '""')
    db.run(
        db.chance.choice(
            (
                f'ALTER TABLE "{table}" ADD COLUMN "{name}" TEXT DEFAULT \'x\'',
                f'ALTER TABLE "{table}" ADD COLUMN "{name}" AS (zeroblob(900000000)) VIRTUAL',
                f'CREATE TABLE "{name}" (start, "end", "{name} 2")',
                f'CREATE TABLE "{table}_V9" AS SELECT * FROM "{table}"',
                f'CREATE TABLE "{table}_V{"9" * 30}" AS SELECT * FROM "{table}" LIMIT 1',
                f'CREATE VIEW "{name}" AS SELECT * FROM "{table}"',
                f'CREATE TRIGGER "{name}" AFTER UPDATE ON "{table}" BEGIN DELETE FROM "{table}"; END',
                f'CREATE INDEX "{name}" ON "{table}" ("{db.column(table)}")',
            )
        )
    )


def no_table(db: Mutated) -> None:
    """Put something in a table's place: a view without an end, one that renames, a table without row numbers, one with types, a virtual one."""
    table = db.table()
    columns = db.columns(table)
    listed = ", ".join(f'"{name}"' for name in columns)
    body = db.chance.choice(
        (
            f'CREATE VIEW "{table}" AS {RECURSIVE.format("start")}',
            f'CREATE VIEW "{table}" AS SELECT {db.chance.choice(("*", listed))} FROM "kept"',
            f'CREATE TABLE "{table}" ({listed}, PRIMARY KEY ("{columns[0]}")) WITHOUT ROWID',
            f'CREATE TABLE "{table}" ({", ".join(f"""{c} ANY NOT NULL""" for c in listed.split(", "))})',
            f'CREATE VIRTUAL TABLE "{table}" USING fts5({listed})',
            f'CREATE TABLE "{table}" ({listed}, rowid TEXT, _rowid_ TEXT, oid TEXT)',
        )
    )
    db.run(f'ALTER TABLE "{table}" RENAME TO "kept"')
    db.run(body)
    if db.chance.random() < 0.7:
        db.run(f'INSERT OR IGNORE INTO "{table}" ({listed}) SELECT {listed} FROM "kept"')


def schema_text(db: Mutated) -> None:
    """Write over the text of the schema itself."""
    table, chance = db.table(), db.chance
    db.run("PRAGMA writable_schema = ON")
    change = chance.choice(
        (
            "sql = replace(sql, 'INTEGER', 'TEXT')", "sql = 'CREATE TABLE x(a)'", "sql = NULL", "type = 'view'",
            "rootpage = 1", "rootpage = 2", "rootpage = 999999", "rootpage = 0", "name = 'sqlite_master'",
            "sql = replace(sql, 'CREATE TABLE', 'CREATE VIRTUAL TABLE')", "sql = sql || ' STRICT'",
        )
    )  # fmt: skip
    db.run(f"UPDATE sqlite_master SET {change} WHERE name = ?", [table])


def kept_otherwise(db: Mutated) -> None:
    """Write the file in another way: other pages, another encoding is for new files alone."""
    db.run(f"PRAGMA page_size = {db.chance.choice((512, 65536))}")
    db.run("VACUUM")


MUTATIONS: tuple[Callable[[Mutated], None], ...] = (
    *(cells,) * 8, *(moved,) * 3, swapped, swapped, no_text, deleted, repeated, far_rows, dropped, dropped,
    renamed, added, no_table, schema_text, kept_otherwise,
)  # fmt: skip


def mutant(source: Path, target: Path, chance: random.Random) -> None:
    """Write a mutant of an export."""
    data = source.read_bytes()
    if chance.random() < 0.25:
        target.write_bytes(octets.changed(data, chance))
        return
    target.write_bytes(data)
    with closing(sqlite3.connect(target, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA journal_mode = MEMORY")
        left = itertools.repeat(0, STEPS)  # what a view without an end is asked for ends too
        connection.set_progress_handler(lambda: next(left, 1), 10_000)
        mutated = Mutated(connection, chance)
        for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
            with suppress(
                sqlite3.Error, IndexError, MemoryError
            ):  # what SQLite itself refuses is no mutation
                chance.choice(MUTATIONS)(mutated)
    for beside in target.parent.glob(f"{target.name}-*"):
        beside.unlink()
