"""Tables read from the pages of a file are those that SQLite reads, or SQLite reads them."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from real_parts import NIGHT, corpus_reports

from bridge.importers.errors import NotAReport
from bridge.importers.nsys.read import export_queries, readable_tables
from bridge.importers.query import Query, Value
from bridge.importers.sqlite_columns import Columns, Database

NUMBER, TEXT = Value(("n",), -1), Value(("t",), "", is_text=True)
INTEGERS = (0, 1, -1, 127, -128, 255, 32767, -32768, 8388607, 2**31 - 1, -(2**31), 2**47 - 1, 2**63 - 1, -(2**63))  # fmt: skip


def same(one: Columns, other: Columns) -> bool:
    """Tell whether two readings are equal to the byte."""
    return one.keys() == other.keys() and all(
        np.array_equal(a, b)
        if isinstance(a, np.ndarray)
        else (a.offsets - a.offsets[0]).tolist() == (b.offsets - b.offsets[0]).tolist()
        and a.data[a.offsets[0] : a.offsets[-1]].tobytes()
        == b.data[b.offsets[0] : b.offsets[-1]].tobytes()
        for a, b in zip(one.values(), other.values(), strict=True)
    )


def query(table: str, **values: Value) -> Query:
    """Ask for some values of a table."""
    return Query(
        table,
        {name: value.sql for name, value in values.items()},
        frozenset(name for name, value in values.items() if value.is_text),
        values=values,
    )


def within(one: Query, first: int, last: int) -> Query:
    """Ask for rows of a query."""
    return replace(one, rows=(first, last))


def both(path: Path, queries: Mapping[str, Query]) -> tuple[dict[str, Columns], dict[str, Columns]]:
    """Read queries from pages, those that are answered so, and all through SQLite."""
    with Database(path) as database:
        database.tables()
        return database._read_pages(queries), database._run(queries)


def agree(path: Path, queries: Mapping[str, Query]) -> set[str]:
    """Check that both readings are the same; give the names of what was read from pages."""
    pages, rows = both(path, queries)
    for name, columns in pages.items():
        assert same(columns, rows[name]), name
    return set(pages)


class Made:
    """A database in the making."""

    def __init__(self, path: Path, *pragmas: str) -> None:
        self.path, self.base = path, sqlite3.connect(path)
        for pragma in pragmas:
            self.base.execute(f"PRAGMA {pragma}")

    def run(self, sql: str, rows: list[tuple[Any, ...]] | None = None) -> Made:
        if rows is None:
            self.base.execute(sql)
        else:
            self.base.executemany(sql, rows)
        return self

    def done(self) -> Path:
        self.base.commit()
        self.base.close()
        return self.path


@pytest.mark.slow
@pytest.mark.parametrize("path", corpus_reports())
def test_real_exports(path: Path) -> None:
    with Database(path) as database:
        tables = readable_tables(path, database)
        try:
            queries = export_queries(path, tables, details=True)
        except NotAReport:
            return
        pages, rows = database._read_pages(queries), database._run(queries)
    for name, columns in pages.items():
        assert same(columns, rows[name]), name
    numbers = {name for name, one in queries.items() if set(one.values) != set(one.columns)}
    assert set(queries) - set(pages) - numbers <= {"strings"}  # whose long texts have several pages


PAGE_SIZES = [512 << n for n in range(8)]


@pytest.mark.parametrize("size", PAGE_SIZES)
@pytest.mark.parametrize("encoding", ["UTF-8", "UTF-16le"])
def test_every_page_size_and_encoding(size: int, encoding: str, tmp_path: Path) -> None:
    made = Made(tmp_path / "a.sqlite", f"page_size={size}", f"encoding='{encoding}'")
    made.run("CREATE TABLE a (id INTEGER PRIMARY KEY, n INTEGER, t TEXT)")
    rows = [(INTEGERS[i % len(INTEGERS)], "é" * (i % 40)) for i in range(5000)]
    path = made.run("INSERT INTO a (n, t) VALUES (?, ?)", rows).done()
    found = agree(
        path,
        {
            "numbers": query("a", n=NUMBER, id=Value(("id",))),
            "texts": query("a", t=TEXT, n=NUMBER),
        },
    )
    assert found == ({"numbers", "texts"} if encoding == "UTF-8" else {"numbers"})


@pytest.mark.parametrize(
    ("statements", "value", "is_read"),
    [
        (["CREATE TABLE a (n)", "INSERT INTO a VALUES (NULL), (3), (NULL)"], NUMBER, True),
        (["CREATE TABLE a (n)", "INSERT INTO a VALUES (NULL), (3)"], Value(("n",)), False),
        (["CREATE TABLE a (n)", "INSERT INTO a VALUES (1), ('x')"], NUMBER, False),
        (["CREATE TABLE a (n)", "INSERT INTO a VALUES (1), ('x'), (2.5), (x'00')"], Value(("n",), -1, mixed=True), True),
        (["CREATE TABLE a (n REAL)", "INSERT INTO a VALUES (1), (2)"], NUMBER, False),
        (["CREATE TABLE a (x)", "INSERT INTO a VALUES (1)", "ALTER TABLE a ADD COLUMN n INTEGER", "INSERT INTO a VALUES (1, 5)"], NUMBER, True),
        (["CREATE TABLE a (x)", "INSERT INTO a VALUES (1)", "ALTER TABLE a ADD COLUMN n INTEGER DEFAULT 7"], NUMBER, False),
        (["CREATE TABLE a (n INTEGER DEFAULT 7)", "INSERT INTO a VALUES (1), (NULL)"], NUMBER, True),
        (["CREATE TABLE a (n PRIMARY KEY) WITHOUT ROWID", "INSERT INTO a VALUES (1), (2)"], NUMBER, False),
        (["CREATE TABLE a (n INTEGER PRIMARY KEY DESC)", "INSERT INTO a VALUES (5), (2)"], NUMBER, False),
        (["CREATE TABLE a (n INTEGER PRIMARY KEY)", "INSERT INTO a VALUES (5), (2), (-3)"], NUMBER, False),  # a row below 0
        (["CREATE TABLE a (n INTEGER PRIMARY KEY)", "INSERT INTO a VALUES (5), (2), (1 << 40)"], NUMBER, False),  # numbers far apart
        (["CREATE TABLE a (n INTEGER PRIMARY KEY)", "INSERT INTO a VALUES (5), (2), (90)"], NUMBER, True),
        (["CREATE TABLE a (n INT PRIMARY KEY)", "INSERT INTO a VALUES (5), (2)"], NUMBER, True),
        (["CREATE TABLE a (m, n AS (m + 1))", "INSERT INTO a VALUES (5)"], NUMBER, False),
        (["CREATE TABLE a (n)", "INSERT INTO a VALUES (5)", "CREATE VIEW b AS SELECT n FROM a"], NUMBER, True),
        (["CREATE TABLE a (n)"], NUMBER, True),
        (["CREATE TABLE a (n)", "INSERT INTO a VALUES (5), (6)", "DELETE FROM a"], NUMBER, True),
        (["CREATE TABLE a (m, n)", "INSERT INTO a VALUES (1, NULL), (NULL, 2), (NULL, NULL), (3, 4)"], Value(("m", "n"), -5), True),
        (["CREATE TABLE a (n, f, g)", "INSERT INTO a VALUES (1, NULL, NULL), (2, 'x', NULL), (3, NULL, 1.5)"], Value(("n",), flags=("f", "g"), flag=1 << 32), True),
    ],
)  # fmt: skip
def test_what_a_table_may_be(
    statements: list[str], value: Value, is_read: bool, tmp_path: Path
) -> None:
    made = Made(tmp_path / "a.sqlite")
    for statement in statements:
        made.run(statement)
    path = made.done()
    with Database(path) as database:
        database.tables()
        pages = database._read_pages({"a": query("a", n=value)})
        assert bool(pages) is is_read
        if pages:
            assert same(pages["a"], database._run({"a": query("a", n=value)})["a"])


def test_long_records_are_read_by_sqlite(tmp_path: Path) -> None:
    made = Made(tmp_path / "a.sqlite").run("CREATE TABLE a (t TEXT)").run("CREATE TABLE b (n)")
    made.run("INSERT INTO a VALUES (?)", [("x" * 10_000,), ("y",)])
    path = made.run("INSERT INTO b VALUES (?)", [(1,)]).done()
    queries = {"a": query("a", t=TEXT), "b": query("b", n=NUMBER)}
    assert agree(path, queries) == {"b"}
    with Database(path) as database:
        database.tables()
        assert database.read(queries)["a"]["t"].decode() == ["x" * 10_000, "y"]


def test_tables_that_lie_between_each_other(tmp_path: Path) -> None:
    """Rows of five tables by turns, most of which are not read."""
    made = Made(tmp_path / "a.sqlite", "page_size=512")
    for table in "abcde":
        made.run(f"CREATE TABLE {table} (n INTEGER, t TEXT)")
    for turn in range(300):
        for table in "abcde":
            rows = [(turn * i, f"{table} {i}" * (turn % 7)) for i in range(9)]
            made.run(f"INSERT INTO {table} VALUES (?, ?)", rows)
    path = made.done()
    assert agree(path, {"e": query("e", t=TEXT, n=NUMBER), "b": query("b", n=NUMBER)}) == {"e", "b"}


@pytest.mark.parametrize("size", [512, 4096])
def test_rows_from_a_first_to_a_last_one(size: int, tmp_path: Path) -> None:
    """Within a page, over pages, over gaps between row numbers, outside of all rows, and none."""
    made = Made(tmp_path / "a.sqlite", f"page_size={size}")
    made.run("CREATE TABLE a (id INTEGER PRIMARY KEY, n INTEGER, t TEXT)")
    rows = [
        (i, INTEGERS[i % len(INTEGERS)], "x" * (i % 9)) for i in range(10, 3000) if i % 500 < 300
    ]
    path = made.run("INSERT INTO a VALUES (?, ?, ?)", rows).done()
    whole = query("a", id=Value(("id",)), n=NUMBER, t=TEXT)
    ends = (-5, 0, 10, 11, 57, 58, 299, 300, 499, 500, 1234, 2799, 2999, 5000)
    parts = {f"{a} {b}": within(whole, a, b) for a in ends for b in ends}
    found = agree(path, parts)
    assert {"-5 5000", "57 299", "11 58", "300 299", "-5 -5", "2799 2999"} <= found
    assert len(found) > len(parts) * 0.8  # where few rows have numbers far apart, SQLite reads


def write(path: Path) -> str:
    """Add a row in another process, as locks are between processes; give its error."""
    program = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], timeout=0); c.execute('INSERT INTO a VALUES (8)'); c.commit()"
    return subprocess.run([sys.executable, "-c", program, path], check=False, capture_output=True, text=True).stderr  # fmt: skip


@pytest.mark.slow
def test_a_store_that_others_may_write_to_is_read_from_pages_too(tmp_path: Path) -> None:
    """No one writes meanwhile; pages in a write-ahead log are SQLite's business."""
    path = (
        Made(tmp_path / "a.sqlite")
        .run("CREATE TABLE a (n INTEGER)")
        .run("INSERT INTO a VALUES (7)")
        .done()
    )
    queries = {"a": query("a", n=NUMBER)}
    with Database(path, immutable=False) as database:
        database.tables()
        with database._without_writers():
            assert "database is locked" in write(path)
        assert not write(path)
        assert database._read_pages(queries)["a"]["n"].tolist() == [7, 8]
    with closing(sqlite3.connect(path)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("INSERT INTO a VALUES (9)")
        writer.commit()
        with Database(path, immutable=False) as database:
            database.tables()
            assert database._read_pages(queries) == {}
            assert database.read(queries)["a"]["n"].tolist() == [7, 8, 9]


def test_rows_removed_and_added_again(tmp_path: Path) -> None:
    """Free pages are used again: pages of a table do not ascend."""
    made = Made(tmp_path / "a.sqlite", "page_size=512").run("CREATE TABLE a (n)")
    made.run("CREATE TABLE b (n)").run("INSERT INTO b VALUES (?)", [(i,) for i in range(3000)])
    made.run("DELETE FROM b").run("INSERT INTO a VALUES (?)", [(i,) for i in range(9000)])
    made.run("DELETE FROM a WHERE n % 7 = 1").run("INSERT INTO a VALUES (?)", [(i,) for i in range(9000)])  # fmt: skip
    path = made.done()
    with Database(path) as database:
        database.tables()
        asked = {"a": query("a", n=NUMBER)}
        assert same(database.read(asked)["a"], database._run(asked)["a"])


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(INTEGERS),
    st.floats(allow_nan=False),
    st.text(max_size=200),
    st.binary(max_size=60),
)
KINDS = st.sampled_from(["", "INTEGER", "TEXT", "REAL", "NUMERIC", "BLOB", "INT", "VARCHAR(9)"])


@pytest.mark.slow
@given(
    kinds=st.lists(KINDS, min_size=3, max_size=3),
    rows=st.lists(st.tuples(VALUES, VALUES, VALUES), max_size=60),
    mixed=st.booleans(),
    size=st.sampled_from([512, 1024, 4096]),
)
def test_any_values(tmp_path_factory, kinds, rows, mixed, size) -> None:
    path = tmp_path_factory.mktemp("any") / "a.sqlite"
    made = Made(path, f"page_size={size}")
    made.run("CREATE TABLE a (x {}, y {}, z {})".format(*kinds))
    made.run("INSERT INTO a VALUES (?, ?, ?)", rows).done()
    asked = {
        "number": query("a", n=Value(("x", "y"), -1, mixed=mixed)),
        "text": query("a", t=Value(("z", "x"), "", is_text=True, mixed=mixed)),
        "flags": query("a", n=Value(("x",), -1, mixed=True), f=Value(("y",), 3, mixed=True)),
    }
    with Database(path) as database:
        database.tables()
        for name, one in asked.items():
            pages = database._read_pages({name: one})
            if pages:
                assert same(pages[name], database._run({name: one})[name])


def outcome(path: Path, queries: Mapping[str, Query], *, pages: bool) -> dict[str, Columns] | str:
    """Read as a command does, or through SQLite alone; a message where that fails."""
    try:
        with Database(path) as database:
            database.tables()
            return database.read(queries) if pages else database._run(queries)
    except NotAReport as error:
        return str(error)


def test_a_page_that_lost_its_cells_is_damage(tmp_path: Path) -> None:
    """It reads as a page without rows, which SQLite allows for a table without rows alone."""
    made = Made(tmp_path / "a.sqlite", "page_size=512").run("CREATE TABLE a (n INTEGER)")
    made.run("CREATE TABLE empty (n INTEGER)")
    made.run("INSERT INTO a VALUES (?)", [(i,) for i in range(5_000)])
    whole = made.done().read_bytes()
    queries = {name: query(name, n=NUMBER) for name in ("a", "empty")}
    path = tmp_path / "damaged.sqlite"
    for page in range(1, len(whole) // 512):
        data = bytearray(whole)
        data[page * 512 + 3 : page * 512 + 5] = b"\0\0"
        path.write_bytes(data)
        mine, theirs = (outcome(path, queries, pages=pages) for pages in (True, False))
        assert isinstance(mine, str) == isinstance(theirs, str), page
        assert isinstance(mine, str) or all(same(mine[name], theirs[name]) for name in queries)


@pytest.mark.slow
@pytest.mark.parametrize("size", [512, 4096])
def test_damaged_files_give_the_same_answer_or_the_same_error(size: int, tmp_path: Path) -> None:
    made = Made(tmp_path / "a.sqlite", f"page_size={size}")
    made.run("CREATE TABLE a (id INTEGER PRIMARY KEY, n INTEGER, t TEXT)").run("CREATE TABLE b (n)")
    for turn in range(20):
        rows = [(INTEGERS[(turn * i) % len(INTEGERS)], f"text {i}" * (i % 5)) for i in range(40)]
        made.run("INSERT INTO a (n, t) VALUES (?, ?)", rows)
        made.run("INSERT INTO b VALUES (?)", [(i * turn,) for i in range(40)])
    whole = made.done().read_bytes()
    queries = {
        "a": query("a", id=Value(("id",)), n=NUMBER, t=TEXT),
        "b": query("b", n=Value(("n",))),
    }
    drawn = random.Random(size)
    path = tmp_path / "damaged.sqlite"
    read = 0
    for _ in range(20_000 if NIGHT else 200):
        data = bytearray(whole)
        for _ in range(drawn.choice([1, 1, 1, 2, 8])):
            place = drawn.randrange(100, len(data))
            data[place] = drawn.choice(
                [drawn.randrange(256), data[place] ^ 1 << drawn.randrange(8), 0]
            )
        path.write_bytes(data)
        mine, theirs = (outcome(path, queries, pages=pages) for pages in (True, False))
        if isinstance(mine, str) or isinstance(theirs, str):
            assert mine == theirs
        else:
            assert all(same(mine[name], theirs[name]) for name in queries)
            read += 1
    assert read
