"""Make exports of Nsight Systems: from .nsys-rep files with nsys, or from rows.

`exported` runs the ``nsys export`` of this machine into a temporary folder, which is deleted
afterwards; the folder of the input does not change. `write_export` writes small exports for the
demonstration and for tests without a GPU.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from bridge.importers.column_files import ARROW, open_tables, write_texts
from bridge.importers.errors import ExportFailed
from bridge.importers.nsys import schema
from bridge.importers.nsys.tables import Table
from bridge.importers.programs import find_program
from bridge.importers.records import record
from bridge.importers.sqlite_columns import Database, texts_of

LOG = logging.getLogger("bridge.importers")

SUFFIXES = (".nsys-rep", ".qdrep")
TIME_LIMIT_S = 3600
HELP_LIMIT_S = 60
SQLITE, CHOICE = "sqlite", "BRIDGE_NSYS_EXPORT"
FASTER = ("arrowdir", "arrow")  # forms that are exported and read faster, the best first


# -- Exports by nsys


@record
class Offer:
    """The forms of exports that an nsys offers, and whether it exports single tables."""

    forms: frozenset[str]
    single_tables: bool

    @classmethod
    def of(cls, nsys: str) -> Self:
        """Return what the help of an nsys says; no forms if it is not understood."""
        done = _run([nsys, "export", "--help"], HELP_LIMIT_S)
        text = done.stdout + done.stderr if isinstance(done, subprocess.CompletedProcess) else ""
        listed = re.search(r"--type=\s*Possible values are:([^.]*)\.", text)
        forms = frozenset(re.findall(r"\w+", listed[1])) if listed else frozenset()
        return cls(forms, "--tables=" in text)


def fastest_form() -> str:
    """Return the fastest form that the nsys of this machine exports and that is read here.

    ``$BRIDGE_NSYS_EXPORT`` set to ``sqlite`` rules out the others.
    """
    nsys = None if os.environ.get(CHOICE) == SQLITE else find_program("nsys")
    forms = Offer.of(nsys).forms if nsys else frozenset()
    fastest = next((form for form in FASTER if form in forms), SQLITE)
    LOG.debug("nsys is %s; it exports %s; taken: %s", nsys, sorted(forms), fastest)
    return fastest


@contextmanager
def exported(path: Path, form: str = SQLITE) -> Iterator[Path]:
    """Yield the export of a report under the report's name; it is deleted afterwards.

    ``form`` is a type of ``nsys export``. A columnar export gets the table that nsys writes only
    into SQLite exports. Raises ExportFailed.
    """
    nsys = find_program("nsys")
    if nsys is None:
        raise ExportFailed(
            f"{path.name}: reading it needs nsys, which is not on the PATH; install Nsight Systems,"
            f" or run 'nsys export --type sqlite {path.name}' where it was recorded"
        )
    with tempfile.TemporaryDirectory(prefix="bridge-export-") as folder:
        target = Path(folder) / f"export.{form}"
        _export(nsys, path, target, form)
        if form != SQLITE:
            _add_capture(nsys, path, target)
        yield target.rename(target.with_name(path.name))


def _export(nsys: str, path: Path, target: Path, form: str, *options: str) -> None:
    command = [nsys, "export", "--type", form, *options, "--output", str(target)]
    done = _run([*command, str(path.resolve())], TIME_LIMIT_S)
    if not isinstance(done, subprocess.CompletedProcess):
        raise ExportFailed(f"{path.name}: nsys export did not run: {done}") from done
    # A failed export leaves a readable database without rows: check the exit status.
    if done.returncode or not target.exists():
        raise ExportFailed(
            f"{path.name}: nsys export failed ({_error_line(done.stdout + done.stderr)});"
            f" is {nsys} ({_version(nsys)}) older than the nsys that recorded it?"
        )


def _run(
    command: Sequence[str], limit: int
) -> subprocess.CompletedProcess[str] | OSError | subprocess.TimeoutExpired:
    """Run a command; return its output, or why it did not run."""
    LOG.debug("running %s", command)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=limit, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return error
    LOG.debug("%s ended with exit status %d", command[0], done.returncode)
    return done


def _add_capture(nsys: str, path: Path, target: Path) -> None:
    """Add to a columnar export the table of the capture's settings, with ranks, if nsys left it out.

    Raises ExportFailed if this nsys cannot export the table alone.
    """
    tables, name = open_tables(target), schema.CAPTURE.name
    if name in tables or schema.VERSIONS[0].name not in tables:  # older exports have none
        return
    if not Offer.of(nsys).single_tables:
        raise ExportFailed(f"{path.name}: {nsys} exports no single tables")
    database = target.with_name("capture.sqlite")
    _export(nsys, path, database, SQLITE, "--tables", name)
    columns = _texts(database, schema.CAPTURE)
    if target.is_dir():
        write_texts(target / f"{name}{ARROW}", name, columns)
    else:
        write_texts(target, name, columns)


def _texts(database: Path, table: Table) -> dict[str, list[str]]:
    """Return the columns of a table of texts; none if the export has no such table."""
    with Database(database) as export:
        query = table.query(export.tables())
        columns = export.read({table.name: query})[table.name] if query else {}
    return {
        column.sources[0]: texts_of(columns, name).decode() if columns else []
        for name, column in table.columns.items()
    }


def _error_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line or "failed" in line.lower()]
    return (errors or lines or ["no message"])[-1][:200]


def _version(nsys: str) -> str:
    done = _run([nsys, "--version"], HELP_LIMIT_S)
    words = done.stdout.split() if isinstance(done, subprocess.CompletedProcess) else []
    return words[-1] if words else "unknown version"


# -- Exports from rows


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
