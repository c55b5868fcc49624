"""Copy an export without the data that identifies users, machines and secrets.

The copy is written table by table: all numbers, and only those texts that `schema` names; unknown
columns lose their texts. Triggers, views, indexes and free pages are not copied.
"""

from __future__ import annotations

import errno
import os
import shlex
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from pathlib import Path, PurePath

from bridge.importers.errors import NotAReport, ReportError
from bridge.importers.nsys import schema
from bridge.importers.nsys.read import check_file
from bridge.importers.nsys.secrets import REMOVED, Secrets
from bridge.importers.records import record

IS_TEXT = "typeof({0}) IN ('text', 'blob')"
USED_IDS = "scrub_used"  # a temporary table: ids of kept strings
BATCH = 5_000  # texts that are searched at once
STEPS = 1_000_000  # of SQLite between two looks for an interrupt, about 20 ms


class SuspiciousTextError(ReportError):
    """Texts that look like secrets would remain in a copy that must have none."""


@record
class Removals:
    """The kinds of data removed from a copy."""

    rows: dict[str, int]  # of emptied tables
    variables: int  # of the environment, in these rows
    texts: int  # strings that no kept row refers to
    values: dict[str, int]  # removed texts of other tables, by table.column
    replaced: dict[str, int]  # places in kept texts, by the kind of what stood there, most first
    suspicious: dict[str, int]  # words that stay and look like secrets: in how many texts each is


def scrub(
    source: Path,
    target: Path,
    *,
    keep: Collection[str] = (),
    also: Collection[str] = (),
    strict: bool = False,
) -> Removals:
    """Write a copy of an export to ``target``, a file that is new or empty.

    ``keep`` are words that stay, ``also`` words that are removed wherever they occur. Raises
    `ReportError` if ``source`` is damaged or no export, `SuspiciousTextError` with ``strict`` if words
    remain that look like secrets, and OSError if ``target`` cannot be written.
    """
    check_file(source)
    secrets = Secrets(keep=frozenset(word.lower() for word in keep))
    secrets.add(also, "given by --also")
    with closing(sqlite3.connect(target.absolute(), uri=True, isolation_level=None)) as database:
        copy = _Copy(database, secrets)
        try:
            removals = copy.write(source)
        except sqlite3.Error as error:
            raise _explained(error, source) from error
    if strict and removals.suspicious:
        words = ", ".join(list(removals.suspicious)[:5])
        raise SuspiciousTextError(
            f"{source.name}: {len(removals.suspicious)} words look like secrets ({words});"
            " remove them with --also, or accept them with --keep"
        )
    return removals


def _explained(error: sqlite3.Error, source: Path) -> BaseException:
    """Return what an error of SQLite means: an interrupt, a full disk, or a damaged source."""
    code = getattr(error, "sqlite_errorcode", None)
    if code == sqlite3.SQLITE_INTERRUPT:
        return KeyboardInterrupt()
    if code == sqlite3.SQLITE_FULL:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return NotAReport(f"{source.name}: damaged ({error}); export or copy it again")


class _Copy:
    """A copy in the making.

    Texts are handed over as bytes, since an export may hold texts that are no valid UTF-8. What
    SQLite calls for each of them is a look-up alone, which an interrupt cannot end halfway.
    """

    def __init__(self, database: sqlite3.Connection, secrets: Secrets) -> None:
        self._database = database
        self._sql = database.execute
        self._secrets = secrets
        self._tables: dict[str, dict[str, str]] = {}
        self._values: dict[str, int] = {}
        self._encoding = "UTF-8"
        self._changed: dict[bytes, str] = {}  # cleaned texts, where they differ
        self._programs: dict[bytes, str] = {}  # cleaned last parts of the paths of processes
        self._suspicious: Counter[str] = Counter()
        database.text_factory = lambda raw: raw.decode(errors="replace")
        # Python sees an interrupt only while it runs, and SQLite must be told.
        database.set_progress_handler(lambda: False, STEPS)

    def write(self, source: Path) -> Removals:
        self._attach(source)
        self._tables = dict(self._columns())
        if schema.STRINGS.name not in self._tables:
            raise NotAReport(f"{source.name}: an SQLite database, but not an Nsight Systems export")
        self._learn()
        self._sql("BEGIN")
        rows = {t: self._count_removed(t) for t in schema.EMPTIED_TABLES if t in self._tables}
        for table, columns in self._tables.items():
            # A table whose name contains a secret is not nsys'.
            has_secret = any(map(self._secrets.occurs_in, (table, *columns)))
            if table != schema.STRINGS.name and not has_secret:
                self._copy(table, columns)
        texts = self._copy_strings()
        self._sql("COMMIT")
        return Removals(
            rows={table: count for table, count in rows.items() if count},
            variables=len(self._secrets.variables),
            texts=texts,
            values=self._values,
            replaced=dict(self._secrets.removed.most_common()),
            suspicious=dict(self._suspicious.most_common()),
        )

    def _attach(self, source: Path) -> None:
        uri = f"{source.absolute().as_uri()}?mode=ro&immutable=1"
        with closing(sqlite3.connect(uri, uri=True)) as original:
            self._encoding = original.execute("PRAGMA encoding").fetchone()[0]
        self._sql(f"PRAGMA encoding = '{self._encoding}'")  # of both, or they cannot be joined
        self._sql("PRAGMA journal_mode = OFF")
        self._sql("PRAGMA trusted_schema = OFF")
        self._sql("ATTACH ? AS old", (uri,))
        self._database.create_function("changed", 1, self._changed.get)
        self._database.create_function("program", 1, self._programs.get)

    def _columns(self) -> Iterator[tuple[str, dict[str, str]]]:
        """Yield each ordinary table and its columns with their types."""
        tables = "SELECT name, sql FROM old.sqlite_schema WHERE type = 'table' ORDER BY name"
        for table, sql in self._sql(tables).fetchall():
            if not str(sql).upper().startswith("CREATE VIRTUAL") and not table.startswith(
                "sqlite_"
            ):
                columns = self._sql("SELECT name, type FROM pragma_table_info(?, 'old')", (table,))
                yield table, dict(columns.fetchall())

    # -- What is secret

    def _learn(self) -> None:
        """Learn the words that must not occur in texts."""
        arguments: dict[str, dict[int, str]] = {}
        for name, value in self._names_and_values((*schema.EMPTIED_TABLES, *VERSION_TABLES)):
            self._secrets.learn_environment(value)
            if match := schema.ARGUMENT_ROW.fullmatch(name):
                arguments.setdefault(match["process"], {})[int(match["number"])] = value
            if name.endswith(schema.COMMAND_ROWS):
                self._secrets.learn_arguments(_words(value))
            if name.endswith(schema.HOST_ROWS):
                self._secrets.learn_facts((), [value])
            if name.endswith(schema.USER_ROWS):
                self._secrets.learn_facts([value], ())
        for of_process in arguments.values():
            self._secrets.learn_arguments([of_process[number] for number in sorted(of_process)])

    def _names_and_values(self, tables: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yield the rows of tables of names and values."""
        for table in tables:
            if {"name", "value"} <= self._tables.get(table, {}).keys():
                for name, value in self._sql(f"SELECT name, value FROM old.{_quoted(table)}"):
                    yield str(name), str(value)

    # -- Tables

    def _copy(self, table: str, columns: dict[str, str]) -> None:
        declarations = ", ".join(f"{_quoted(c)} {_type(kind)}" for c, kind in columns.items())
        self._sql(f"CREATE TABLE main.{_quoted(table)} ({declarations})")
        if table in schema.EMPTIED_TABLES:
            self._copy_facts(table)
            return
        expressions = ", ".join(self._expression(table, column) for column in columns)
        self._sql(
            f"INSERT INTO main.{_quoted(table)} SELECT {expressions} FROM old.{_quoted(table)}"
        )

    def _copy_facts(self, table: str) -> None:
        """Copy the rows of an emptied table that tell whether the machine has a GPU."""
        if self._has_facts(table):
            rows = f"FROM old.{_quoted(table)} WHERE {_is_kept_fact(table)}"
            self._clean(f"SELECT DISTINCT CAST(value AS BLOB) {rows}")
            self._sql(
                f"INSERT INTO main.{_quoted(table)} (name, value)"
                f" SELECT name, coalesce(changed(CAST(value AS BLOB)), value) {rows}"
            )

    def _has_facts(self, table: str) -> bool:
        return table in schema.KEPT_FACTS and {"name", "value"} <= self._tables[table].keys()

    def _expression(self, table: str, column: str) -> str:
        """Return the SQL expression of a column in the copy; counts the texts that are removed."""
        name, raw = _quoted(column), f"CAST({_quoted(column)} AS BLOB)"
        is_text = IS_TEXT.format(name)
        if column.lower() in schema.HARDWARE_ID_COLUMNS:
            return "NULL"
        if table == schema.PROCESSES.name and column == "name":
            self._clean_programs(f"SELECT DISTINCT {raw} FROM old.{_quoted(table)} WHERE {is_text}")
            return f"CASE WHEN {is_text} THEN program({raw}) ELSE {name} END"
        if column in _kept_text_columns(table):
            is_kept = f"typeof({name}) = 'text'"
            self._clean(f"SELECT DISTINCT {raw} FROM old.{_quoted(table)} WHERE {is_kept}")
            changed = f"coalesce(changed({raw}), {name})"
            return f"CASE WHEN {is_kept} THEN {changed} WHEN {is_text} THEN NULL ELSE {name} END"
        is_removed = f"{is_text} AND NOT {IS_VERSION_ROW if table in VERSION_TABLES else '0'}"
        counted = f"SELECT count(*) FROM old.{_quoted(table)} WHERE {is_removed}"
        if count := self._sql(counted).fetchone()[0]:
            self._values[f"{table}.{column}"] = count
        return f"CASE WHEN {is_removed} THEN NULL ELSE {name} END"

    def _copy_strings(self) -> int:
        """Copy the strings that a kept row refers to; return the number of all others."""
        self._sql(f"CREATE TEMP TABLE {USED_IDS} (id PRIMARY KEY) WITHOUT ROWID")
        for table, columns in self._tables.items():
            if table in {*schema.EMPTIED_TABLES, schema.STRINGS.name}:
                continue
            for column in schema.STRING_ID_COLUMNS & columns.keys():
                name = _quoted(column)
                self._sql(
                    f"INSERT OR IGNORE INTO temp.{USED_IDS} SELECT {name} FROM old.{_quoted(table)}"
                    f" WHERE typeof({name}) = 'integer'"
                )
        strings = _quoted(schema.STRINGS.name)
        self._sql(f"CREATE TABLE main.{strings} (id INTEGER PRIMARY KEY, value TEXT)")
        is_kept = f"id IN (SELECT id FROM temp.{USED_IDS})"
        raw = "CAST(value AS BLOB)"
        self._clean(f"SELECT {raw} FROM old.{strings} WHERE {is_kept} AND value IS NOT NULL")
        self._sql(
            f"INSERT INTO main.{strings} SELECT id,"
            f" CASE WHEN {is_kept} THEN coalesce(changed({raw}), value) ELSE ? END FROM old.{strings}",
            (REMOVED,),
        )
        return int(
            self._sql(f"SELECT count(*) FROM old.{strings} WHERE NOT {is_kept}").fetchone()[0]
        )

    def _count_removed(self, table: str) -> int:
        """Return the number of rows of an emptied table that are not copied."""
        is_removed = f"NOT ({_is_kept_fact(table)})" if self._has_facts(table) else "1"
        count = f"SELECT count(*) FROM old.{_quoted(table)} WHERE {is_removed}"
        return int(self._sql(count).fetchone()[0])

    # -- Texts

    def _clean(self, texts: str) -> None:
        """Clean the texts that a query gives as `raw`, once each."""
        rows = self._sql(texts)
        while batch := [raw for (raw,) in rows.fetchmany(BATCH)]:
            new = [raw for raw in batch if raw not in self._changed]
            decoded = [raw.decode(self._encoding, "replace") for raw in new]
            cleaned = self._cleaned(decoded)
            for raw, before, after in zip(new, decoded, cleaned, strict=True):
                if after != before:
                    self._changed[raw] = after

    def _clean_programs(self, paths: str) -> None:
        """Clean the last parts of the paths that a query gives as `raw`."""
        rows = [raw for (raw,) in self._sql(paths)]
        names = [_last_part(raw.decode(self._encoding, "replace")) for raw in rows]
        self._programs.update(zip(rows, self._cleaned(names), strict=True))

    def _cleaned(self, texts: list[str]) -> list[str]:
        cleaned = self._secrets.clean(texts)
        for text in cleaned:
            self._suspicious.update({*self._secrets.suspicious(text)})
        return cleaned


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an open quote
        return command.split()


def _last_part(path: str) -> str:
    return PurePath(path.replace("\\", "/")).name


VERSION_TABLES = {versions.name for versions in schema.VERSIONS}
IS_VERSION_ROW = "name LIKE 'EXPORT\\_%VERSION%' ESCAPE '\\'"


def _kept_text_columns(table: str) -> tuple[str, ...]:
    for name, columns in schema.KEPT_TEXTS.items():
        if table == name or (name.endswith("*") and table.startswith(name[:-1])):
            return columns
    return ()


def _is_kept_fact(table: str) -> str:
    """Return the SQL condition of the rows of an emptied table that stay: known names of versions and switches."""
    is_known = " OR ".join(f"name GLOB '{name}'" for name in schema.KEPT_FACTS[table])
    is_version = "value GLOB '[0-9]*' AND value NOT GLOB '*[^0-9.]*'"
    is_switch = "lower(value) IN ('', 'true', 'false')"
    is_harmless = is_switch if table == schema.CAPTURE.name else is_version
    return f"coalesce(({is_known}) AND typeof(value) = 'text' AND {is_harmless}, 0)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _type(type_: str) -> str:
    """Return a column's type, '' unless it is a single word: it becomes part of a statement."""
    return type_ if type_.isalpha() else ""
