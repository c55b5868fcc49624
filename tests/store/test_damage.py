"""A damaged store gives the figures that were stored, or one line: never other figures, never a traceback."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import made_reports
import numpy as np
import pytest
from command import bridge, done, inside
from hypothesis import given
from hypothesis import strategies as st
from real_parts import NIGHT

from bridge import store
from bridge.cli.demo_report import make
from bridge.importers.texts import Texts
from bridge.store.checksums import TableSums
from bridge.store.tables import StoreError, open_store, stored_columns

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("folder")]

BIG = 2**63 - 1
# What somebody or a bad disk did to a store of one run, in SQL.
ATTACKS = (
    *(f"UPDATE runs SET source = {x}" for x in ("'x{'", "'5'", "NULL", "x'ff00'", "'[1]'")),
    *(f"UPDATE runs SET totals = {x}" for x in ("'5'", "'x{'")),
    *(f"UPDATE runs SET summary = {x}" for x in ("'5'", "'{'", "'{}'")),
    *(f"UPDATE runs SET tables = {x}" for x in ("'5'", "'x'")),
    "UPDATE runs SET rules = '[['", "UPDATE runs SET ncu = '5'", "UPDATE runs SET quality = 'x'",
    "UPDATE runs SET worth = x'ff'", "UPDATE runs SET created = NULL", "UPDATE runs SET version = NULL",
    "UPDATE runs SET name = x'ff'", "UPDATE runs SET identity = NULL", f"UPDATE runs SET id = {BIG}",
    "UPDATE runs SET gpu_ns = 'much'", "UPDATE runs SET gpu_ns = gpu_ns + 1", "UPDATE runs SET checksum = 'x'",
    *(f"UPDATE reports SET metadata = {x}" for x in ("'[1'", "'5'", "'[1]'")),
    *(f"UPDATE reports SET warnings = {x}" for x in ("'5'", "'x'", "NULL")),
    *(f"UPDATE reports SET beside = {x}" for x in ("'['", "'[1]'", "'{\"a\":\"b\"}'")),
    *(f"UPDATE reports SET {x}" for x in ("span_start = 'a'", "span_start = NULL", "epoch_ns = 'x'", "session_ns = 'x'")),
    "UPDATE reports SET source = 5", "UPDATE reports SET report = 7", "DELETE FROM reports",
    "DELETE FROM names", "DELETE FROM names WHERE id % 2", "UPDATE names SET text = NULL",
    "UPDATE names SET text = x'ff'", f"UPDATE names SET id = {BIG} WHERE id = 1",
    *(f"UPDATE activities SET {x}" for x in (
        f"name = {BIG}", f"range = {BIG}", "launch = -5", "start = 'abc'", "start = NULL", "start = 1.5", f"end = {BIG}",
        "report = 9", "kind = 1",
    )),
    "DELETE FROM activities", "DELETE FROM activities WHERE id % 2", "DELETE FROM ranges", "DELETE FROM devices",
    f"UPDATE ranges SET parent = {BIG}", "UPDATE ranges SET op = 999999", "UPDATE ranges SET text = x'00ff'",
    *(f"ALTER TABLE {table} RENAME COLUMN {column} TO x" for table, column in (
        ("runs", "attributed_ns"), ("runs", "id"), ("runs", "name"), ("reports", "span_start"),
        ("extents", "first"), ("activities", "start"), ("op_summary", "op"), ("kernel_summary", "total_ns"),
    )),
    "DELETE FROM extents", "UPDATE extents SET first = 'a'", f"UPDATE extents SET last = {BIG}",
    "UPDATE extents SET first = -10", "UPDATE extents SET last = NULL", "UPDATE extents SET checksums = '{'",
    "UPDATE op_summary SET kernels = kernels + 1", "DELETE FROM op_kernel_summary",
    "DROP TABLE waits", "DROP TABLE names", "DROP TABLE op_summary",
)  # fmt: skip
FLIPS = range(200 if NIGHT else 24)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Give a store of one run."""
    folder = tmp_path_factory.mktemp("healthy")
    make(folder / "demo.sqlite")
    done("import", folder / "demo.sqlite", "--quiet", "--db", folder / "bridge.db")
    return (folder / "bridge.db").read_bytes()


@pytest.fixture(scope="module")
def right(healthy: bytes, tmp_path_factory: pytest.TempPathFactory) -> list[str | None]:
    """Give what commands print of that store."""
    db = tmp_path_factory.mktemp("right") / "bridge.db"
    db.write_bytes(healthy)
    return outputs(db)


def outputs(db: Path) -> list[str | None]:
    """Run commands on a store; None stands for one line that says what is wrong."""
    return [output(db, "report", "--by", "op-kernel"), output(db, "runs", "show", "1")]


def output(db: Path, *words: str) -> str | None:
    ran = bridge(*words, "--db", db)
    if not ran.exit_code:
        return " ".join(ran.stdout.replace(f"--db {db}", "--db DB").split())
    [line] = ran.stderr.splitlines()
    assert (ran.exit_code, line[:7]) == (1, "Error: ")
    return None


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_row_that_is_not_as_stored_is_believed(
    attack: str, healthy: bytes, right: list[str | None], folder: Path
) -> None:
    db = folder / "bridge.db"
    db.write_bytes(healthy)
    made_reports.changed(db, attack)
    assert all(
        found in {None, expected} for found, expected in zip(outputs(db), right, strict=True)
    )
    output(db, "runs", "list")
    output(db, "runs", "rm", "1")
    assert inside(folder) == ["bridge.db"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_run_of_an_older_version_ends_in_no_traceback(
    attack: str, healthy: bytes, folder: Path
) -> None:
    """It has no checksums: its figures may be wrong."""
    db = folder / "bridge.db"
    db.write_bytes(healthy)
    made_reports.changed(db, attack, *made_reports.UNSEALED)
    output(db, "report")


@pytest.mark.parametrize("seed", FLIPS)
def test_flipped_bits_never_give_other_figures(
    seed: int, healthy: bytes, right: list[str | None], folder: Path
) -> None:
    db = folder / "bridge.db"
    drawn, flipped = random.Random(seed), bytearray(healthy)
    for _ in range(6):
        flipped[drawn.randrange(len(flipped))] ^= 1 << drawn.randrange(8)
    db.write_bytes(flipped)
    assert all(
        found in {None, expected} for found, expected in zip(outputs(db), right, strict=True)
    )


def test_half_of_the_rows_is_told(healthy: bytes, folder: Path) -> None:
    db = folder / "bridge.db"
    db.write_bytes(healthy)
    made_reports.changed(db, "DELETE FROM activities WHERE id % 2")
    refused = bridge("report", "--by", "stream", "--db", db)  # the table by op is stored, and whole
    assert refused.stderr == (
        f"Error: {db}: run 1 is damaged: 59 of 118 rows of activities are there;"
        " remove it ('bridge runs rm 1') and import its report again\n"
    )
    done("runs", "rm", "1", "--db", db)
    make(folder / "demo.sqlite")
    done("import", "demo.sqlite", "--db", db, "--quiet")
    assert done("runs", "check", "--db", db) == "run 1: intact\n"


def test_every_stored_value_is_checked(healthy: bytes, folder: Path) -> None:
    """Brute force: one more in any column of any large table is found by `runs check`."""
    db, columns = folder / "bridge.db", 0
    db.write_bytes(healthy)
    with open_store(db) as database:
        tables = [table for (table,) in database.execute('SELECT "table" FROM extents').fetchall()]
    for table in tables:
        for name in stored_columns(table):
            db.write_bytes(healthy)
            with closing(sqlite3.connect(db)) as connection:
                changed = (
                    f'coalesce("{name}", 0) + 1'
                    if stored_columns(table)[name] is not str
                    else "'?'"
                )
                row = f'SELECT max(id) FROM "{table}"'
                sql = f'UPDATE "{table}" SET "{name}" = {changed} WHERE id = ({row})'
                if not connection.execute(sql).rowcount:
                    continue
                connection.commit()
            columns += 1
            with pytest.raises(StoreError, match=f"column {name} of {table}"):
                store.check_run(db, 1)
    assert columns > 60


def test_a_run_of_an_older_version_has_its_rows_counted(healthy: bytes, folder: Path) -> None:
    db = folder / "bridge.db"
    db.write_bytes(healthy)
    made_reports.changed(db, *made_reports.UNSEALED)
    assert "an older version stored it without checksums" in done("runs", "check", "--db", db)
    made_reports.changed(db, "DELETE FROM launches WHERE id = 2")
    assert "rows of launches are there" in bridge("runs", "check", "1", "--db", db).output


def test_sums_tell_missing_columns_from_others() -> None:
    sums = TableSums({"a": int, "b": str})
    sums.add({}, 3)
    assert sums.values == {"a": -3, "b": 0}


@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(), st.binary())), st.data())
def test_sums_are_those_of_the_whole_table_however_it_is_cut(rows, data) -> None:
    whole = [
        np.array([row[0] for row in rows], np.int64),
        np.array([row[1] for row in rows], float),
    ]
    texts = Texts.of([row[2] for row in rows])
    cuts = sorted({0, len(rows), *data.draw(st.lists(st.integers(0, len(rows))))})
    expected, sums = (TableSums({"a": int, "b": float, "c": str}) for _ in range(2))
    expected.add({"a": whole[0], "b": whole[1], "c": texts}, len(rows))
    for first, last in pairwise(cuts):
        own = slice(first, last)
        sums.add({"a": whole[0][own], "b": whole[1][own], "c": texts.part(own)}, last - first)
    assert sums.values == expected.values
