"""Append the rows of tables to the store, without a Python object per row of a large one."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from glob import escape
from itertools import pairwise
from pathlib import Path
from tempfile import mkstemp
from typing import Any, NamedTuple

import numpy as np

from bridge.importers.texts import Texts
from bridge.join.arrays import NONE
from bridge.output import OutputError
from bridge.store import images
from bridge.store.images import Column
from bridge.store.tables import PATIENCE_S

LARGE = 20_000  # rows from which an image saves time
MOST_IMAGES = 9  # SQLite attaches ten databases at most
IMAGE_SUFFIX = ".rows"


def append(path: Path, tables: Iterable[tuple[str, dict[str, Column]]]) -> dict[str, int]:
    """Append columns to tables of a store in one transaction; return the number of rows per table.

    Missing values (-1, NaN, empty texts) become NULL. Raises OutputError if the store
    cannot be written; nothing is appended then. The caller is the only writer of the store.
    """
    counts: dict[str, int] = {}
    _remove_images(path)
    try:
        with closing(_connection(path)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            for table, columns in tables:
                counts[table] = len(columns["run"])
                if counts[table]:
                    _append(connection, path, _Table.of(connection, table), columns)
            connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise OutputError(f"{path}: {error}; nothing was stored") from error
    finally:
        _remove_images(path)
    return counts


def _connection(path: Path) -> sqlite3.Connection:
    uri = path.absolute().as_uri() + "?mode=rw"
    return sqlite3.connect(uri, timeout=PATIENCE_S, isolation_level=None, uri=True)


class _Table(NamedTuple):
    """A table of a store: its name, statement and columns, and the column that is the row's number."""

    name: str
    statement: str
    columns: tuple[str, ...]
    key: str | None

    @classmethod
    def of(cls, connection: sqlite3.Connection, name: str) -> _Table:
        (statement,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", [name]
        ).fetchone()
        columns = connection.execute(f'PRAGMA table_info("{name}")').fetchall()
        keys = [column for _, column, kind, _, _, key in columns if key and kind == "INTEGER"]
        names = tuple(column for _, column, *_ in columns)
        return cls(name, statement, names, keys[0] if len(keys) == 1 else None)


def _append(
    connection: sqlite3.Connection, path: Path, table: _Table, columns: dict[str, Column]
) -> None:
    arranged = [None if name == table.key else columns.get(name) for name in table.columns]
    attached = len(connection.execute("PRAGMA database_list").fetchall()) - 1
    is_large = len(columns["run"]) >= LARGE and attached < MOST_IMAGES
    image = _image(connection, path, table, arranged) if is_large else None
    if image is None:
        _insert(connection, table.name, columns)
        return
    schema = f"image{attached}"
    connection.execute(f"ATTACH ? AS {schema}", [f"{image.as_uri()}?mode=ro&immutable=1"])
    image.unlink()  # SQLite reads on from what it has opened
    connection.execute(f'INSERT INTO main."{table.name}" SELECT * FROM {schema}."{table.name}"')


def _image(
    connection: sqlite3.Connection, path: Path, table: _Table, columns: Sequence[Column | None]
) -> Path | None:
    """Write the image of rows beside the store; None if images cannot have them, or there is no room for one."""
    if not images.fits(columns):
        return None
    sql = f'SELECT coalesce(max(rowid), 0) + 1 FROM "{table.name}"'
    (first,) = connection.execute(sql).fetchone()
    try:
        handle, name = mkstemp(IMAGE_SUFFIX, _image_prefix(path), path.absolute().parent)
        with os.fdopen(handle, "wb") as file:
            images.write_image(
                file, table.name, statement=table.statement, columns=columns, first=first
            )
    except OSError:
        _remove_images(path)
        return None
    return Path(name)


def _image_prefix(path: Path) -> str:
    return f".{path.name}-"


def _remove_images(path: Path) -> None:
    """Remove the images of an import that failed or was killed."""
    for image in path.absolute().parent.glob(f"{escape(_image_prefix(path))}*{IMAGE_SUFFIX}"):
        image.unlink(missing_ok=True)


def _insert(connection: sqlite3.Connection, table: str, columns: dict[str, Column]) -> None:
    """Insert rows value by value."""
    # A text may be invalid UTF-8, so it comes as bytes.
    places = ["CAST(? AS TEXT)" if isinstance(c, Texts) else "?" for c in columns.values()]
    names = ", ".join(f'"{name}"' for name in columns)
    connection.executemany(
        f'INSERT INTO "{table}" ({names}) VALUES ({", ".join(places)})',
        zip(*map(_values, columns.values()), strict=True),
    )


def _values(column: Column) -> list[Any]:
    """Return the values of a column, None for those that are missing."""
    if isinstance(column, Texts):
        data, offsets = column.data.tobytes(), column.offsets.tolist()
        return [data[begin:end] or None for begin, end in pairwise(offsets)]
    missing = column == NONE if column.dtype == np.int64 else np.isnan(column)
    values: list[Any] = column.tolist()
    for row in np.flatnonzero(missing).tolist():
        values[row] = None
    return values
