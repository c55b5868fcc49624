"""A copy of an export without what says who ran it, where, and with which secrets.

The copy is made anew, table by table: numbers as they are, of texts only those that `schema` names. What is not
known cannot stay by mistake. Triggers, views, indexes and free pages of the original are not copied.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePath

from importers.errors import NotAReport
from importers.nsys import schema
from importers.nsys.read import sound

# -- What must not stand in a name that stays: host and user, secret variables, folders of this machine


REMOVED = "(removed)"
SHORTEST = 4  # characters: "vm" as the name of a host would be found in every second word
SECRET = re.compile(
    r"TOKEN|KEY|SECRET|PASS|PWD|CRED|AUTH|COOKIE|PRIVATE|_URL$|_URI$|DSN|CONN|WEBHOOK",
    re.IGNORECASE,
)
WHOSE = frozenset("USER LOGNAME USERNAME SUDO_USER SLURM_JOB_USER HOSTNAME HOST".split())
# Values that tell nothing, and that stand in names: a kernel's <float, false>, a function find_root.
COMMON = frozenset("true false none null root user admin default localhost python".split())
LETTER = re.compile(r"[A-Za-z0-9]")
VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
LOGIN = re.compile(r"://([^/\s:@]+)(?::([^/\s@]+))?@")  # of an address
# Folders of machines, not of models: "/layers/0/attn" is a fine name. A home's owner goes even where nothing follows.
ROOTS = (
    r"tmp|var|opt|usr|mnt|media|srv|etc|proc|run|work|workspace|workdir|scratch|project|projects|data|datasets"
    r"|lustre|gpfs|nfs|fsx|efs|s3|gs|Volumes|private|content|kaggle|shared|storage|cluster"
)
PART = r"[^/\\:;,\"'()<>|\r\n]+"
FOLDERS = re.compile(
    rf"(?:/(?:home\d*|homes|Users)/{PART}|[A-Za-z]:\\Users\\{PART}|/root|(?<![\w:])~\w+(?=/))(?:[/\\](?:{PART}[/\\])*|(?=$|[^\w/\\]))"
    rf"|(?:/(?:{ROOTS})|[A-Za-z]:(?=\\))(?:[/\\]{PART})*[/\\]"
)


@dataclass
class Secrets:
    """Words that are to go, and how often each kind went."""

    words: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)  # names, of environment variables
    cleaned: int = 0  # texts that were changed

    def environment(self, text: str) -> None:
        """Learn from variables, NAME=value with a NUL or a line's end between."""
        name = ""
        for entry in re.split(r"[\0\n]", text):
            found = VARIABLE.fullmatch(entry)
            if found:
                name = found[1]
                self.variables.add(name)
            # A line that names no variable goes on with the value of the last.
            value = found[2] if found else entry
            if SECRET.search(name) or name in WHOSE:
                self.learn([value, *(word for pair in LOGIN.findall(value) for word in pair)])

    def host(self, name: str) -> None:
        """Learn the name of a machine, whole and without its domain."""
        self.learn([name, name.partition(".")[0]])

    def learn(self, words: Iterable[str]) -> None:
        """Have these words go wherever they stand."""
        told = (word.strip() for word in words)
        self.words |= {
            word
            for word in told
            if len(word) >= SHORTEST and word.lower() not in COMMON and not _is_number(word)
        }

    def clean(self, text: str | None) -> str | None:
        """Return a text without any of them, its paths without their folders."""
        if text is None:
            return None
        found = self._known.sub(REMOVED, FOLDERS.sub("…/", text))
        self.cleaned += found != text
        return found

    def in_it(self, text: str) -> bool:
        """Tell whether one of the words stands in a text."""
        return self._known.search(text) is not None

    @cached_property
    def _known(self) -> re.Pattern[str]:
        """All words, as whole words; to be asked for when all are learnt."""
        longest_first = sorted(self.words, key=len, reverse=True)
        return re.compile("|".join(map(_whole, longest_first)) or r"(?!)", re.IGNORECASE)


def _whole(word: str) -> str:
    """Return a pattern for a word as a whole; an end that is no letter or digit parts it from whatever follows."""
    before, after = (LETTER.match(end) is not None for end in (word[0], word[-1]))
    return f"{'(?<![A-Za-z0-9])' if before else ''}{re.escape(word)}{'(?![A-Za-z0-9])' if after else ''}"


def _is_number(word: str) -> bool:
    return word.replace(".", "").replace("-", "").isdigit()


# -- A copy of an export without what says who ran it, where, and with which secrets


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
