"""Columns that are appended to a table, against what SQLite reads of it."""

from __future__ import annotations

import resource
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_reports import changed

from bridge.importers.texts import Texts
from bridge.output import OutputError
from bridge.store import bulk
from bridge.store.bulk import Column

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


@given(before=ROWS, rows=ROWS)
def test_sqlite_reads_what_was_appended(
    before: list[Row], rows: list[Row], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("store") / "x.db"
    changed(path, STATEMENT)
    for part in (before, rows):
        assert bulk.append(path, [("t", columns(part))]) == {"t": len(part)}
    assert stored(path) == expected([*before, *rows])
    assert [file.name for file in path.parent.iterdir()] == ["x.db"]


def test_reals_are_stored_and_what_is_no_number_is_null(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    changed(path, 'CREATE TABLE "t" ("id" INTEGER PRIMARY KEY, "run" INTEGER, "a" REAL)')
    bulk.append(path, [("t", {"run": np.array([3, 3]), "a": np.array([0.5, np.nan])})])
    assert stored(path) == [(1, 3, 0.5), (2, 3, None)]


@contextmanager
def limited_files(size: int) -> Iterator[None]:
    """Let files grow to this size at most, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_store_without_room_is_left_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    changed(path, STATEMENT)
    bulk.append(path, [("t", columns([(2, 7, b"y", 7, b"")]))])
    rows: list[Row] = [(3, 7, b"x" * 1000, 7, b"") for _ in range(50_000)]
    with limited_files(1_000_000), pytest.raises(OutputError, match="nothing was stored"):
        bulk.append(path, [("t", columns(rows))])
    assert stored(path) == expected([(2, 7, b"y", 7, b"")])
