"""A copy of an export without what says who ran it, where, and with which secrets.

The copy is made anew, table by table: numbers as they are, of texts only those that `schema` names. What is not
known cannot stay by mistake. Triggers, views, indexes and free pages of the original are not copied.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path, PurePath

from importers.errors import NotAReport
from importers.nsys import schema
from importers.nsys.read import sound
from importers.nsys.secrets import REMOVED, Secrets

TEXT = "typeof({0}) IN ('text', 'blob')"
USED = "scrub_used"  # a temporary table: ids of texts that stay


@dataclass(frozen=True)
class Removed:
    """What a copy lacks."""

    rows: dict[str, int]  # of tables that are emptied
    variables: int  # of the environment, within these rows
    texts: int  # of the table of strings, which nothing that stays refers to
    values: dict[str, int]  # texts in other tables, by table.column
    cleaned: int  # names that stay, with something taken out


def scrub(source: Path, target: Path) -> Removed:
    """Write ``target``, which must not exist, from an export; raises `ReportError` if that is no sound one."""
    sound(source)
    with closing(sqlite3.connect(target.absolute(), uri=True, isolation_level=None)) as database:
        database.text_factory = lambda raw: raw.decode(errors="replace")
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA trusted_schema = OFF")
        try:
            database.execute(
                "ATTACH ? AS old", (f"{source.absolute().as_uri()}?mode=ro&immutable=1",)
            )
            return _Copy(database).made(source.name)
        except sqlite3.DatabaseError as error:
            raise NotAReport(
                f"{source.name}: damaged ({error}); export or copy it again"
            ) from error


class _Copy:
    def __init__(self, database: sqlite3.Connection) -> None:
        self._sql = database.execute
        self._tables = dict(self._columns())
        self._secrets = Secrets()
        self._values: dict[str, int] = {}
        database.create_function("cleaned", 1, self._secrets.clean, deterministic=True)
        database.create_function("last_part", 1, _last_part, deterministic=True)

    def made(self, name: str) -> Removed:
        if schema.STRINGS.name not in self._tables:
            raise NotAReport(f"{name}: an SQLite database, but not an Nsight Systems export")
        self._learn()
        self._sql("BEGIN")
        rows = {t: self._count(t) for t in schema.EMPTIED if t in self._tables}
        for table, columns in self._tables.items():
            # One whose very name says it is none of nsys'.
            telling = any(map(self._secrets.in_it, (table, *columns)))
            if table != schema.STRINGS.name and not telling:
                self._copy(table, columns)
        texts = self._copy_strings()
        self._sql("COMMIT")
        said = {table: count for table, count in rows.items() if count}
        secrets = self._secrets
        return Removed(said, len(secrets.variables), texts, self._values, secrets.cleaned)

    def _columns(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Give each ordinary table and its columns, with their types."""
        kinds = "SELECT name, sql FROM old.sqlite_schema WHERE type = 'table' ORDER BY name"
        for table, made in self._sql(kinds).fetchall():
            if not str(made).upper().startswith("CREATE VIRTUAL") and not table.startswith(
                "sqlite_"
            ):
                found = self._sql("SELECT name, type FROM pragma_table_info(?, 'old')", (table,))
                yield table, dict(found.fetchall())

    def _learn(self) -> None:
        """Find out what must not stand in names."""
        for name, value in self._said(schema.EMPTIED):
            self._secrets.environment(value)
            if "host" in name.lower():
                self._secrets.host(value)
        for name, value in self._said(ABOUT):
            if name.endswith(("_HOST", "_USER")):
                self._secrets.host(value)

    def _said(self, tables: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Give what tables of names and values say."""
        for table in tables:
            if {"name", "value"} <= self._tables.get(table, {}).keys():
                for name, value in self._sql(f"SELECT name, value FROM old.{_quoted(table)}"):
                    yield str(name), str(value)

    def _copy(self, table: str, columns: dict[str, str]) -> None:
        made = ", ".join(f"{_quoted(c)} {_kind(kind)}" for c, kind in columns.items())
        self._sql(f"CREATE TABLE main.{_quoted(table)} ({made})")
        if table in schema.EMPTIED:
            return
        chosen = ", ".join(self._chosen(table, column) for column in columns)
        self._sql(f"INSERT INTO main.{_quoted(table)} SELECT {chosen} FROM old.{_quoted(table)}")

    def _chosen(self, table: str, column: str) -> str:
        """Return what a column's value becomes, as SQL; counts the texts that go."""
        name, is_text = _quoted(column), TEXT.format(_quoted(column))
        if table == schema.PROCESSES.name and column == "name":
            return f"CASE WHEN {is_text} THEN cleaned(last_part({name})) ELSE {name} END"
        stays = VERSION if table in ABOUT else "0"
        if column.lower() in schema.IDENTIFYING:
            return "NULL"
        if column in _saying(table):
            return f"CASE WHEN typeof({name}) = 'text' THEN cleaned({name}) WHEN {is_text} THEN NULL ELSE {name} END"
        gone = f"{is_text} AND NOT {stays}"
        count = self._sql(f"SELECT count(*) FROM old.{_quoted(table)} WHERE {gone}").fetchone()[0]
        if count:
            self._values[f"{table}.{column}"] = count
        return f"CASE WHEN {gone} THEN NULL ELSE {name} END"

    def _copy_strings(self) -> int:
        """Copy the texts that something refers to that stays; return how many did not."""
        self._sql(f"CREATE TEMP TABLE {USED} (id PRIMARY KEY) WITHOUT ROWID")
        for table, columns in self._tables.items():
            if table in {*schema.EMPTIED, schema.STRINGS.name}:
                continue
            for column in schema.NAMING & columns.keys():
                name = _quoted(column)
                self._sql(
                    f"INSERT OR IGNORE INTO temp.{USED} SELECT {name} FROM old.{_quoted(table)}"
                    f" WHERE typeof({name}) = 'integer'"
                )
        strings = _quoted(schema.STRINGS.name)
        self._sql(f"CREATE TABLE main.{strings} (id INTEGER PRIMARY KEY, value TEXT)")
        stays = f"id IN (SELECT id FROM temp.{USED})"
        self._sql(
            f"INSERT INTO main.{strings} SELECT id, CASE WHEN {stays} THEN cleaned(value) ELSE ? END"
            f" FROM old.{strings}",
            (REMOVED,),
        )
        return int(self._sql(f"SELECT count(*) FROM old.{strings} WHERE NOT {stays}").fetchone()[0])

    def _count(self, table: str) -> int:
        return int(self._sql(f"SELECT count(*) FROM old.{_quoted(table)}").fetchone()[0])


ABOUT = {versions.name for versions in schema.VERSIONS}
VERSION = "name LIKE 'EXPORT\\_%VERSION%' ESCAPE '\\'"


def _saying(table: str) -> tuple[str, ...]:
    for name, columns in schema.SAYING.items():
        if table == name or (name.endswith("*") and table.startswith(name[:-1])):
            return columns
    return ()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _kind(kind: str) -> str:
    """Return a column's type; what is no plain word is left out, for it is put into a statement."""
    return kind if kind.isalpha() else ""


def _last_part(path: str | bytes) -> str:
    text = path.decode(errors="replace") if isinstance(path, bytes) else path
    return PurePath(text.replace("\\", "/")).name
