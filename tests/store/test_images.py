"""Images of tables, against what SQLite reads of them, and what it makes of the same rows one by one."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_reports import changed

from bridge.importers.texts import Texts
from bridge.store import bulk, images
from bridge.store.images import Column
from bridge.store.tables import open_store

STATEMENT = 'CREATE TABLE "t" ("id" INTEGER PRIMARY KEY, "run" INTEGER, "a" INTEGER, "text" TEXT, "b" INTEGER, "more" TEXT)'
NAMES = ("run", "a", "text", "b", "more")
EDGES = [
    number + d
    for bits in (7, 15, 23, 31, 47, 63)
    for number in (2**bits, -(2**bits))
    for d in (-1, 0)
]
INTS = st.sampled_from([-1, 0, 1, *(n for n in EDGES if -(2**63) <= n < 2**63)])
# 57 and 58 bytes, 8185 and 8186: where a text's serial type takes a byte more.
TEXTS = st.one_of(
    st.text(max_size=4).map(str.encode),
    st.sampled_from([b"", b"\xff\x00\xfe", *(b"x" * n for n in (57, 58, 8185, 8186, 30_000))]),
)
ROWS = st.lists(st.tuples(st.just(3), INTS, TEXTS, INTS, TEXTS), min_size=1, max_size=30)
Row = tuple[int, int, bytes, int, bytes]


def columns(rows: list[Row]) -> dict[str, Column]:
    values = dict(zip(NAMES, zip(*rows, strict=True), strict=True))
    return {
        name: Texts.of(value) if name in ("text", "more") else np.array(value, np.int64)
        for name, value in values.items()
    }


def expected(rows: list[Row], first: int = 1) -> list[tuple[Any, ...]]:
    missing = [tuple(None if value in (-1, b"") else value for value in row) for row in rows]
    return [(number, *row) for number, row in enumerate(missing, first)]


def stored(path: Path, table: str = "t") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        connection.text_factory = bytes
        return connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall()


@given(rows=ROWS, first=st.sampled_from([1, 127, 128, 2**31, 2**35 - 40]), chunk=st.integers(1, 9))
def test_sqlite_reads_from_an_image_what_was_put_in(
    rows: list[Row], first: int, chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("image") / "image.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(images, "CHUNK", chunk)
        patch.setattr(images, "MOST_CHILDREN", 3)  # several levels of pages
        with path.open("wb") as file:
            images.write_image(file, "t", STATEMENT, [None, *columns(rows).values()], first)
    assert stored(path) == expected(rows, first)


def test_an_image_has_as_many_columns_as_the_kinds_of_a_row_fit_into_an_integer(
    tmp_path: Path,
) -> None:
    number, text = np.array([-1, 7, 7]), Texts.of([b"", b"a", b"b"])
    assert not images.fits([number] * 70)
    assert not images.fits([None, *[number] * 63])
    assert not images.fits([*[text] * 30, number, number, number])
    most = [number] * 62
    assert images.fits([None, *most])
    names = ", ".join(f'"c{n}" INTEGER' for n in range(len(most)))
    statement = f'CREATE TABLE "t" ("id" INTEGER PRIMARY KEY, {names})'
    most[61] = np.array([-1, -1, 7])
    with (tmp_path / "image.db").open("wb") as file:
        images.write_image(file, "t", statement, [None, *most], 1)
    first, second, third = stored(tmp_path / "image.db")
    assert first == (1, *[None] * 62)
    assert second == (2, *[7] * 61, None)
    assert third == (3, *[7] * 62)


@given(before=ROWS, rows=ROWS)
def test_rows_are_the_same_by_an_image_and_one_by_one(
    before: list[Row], rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("store")
    for name, large in (("image", 1), ("single", 10**9)):
        path = folder / f"{name}.db"
        changed(path, STATEMENT)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bulk, "LARGE", large)
            for part in (before, rows):
                assert bulk.append(path, [("t", columns(part))]) == {"t": len(part)}
        assert stored(path) == expected([*before, *rows]), name
    assert sorted(path.name for path in folder.iterdir()) == ["image.db", "single.db"]


def test_texts_that_do_not_fit_into_a_page_go_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    changed(path, STATEMENT)
    rows: list[Row] = [(3, 7, b"x" * size, 7, b"") for size in (10, images.PAGE)]
    assert not images.fits(list(columns(rows).values()))
    monkeypatch.setattr(bulk, "LARGE", 1)
    bulk.append(path, [("t", columns(rows))])
    assert stored(path) == expected(rows)


def test_where_an_image_has_no_room_rows_go_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    changed(path, STATEMENT)
    rows: list[Row] = [(3, n, b"x", 7, b"") for n in range(5)]
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(bulk, "LARGE", 1)
    monkeypatch.setattr(images, "_first_page", raising(full))
    bulk.append(path, [("t", columns(rows))])
    assert stored(path) == expected(rows)
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_given: object) -> None:
        raise error

    return fail


def test_a_table_with_reals_has_no_image() -> None:
    assert images.fits([np.array([1]), None])
    assert not images.fits([np.array([1]), np.array([0.5])])


def test_sqlite_copies_records_of_an_image_as_they_are(tmp_path: Path) -> None:
    """The tables of a store, migrated ones too, must be equal to those of the image, or SQLite takes them apart."""
    path = tmp_path / "bridge.db"
    path.touch()
    with open_store(path) as database:
        connection = database.conn
        for table in ("ranges", "activities", "launches"):
            (sql,) = connection.execute(
                "SELECT sql FROM sqlite_master WHERE name = ?", [table]
            ).fetchone()
            image = tmp_path / f"{table}.db"
            changed(image, sql)
            connection.execute(f"ATTACH ? AS image_{table}", [str(image)])
            plan = f"EXPLAIN INSERT INTO main.{table} SELECT * FROM image_{table}.{table}"
            codes = {row[1] for row in connection.execute(plan)}
            assert codes & {"RowCell", "RowData"}, table
            assert "MakeRecord" not in codes, table


def test_images_of_a_killed_import_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    changed(path, STATEMENT)
    left, other = tmp_path / f".x.db-abc{bulk.IMAGE_SUFFIX}", tmp_path / ".y.db-abc.rows"
    left.touch()
    other.touch()
    bulk.append(path, [("t", columns([(3, 1, b"", 1, b"")]))])
    assert not left.exists()
    assert other.exists()
