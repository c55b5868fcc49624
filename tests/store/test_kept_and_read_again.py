"""What a run keeps is read again as it was, and is plain SQL to others: metrics, facts, names, what is missing."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import made_reports
import numpy as np
import pytest
from command import inside

from bridge import importers, store
from bridge.importers import frames
from bridge.importers.arrays import MISSING
from bridge.importers.capture import NSIGHT_COMPUTE, Facts
from bridge.importers.ncu.metrics import KernelMetrics, Metrics, RuleMessages
from bridge.importers.texts import Texts
from bridge.report import join
from bridge.store import bulk
from bridge.store.loading import facts_of
from bridge.store.saving import facts_row, save_once

KERNELS = (0, 1)  # which of the seven activities of a step were measured: gemm_kernel and mm_kernel
PATH = 1  # how surely kernels were matched: by the path of their op


def measured() -> Metrics:
    """Give what Nsight Compute measured of two kernels, the first of which is surely that of its activity."""
    values = KernelMetrics(
        kernel=np.array([0, 1]),
        metric=frames.Names.of(["gpu__time_duration.sum"] * 2),
        unit=frames.Names.of(["ns"] * 2),
        value=np.array([70.5, 30.0]),
        text=frames.Names.of(["", ""]),
    )
    of, sure = (np.full(made_reports.ACTIVITIES_PER_STEP, MISSING) for _ in range(2))
    of[[*KERNELS]], sure[KERNELS[0]] = (0, 1), PATH
    return Metrics(values, RuleMessages(), of, sure, ("c.ncu-rep",))


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a store with one report twice: bare, and with what Nsight Compute measured."""
    folder = tmp_path_factory.mktemp("two runs")
    report = importers.load(made_reports.small(folder / "made.sqlite", steps=1))
    for name, metrics in (("bare", Metrics()), ("measured", measured())):
        store.save(join(replace(report, metrics=metrics)), folder / "bridge.db", name)
    return folder / "bridge.db"


@pytest.fixture
def db(two_runs: Path, tmp_path: Path) -> Path:
    """Give a copy of it, to change."""
    return shutil.copy(two_runs, tmp_path / "bridge.db")


def ask(db: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(db)) as connection:
        return connection.execute(sql).fetchall()


# -- metrics


def test_metrics_are_those_of_the_kernels_that_they_were_measured_of(two_runs: Path) -> None:
    sql = (
        "SELECT kernel, op, duration_ns, value, match FROM kernel_metrics WHERE run = 2 ORDER BY 1"
    )
    assert ask(two_runs, sql) == [
        ("gemm_kernel", "gemm", 80, 70.5, "path"),
        ("mm_kernel", "aten::mm", 30, 30.0, None),
    ]


def test_how_sure_it_is_what_a_metric_is_of_comes_back(two_runs: Path) -> None:
    found = store.load(two_runs, 2).metrics
    assert found.of.tolist() == [0, 1, -1, -1, -1, -1, -1]
    assert found.sure.tolist() == [PATH, -1, -1, -1, -1, -1, -1]
    assert found.table["value"].tolist() == [70.5, 30.0]
    assert found.source == ("c.ncu-rep",)


def test_a_run_is_read_without_its_metrics_where_nobody_wants_them(two_runs: Path) -> None:
    bare = store.load(two_runs, 2, metrics=False)
    assert len(bare.metrics) == 0
    assert len(bare.activities) == made_reports.ACTIVITIES_PER_STEP
    assert len(store.load(two_runs, 2).metrics) == 2


# -- what is missing, and facts


def test_what_is_missing_is_null_to_others(tmp_path: Path) -> None:
    db = tmp_path / "x.db"
    made_reports.changed(
        db, "CREATE TABLE t (run INTEGER, launch INTEGER, speedup REAL, text TEXT)"
    )
    columns = {
        "run": np.array([1, 1]),
        "launch": np.array([7, -1]),
        "speedup": np.array([0.5, np.nan]),
        "text": Texts.of(["ü", ""]),
    }
    assert bulk.append(db, [("t", columns)]) == {"t": 2}
    assert ask(db, "SELECT * FROM t") == [(1, 7, 0.5, "ü"), (1, None, None, None)]


FACTS = Facts(
    "Nsight Systems",
    "3.11",
    (5, 9),
    ("größer",),
    17,
    {"host": "müller", "seed": 1},
    beside={"syscalls ü": 3},
)


def test_facts_come_back_as_they_were() -> None:
    assert facts_of(facts_row(FACTS)) == FACTS


def test_texts_of_facts_are_readable_in_sql() -> None:
    row = facts_row(FACTS)
    assert row["warnings"] == '["größer"]'
    assert row["metadata"] == '{"host": "müller", "seed": 1}'
    assert row["beside"] == '{"syscalls ü": 3}'


def test_facts_that_an_older_version_did_not_keep_are_none() -> None:
    older = {**facts_row(FACTS), "epoch_ns": None, "metadata": None, "beside": None}
    assert facts_of(older) == replace(FACTS, epoch_ns=-1, metadata={}, beside={})


def test_a_table_that_came_after_a_run_is_empty_in_it(db: Path) -> None:
    """The rows that it has, from number 1 on, are those of later runs."""
    made_reports.changed(
        db,
        "BEGIN",
        "DELETE FROM waits WHERE run = 1",
        "DELETE FROM extents WHERE run = 1 AND [table] = 'waits'",
        "UPDATE waits SET id = id - 2",  # of which each run has two
        "UPDATE extents SET first = 1, last = 2 WHERE [table] = 'waits'",
        *made_reports.UNSEALED,
    )
    assert len(store.load(db, 1).waits) == 0
    assert len(store.load(db, 2).waits) == 2


# -- what an import says again


def test_what_an_import_says_is_kept(two_runs: Path) -> None:
    found = store.load_stored_report(two_runs, 1)
    assert found is not None
    assert (found.totals["activities"], found.totals["gpu_ns"]) == (7, 153)
    assert (found.op_count, found.ranges) == (3, 5)
    kernels = found.tables["kernel"]
    assert dict(zip(kernels["kernel"], kernels["total_ns"], strict=True)) == {
        "gemm_kernel": 80,
        "mm_kernel": 30,
        "late_kernel": 20,
        "lost_kernel": 3,
    }


@pytest.mark.parametrize(
    "other",
    [
        "UPDATE runs SET totals = NULL",  # of an older version
        "UPDATE runs SET tables = '[\"op\"]'",
        f"UPDATE reports SET product = '{NSIGHT_COMPUTE}'",
    ],
    ids=["older", "aggregates", "no timeline"],
)
def test_an_import_is_read_anew_where_its_words_were_not_kept(other: str, db: Path) -> None:
    made_reports.changed(db, other, *made_reports.UNSEALED)
    assert store.load_stored_report(db, 1) is None


# -- names of runs


def test_a_name_is_that_of_one_run_and_goes_to_the_last_that_is_called_so(db: Path) -> None:
    assert store.name_run(db, 1, "best") is None
    before = store.name_run(db, 2, "best")
    assert before is not None
    assert before.id == 1
    assert [run.name for run in store.list_runs(db)] == [None, "best"]


def test_a_run_that_is_called_as_it_was_takes_its_name_from_nobody(db: Path) -> None:
    assert store.name_run(db, 1, "best") is None
    assert store.name_run(db, 1, "best") is None
    assert store.get_run(db, "best").id == 1


# -- writing that fails


def failing(db: Path, sql: str) -> Callable[[], int]:
    """Return what writes something, and dies."""

    def write() -> int:
        made_reports.changed(db, sql)
        raise OSError("no space left on device")

    return write


def test_a_new_store_that_cannot_be_written_is_not_left_behind(tmp_path: Path) -> None:
    db = tmp_path / "bridge.db"
    with pytest.raises(OSError, match="no space"):
        save_once(db, "x", "", failing(db, "CREATE TABLE runs (id INTEGER)"))
    assert inside(tmp_path) == []


def test_a_store_that_cannot_be_written_has_the_runs_that_it_had(db: Path) -> None:
    rows = ask(db, "SELECT * FROM names")
    with pytest.raises(OSError, match="no space"):
        save_once(db, "x", "", failing(db, "INSERT INTO names (run, text) VALUES (3, 'half')"))
    assert [run.id for run in store.list_runs(db)] == [1, 2]
    assert ask(db, "SELECT * FROM names") == rows


def test_a_run_that_is_there_is_not_written_again(db: Path) -> None:
    def never() -> int:
        raise AssertionError("written")

    assert save_once(db, "measured", "", never) == 2


def test_the_accounting_of_a_run_is_plain_json(two_runs: Path) -> None:
    [(totals,)] = ask(two_runs, "SELECT totals FROM runs WHERE id = 1")
    assert json.loads(totals)["attributed_ns"] == 80 + 30 + 10 + 5 + 5


def test_a_column_that_begins_with_what_is_missing_is_kept(tmp_path: Path) -> None:
    made = made_reports.Made()
    for start, payload in ((10, {}), (20, {"payload": 5}), (30, {})):
        where = {"text": "a", "thread": made_reports.thread(100)}
        made.annotation(made_reports.PUSH_POP, start, start + 5, **where, **payload)
    joined = join(importers.load(made.written(tmp_path / "made.sqlite")))
    store.save(joined, tmp_path / "x.db", "made")
    ranges = store.load(tmp_path / "x.db").ranges
    assert ranges["payload"].tolist() == joined.capture.ranges.payload.tolist() == [-1, 5, -1]
