"""Make SQLite exports of Nsight Systems: from .nsys-rep files with nsys, or from rows.

`exported` runs the ``nsys export`` of this machine into a temporary folder, which is deleted
afterwards; the folder of the input does not change. `write_export` writes small exports for the
demonstration and for tests without a GPU.
"""

from __future__ import annotations

import sqlite3
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from importers.errors import ExportFailed
from importers.nsys import schema
from importers.nsys.schema import Table
from importers.programs import find_program

SUFFIXES = (".nsys-rep", ".qdrep")
TIME_LIMIT_S = 3600


@contextmanager
def exported(path: Path) -> Iterator[Path]:
    """Yield the SQLite export of a report under the report's name; it is deleted afterwards."""
    nsys = find_program("nsys")
    if nsys is None:
        raise ExportFailed(
            f"{path.name}: reading it needs nsys, which is not on the PATH; install Nsight Systems,"
            f" or run 'nsys export --type sqlite {path.name}' where it was recorded"
        )
    with tempfile.TemporaryDirectory(prefix="bridge-export-") as folder:
        target = Path(folder) / "export.sqlite"
        _export(nsys, path, target)
        yield target.rename(target.with_name(path.name))


def _export(nsys: str, path: Path, target: Path) -> None:
    command = [nsys, "export", "--type", "sqlite", "--output", str(target), str(path.resolve())]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIME_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExportFailed(f"{path.name}: nsys export did not run: {error}") from error
    # A failed export leaves a readable database without rows: check the exit status.
    if done.returncode or not target.exists():
        raise ExportFailed(
            f"{path.name}: nsys export failed ({_error_line(done.stdout + done.stderr)});"
            f" is {nsys} ({_version(nsys)}) older than the nsys that recorded it?"
        )


def _error_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if "rror" in line or "failed" in line.lower()]
    return (errors or lines or ["no message"])[-1][:200]


def _version(nsys: str) -> str:
    command = [nsys, "--version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown version"
    return (done.stdout.split() or ["unknown version"])[-1]


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
    types = {column.sources[0]: column.kind for column in table.columns.values()}
    declarations = ", ".join(f'"{name}" {type_}' for name, type_ in types.items())
    connection.execute(f'CREATE TABLE "{table.name}" ({declarations})')
    for row in rows:
        values = {columns[ours]: value for ours, value in row.items()}
        names, placeholders = ", ".join(f'"{c}"' for c in values), ", ".join("?" * len(values))
        connection.execute(
            f'INSERT INTO "{table.name}" ({names}) VALUES ({placeholders})', list(values.values())
        )
