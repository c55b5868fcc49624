"""Exports that were copied or renamed: tables WITHOUT ROWID, and views where tables were."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import made_reports
import pandas as pd
import pytest
from command import assert_refused, bridge, done
from read_once import reading_once

from bridge import importers
from bridge.importers.nsys import schema
from bridge.importers.nsys.windows import open_windows

KERNELS, NVTX, CALLS = schema.KERNELS.name, schema.ANNOTATIONS.name, schema.LAUNCHES.name
ROW = "row_"


def rewrite(path: Path, statements: Callable[[str, list[tuple[str, ...]]], list[str]]) -> Path:
    """Run statements for every table, which get its name and the rows of table_info."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        tables = connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        ).fetchall()
        for (table,) in tables:
            columns = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
            for statement in statements(table, columns):
                connection.execute(statement)
    return path


def keyed(table: str, columns: list[tuple[str, ...]]) -> list[str]:
    """Make a table WITHOUT ROWID, whose key is the row's number before."""
    typed = ", ".join(f'"{c[1]}" {c[2]}' for c in columns)
    return [
        f'ALTER TABLE "{table}" RENAME TO "kept"',
        f'CREATE TABLE "{table}" ({typed}, {ROW} INTEGER NOT NULL, PRIMARY KEY ({ROW})) WITHOUT ROWID',
        f'INSERT INTO "{table}" SELECT *, rowid FROM "kept"',
        'DROP TABLE "kept"',
    ]


def strict(table: str, columns: list[tuple[str, ...]]) -> list[str]:
    """Write the words in another way, with a name that contains a bracket."""
    first, create, *rest = keyed(table, columns)
    return [
        first,
        create.replace(") WITHOUT ROWID", ', CHECK (")" != 1))\n without  rowid -- as is'),
        *rest,
    ]


def starred(table: str, _columns: list[tuple[str, ...]]) -> list[str]:
    return [
        f'ALTER TABLE "{table}" RENAME TO "_{table}"',
        f'CREATE VIEW "{table}" AS SELECT * FROM "_{table}"',
    ]


def listed(table: str, columns: list[tuple[str, ...]]) -> list[str]:
    """Rename the columns, too, in views of a view."""
    renamed = ", ".join(f'"{c[1]}" AS "the {c[1]}"' for c in columns)
    back = ",\n  ".join(f'[the {c[1]}] as "{c[1]}"' for c in reversed(columns))
    return [
        f'ALTER TABLE "{table}" RENAME TO "_{table}"',
        f'CREATE VIEW "middle of {table}" AS SELECT {renamed} FROM "_{table}"',
        f'CREATE VIEW {table} AS\n select {back}\n from "MIDDLE OF {table}"',
    ]


def shadowed(table: str, _columns: list[tuple[str, ...]]) -> list[str]:
    """Give a table a column that is called as SQLite calls the row's number."""
    return [f'ALTER TABLE "{table}" ADD COLUMN ROWID TEXT']


def viewed_keyed(table: str, columns: list[tuple[str, ...]]) -> list[str]:
    return [*keyed(table, columns), *listed(table, columns)]


VARIANTS = (keyed, strict, starred, listed, shadowed, viewed_keyed)
WITH_ROWIDS = (starred, listed)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_reports.report(tmp_path_factory.mktemp("original") / "report.sqlite", steps=20)


@pytest.fixture(scope="module", params=VARIANTS, ids=lambda variant: variant.__name__)
def variant(
    request: pytest.FixtureRequest, original: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp(request.param.__name__) / original.name
    path.write_bytes(original.read_bytes())
    return rewrite(path, request.param)


def frames_of(path: Path) -> dict[str, pd.DataFrame]:
    capture = importers.load(path)
    return {name: getattr(capture, name).to_pandas() for name in importers.frames.FRAMES}


def test_every_frame_is_equal(original: Path, variant: Path) -> None:
    before, after = frames_of(original), frames_of(variant)
    for name, frame in before.items():
        pd.testing.assert_frame_equal(after[name], frame)
    assert importers.load(variant).facts == importers.load(original).facts


@pytest.mark.slow
def test_tables_and_trace_are_equal(original: Path, variant: Path, tmp_path: Path) -> None:
    def printed(path: Path) -> list[str | bytes]:
        trace = tmp_path / f"{path.parent.name}.json"
        done("trace", path, "-o", trace)
        tables = ("op", "op-kernel", "kernel", "memcpy", "range")
        return [
            trace.read_bytes(),
            *(done("report", path, "--by", by, "--format", "csv") for by in tables),
        ]

    with reading_once():
        assert printed(variant) == printed(original)


def test_windows_need_row_numbers(original: Path, tmp_path: Path) -> None:
    for make in VARIANTS:
        path = tmp_path / make.__name__
        path.write_bytes(original.read_bytes())
        rewrite(path, make)
        if make in WITH_ROWIDS:
            with open_windows(path, True, 3) as windows, open_windows(original, True, 3) as whole:
                for one, other in zip(windows, whole, strict=True):
                    pd.testing.assert_frame_equal(
                        one.capture.ranges.to_pandas(), other.capture.ranges.to_pandas()
                    )
                    pd.testing.assert_frame_equal(
                        one.capture.activities.to_pandas(), other.capture.activities.to_pandas()
                    )
        else:
            with (
                pytest.raises(
                    importers.ReportError,
                    match=r"have no numbers .WITHOUT ROWID.*without --memory-limit",
                ),
                open_windows(path, True, 3),
            ):
                pass


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS start FROM n"
COMPUTED = {
    "endless": ENDLESS,
    "filtered": f'SELECT * FROM "_{NVTX}" WHERE start > 0',
    "of two tables": f'SELECT * FROM "_{NVTX}", "{CALLS}"',
    "with a computed column": f'SELECT start + 1 AS start FROM "_{NVTX}"',
    "with a name that SQLite reads as a text": f'SELECT "begun" AS "start" FROM "_{NVTX}"',
    "of nothing": 'SELECT * FROM "nothing"',
    "of itself": f'SELECT * FROM "{NVTX}"',
}


@pytest.mark.parametrize("what", COMPUTED)
def test_a_view_that_computes_is_refused(what: str, original: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    path.write_bytes(original.read_bytes())
    made_reports.changed(
        path,
        f'ALTER TABLE "{NVTX}" RENAME TO "_{NVTX}"',
        f'CREATE VIEW "{NVTX}" AS {COMPUTED[what]}',
    )
    assert_refused(bridge("report", path), "report.sqlite", f"{NVTX} is a view", "CREATE TABLE")


def test_a_view_that_nobody_reads_may_compute(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    path.write_bytes(original.read_bytes())
    made_reports.changed(path, f"CREATE VIEW mine AS {ENDLESS}")
    assert len(importers.load(path).ranges) == len(importers.load(original).ranges)
