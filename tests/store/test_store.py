"""The store gives back what was put in, counts only what was finished, and is plain SQLite to everybody else."""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from threading import Timer
from typing import Any

import made_reports
import numpy as np
import pytest
import real_parts
from command import assert_misused, assert_refused, bridge, done, inside
from numpy.testing import assert_array_equal
from read_once import reading_once
from sqlite_utils import Database

from bridge import importers, store
from bridge.analyze.core.catalog import VIEWS
from bridge.importers import frames
from bridge.importers.capture import Capture
from bridge.report import join
from bridge.store import StoreError
from bridge.store.tables import MIGRATIONS
from bridge.store.tables import VIEWS as VIEWS_OF_STORE

NEW_IN_2 = {
    "ranges": "json",
    "marks": "json",
    "activities": "source_kind target_kind migration_cause green_context",
}
NO_REPORTS = ("failed-export", "no-kernels-osrt")  # of the corpus: nothing is recorded in them


pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def db(folder: Path) -> Path:
    return folder / "bridge.db"


@pytest.fixture(scope="session")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give another report."""
    return made_reports.small(tmp_path_factory.mktemp("other") / "other.sqlite", steps=5)


def ask(db: Path, sql: str, *values: object) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(db)) as connection:
        return connection.execute(sql, values).fetchall()


def change(db: Path, *statements: str) -> None:
    made_reports.changed(db, *statements)


def tables(db: Path) -> list[str]:
    return [n for (n,) in ask(db, "SELECT name FROM sqlite_master WHERE type = 'table'")]


def rows_of(db: Path, run: int) -> dict[str, int]:
    """Count the rows that each table has of a run."""
    owned = {t: "id" if t == "runs" else "run" for t in tables(db)}
    sql = 'SELECT count(*) FROM "{}" WHERE {} = ?'
    return {t: ask(db, sql.format(t, key), run)[0][0] for t, key in owned.items()}


# -- what is put in comes out


def names(column: frames.Names) -> list[str | None]:
    return [None if code < 0 else column.texts[code] for code in column.codes.tolist()]


def texts(report: Capture) -> list[str]:
    return report.texts.decode(report.ranges["text"].tolist())


def assert_same(ours: Capture, theirs: Capture) -> None:
    """Assert that two reports are equal in every column, whatever the codes of their names."""
    assert (ours.source, ours.facts) == (theirs.source, theirs.facts)
    for kind in frames.FRAMES:
        a, b = getattr(ours, kind), getattr(theirs, kind)
        for column in [name for name in frames.FRAMES[kind].types if name != "text"]:
            said = f"{kind}.{column}"
            if frames.FRAMES[kind].types[column] == "Names":
                assert names(a[column]) == names(b[column]), said
            else:
                assert a[column].dtype == b[column].dtype, said
                assert_array_equal(a[column], b[column], err_msg=said)
    assert texts(ours) == texts(theirs)


def kept(report: Capture, db: Path) -> Capture:
    """Save a report, and load it."""
    return store.load(db, store.save(join(report), db, "x"))


@pytest.mark.slow
def test_every_column_of_every_frame_comes_back(two_steps: Path, db: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(two_steps, tmp_path / "made with system calls.sqlite"))
    made_reports.changed(
        path,
        "CREATE TABLE OSRT_API (start INTEGER, end INTEGER, globalTid INTEGER, nameId INTEGER)",
        "INSERT INTO OSRT_API SELECT start, end, globalTid, nameId FROM CUPTI_ACTIVITY_KIND_RUNTIME",
        "CREATE TABLE SCHED_EVENTS (start INTEGER, cpu INTEGER, isSchedIn INTEGER, globalTid INTEGER)",
        "INSERT INTO SCHED_EVENTS SELECT start, end % 4, end % 2, globalTid FROM OSRT_API",
        "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value INTEGER)",
        "INSERT INTO GPU_METRICS SELECT start, end % 2, end % 3, end % 100 FROM OSRT_API",
        "CREATE TABLE TARGET_INFO_CUDA_STREAM (processId INTEGER, contextId INTEGER, streamId INTEGER, flag INTEGER)",
        "INSERT INTO TARGET_INFO_CUDA_STREAM SELECT DISTINCT globalPid >> 24 & 16777215, contextId, streamId, 1 + streamId % 2"
        " FROM CUPTI_ACTIVITY_KIND_KERNEL",
        'UPDATE NVTX_EVENTS SET jsonText = \'{"Message size [bytes]": 64, "Reduction operation": "Sum"}\','
        " jsonTextId = NULL WHERE rowid = (SELECT min(rowid) FROM NVTX_EVENTS WHERE text = 'ncclAllReduce')",
    )
    report = importers.load(path)
    for kind in frames.FRAMES:
        assert len(getattr(report, kind)), f"nothing in {kind}: the test would test nothing"
    said = {
        f"{kind}.{column}"
        for kind in frames.FRAMES
        for column in frames.FRAMES[kind].types
        if len(set(getattr(report, kind)[column].tolist())) > 1
    }
    assert said >= {
        "ranges.category", "ranges.color", "ranges.domain_name", "ranges.open", "ranges.payload",
        "activities.bytes", "context_switches.on_cpu", "context_switches.cpu", "gpu_metrics.gpu", "gpu_metrics.metric", "gpu_metrics.value", "activities.copy_kind", "activities.full_name", "activities.graph",
        "activities.grid_x", "activities.mangled", "activities.registers", "devices.gpu",
        "activities.source_kind", "activities.target_kind", "activities.migration_cause",
        "activities.green_context", "ranges.json", "waits.kind", "waits.start", "waits.stream",
        "waits.event", "waits.correlation", "threads.name", "processes.name",
    }  # fmt: skip
    assert_same(kept(report, db), report)


@pytest.mark.slow
@pytest.mark.parametrize("path", real_parts.corpus_reports())
def test_every_report_of_the_corpus_comes_back(path: Path, db: Path) -> None:
    if path.stem in NO_REPORTS:
        with pytest.raises(importers.ReportError):
            importers.load(path)
        return
    report = importers.load(path)
    assert_same(kept(report, db), report)


@pytest.mark.slow
@pytest.mark.parametrize("without", ["annotations", "launches", "kernels copies fills graphs"])
def test_a_report_without_something_comes_back(without: str, tmp_path: Path, db: Path) -> None:
    report = importers.load(made_reports.report(tmp_path / "less.sqlite", without=without))
    assert_same(kept(report, db), report)


@pytest.mark.slow
def test_the_rarest_values_come_back(tmp_path: Path, db: Path) -> None:
    """Extreme times, texts of any bytes and length, and names that nothing is behind."""
    path = made_reports.report(tmp_path / "odd.sqlite")
    made_reports.changed(
        path,
        f"UPDATE {made_reports.schema.KERNELS.name} SET start = {-(2**61)} WHERE rowid = 1",
        f"UPDATE {made_reports.schema.KERNELS.name} SET end = {2**61 - 1}, shortName = 10000 WHERE rowid = 2",
        f"UPDATE {made_reports.schema.STRINGS.name} SET value = '' WHERE value = 'other'",
        f"UPDATE {made_reports.schema.STRINGS.name} SET value = '🚀 \n\t''\"' WHERE value = 'gemm'",
        f"UPDATE {made_reports.schema.ANNOTATIONS.name} SET text = CAST(x'6d6dff' AS TEXT)"
        " WHERE text = 'step' AND start < 1500",
        f"UPDATE {made_reports.schema.ANNOTATIONS.name} SET text = printf('%.100000c', 'x')"
        " WHERE text = 'step'",
    )
    report = importers.load(path)
    assert "mm\ufffd" in set(report.ranges["name"])
    assert max(map(len, texts(report))) == 100_000
    assert_same(kept(report, db), report)


@pytest.mark.slow
@pytest.mark.parametrize("number", [None, 0.5])
def test_json_of_no_range_and_of_every_range_comes_back(
    number: float | None, tmp_path: Path, db: Path
) -> None:
    path = made_reports.report(tmp_path / "json.sqlite")
    changed = "jsonText = NULL, jsonTextId = NULL, doubleValue"
    value = "NULL" if number is None else str(number)
    table = made_reports.schema.ANNOTATIONS.name
    made_reports.changed(path, f"UPDATE {table} SET {changed} = {value}")
    report = importers.load(path)
    assert set(report.ranges["json"]) == {"" if number is None else value}
    back = kept(report, db)
    assert_same(back, report)
    stored = ask(db, "SELECT DISTINCT n.text FROM ranges r LEFT JOIN names n ON n.id = r.json")
    assert stored == [(None if number is None else value,)]


@pytest.mark.slow
def test_waits_and_json_are_plain_to_others(two_steps: Path, db: Path) -> None:
    imported(db, two_steps)
    sql = (
        "SELECT n.text, count(*), min(start), count(stream) FROM waits JOIN names n ON n.id = kind"
    )
    assert ask(db, f"{sql} GROUP BY 1 ORDER BY 1") == [
        ("event", 2, 2400, 0), ("event_record", 4, None, 4), ("unknown", 2, 1400, 0),
    ]  # fmt: skip
    sql = (
        "SELECT n.text, count(*) FROM ranges r JOIN names n ON n.id = r.json GROUP BY 1 ORDER BY 1"
    )
    found = [("0.5", 4), ('{"m": 0}', 2), ('{"m": 1}', 2), ('{"ranks": 8}', 4)]
    assert ask(db, sql) == found


@pytest.mark.slow
def test_several_reports_are_one_run(two_steps: Path, other: Path, db: Path) -> None:
    third = Path(shutil.copy(two_steps, "third.sqlite"))
    report = importers.load(two_steps, other, third)
    assert set(report.activities["report"]) == {0, 1, 2}
    back = kept(report, db)
    assert_same(back, report)
    assert back.source == ("made.sqlite", "other.sqlite", "third.sqlite")
    assert len(ask(db, "SELECT * FROM runs")) == 1


READ: dict[Any, Capture] = {}
NAMED = (["--names", "raw"], ["--kernel-names", "demangled"], ["--kernel-names", "mangled"])


@pytest.fixture(scope="module")
def with_made(two_steps: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a store with the report, to read from."""
    db = tmp_path_factory.mktemp("with-made") / "bridge.db"
    done("import", two_steps, "--db", db)
    return db


@pytest.mark.slow
@pytest.mark.parametrize("by", VIEWS)
def test_a_run_is_reported_like_its_file(by: str, two_steps: Path, with_made: Path) -> None:
    """Each table with names of one kind by turns, at night with all."""
    turn = [*VIEWS].index(by) % len(NAMED)
    for more in ([], *(NAMED if real_parts.NIGHT else [NAMED[turn]])):
        words = ("--by", by, "--format", "json", *more)
        with reading_once(READ):
            expected = done("report", two_steps, *words)
        assert done("report", "--db", with_made, *words) == expected


@pytest.mark.slow
def test_a_run_is_drawn_like_its_file(two_steps: Path, folder: Path) -> None:
    done("import", two_steps)
    done("trace", two_steps, "-o", "of file.json")
    done("trace", "-o", "of run.json")
    assert (folder / "of run.json").read_bytes() == (folder / "of file.json").read_bytes()


# -- which runs there are


def imported(db: Path, *reports: Path) -> None:
    for report in reports:
        done("import", report, "--db", db, "--quiet")


def source(*words: str | Path) -> list[str]:
    """Say which file a report is of."""
    found: list[str] = json.loads(done("report", "--format", "json", *words))["source"]
    return found


@pytest.mark.slow
def test_the_newest_run_is_the_default(two_steps: Path, other: Path, db: Path) -> None:
    imported(db, two_steps, other)
    assert source() == ["other.sqlite"]
    assert source("--run", "1") == ["made.sqlite"]
    assert source("--run", "2", "--db", db) == ["other.sqlite"]


@pytest.mark.slow
def test_the_store_may_be_named_by_the_environment(
    two_steps: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BRIDGE_DB", "elsewhere.db")
    done("import", two_steps)
    assert inside(folder) == ["elsewhere.db"]
    assert source() == ["made.sqlite"]


@pytest.mark.slow
def test_importing_twice_is_said_and_doubles_nothing(
    two_steps: Path, tmp_path: Path, db: Path
) -> None:
    imported(db, two_steps)
    before = ask(db, "SELECT * FROM activities"), ask(db, "SELECT * FROM runs")
    again = bridge("import", two_steps)
    assert again.exit_code == 0
    assert "already imported as run 1 of bridge.db" in again.stderr
    copy = tmp_path / "another name.sqlite"
    shutil.copy(two_steps, copy)
    assert "already imported as run 1" in bridge("import", copy).stderr
    assert "already imported as run 1" in bridge("import", two_steps, "--verify").stderr
    assert (ask(db, "SELECT * FROM activities"), ask(db, "SELECT * FROM runs")) == before
    assert "gemm_kernel" in again.stdout  # the table is shown all the same


@pytest.mark.slow
def test_reports_are_known_by_their_contents_in_any_order(
    two_steps: Path, other: Path, db: Path
) -> None:
    done("import", two_steps, other)
    assert "already imported as run 1" in bridge("import", other, two_steps).stderr
    imported(db, other)
    assert [run.source for run in store.list_runs(db)] == [
        ("made.sqlite", "other.sqlite"),
        ("other.sqlite",),
    ]


@pytest.mark.slow
def test_other_rules_make_another_run(two_steps: Path, folder: Path, db: Path) -> None:
    (folder / "rules.toml").write_text("[[rule]]\nmatch = 'mm'\nop = 'matmul'\n")
    imported(db, two_steps)
    done("import", two_steps, "--op-rules", "rules.toml")
    assert (
        "already imported as run 2"
        in bridge("import", two_steps, "--op-rules", "rules.toml").stderr
    )
    assert "already imported as run 1" in bridge("import", two_steps).stderr
    sql = "SELECT op, kernels FROM op_summary WHERE run = ? AND kernels > 0 ORDER BY op"
    assert ask(db, sql, 1) == [("aten::mm", 4), ("gemm", 4)]
    assert ask(db, sql, 2) == [("matmul", 8)]


def test_sampled_pages_tell_large_files_apart(tmp_path: Path) -> None:
    large = tmp_path / "large"
    data = bytearray(np.random.default_rng(1).bytes(3 << 20))
    large.write_bytes(data)
    known, whole = store.identity([large]), store.identity([large], whole=True)
    assert known != whole
    for place in (0, 100, len(data) - 1):
        data[place] ^= 1
        large.write_bytes(data)
        assert store.identity([large]) != known
        data[place] ^= 1
    data[8_000] ^= 1  # between the first sample and the second
    large.write_bytes(data)
    assert store.identity([large]) == known
    assert store.identity([large], whole=True) != whole


def test_a_report_of_nsight_compute_is_part_of_what_a_run_is_known_by(tmp_path: Path) -> None:
    known = {}
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).write_text(name)
        known[name] = f"all:1:{hashlib.blake2b(name.encode(), digest_size=16).hexdigest()}"
    a, b, c, d = (tmp_path / name for name in known)
    found = store.identity([a, b], ncu=[d, c])
    first, second = sorted((known["a"], known["b"]))
    assert found == f"{first}+{second}+ncu:{known['d']}+ncu:{known['c']}"
    assert store.identity([b, a], ncu=[d, c]) == found  # in any order, but for these
    assert store.identity([a, b], ncu=[c, d]) != found
    assert store.without_ncu(found) == store.identity([a, b])


@pytest.mark.slow
def test_runs_are_listed_the_newest_last(two_steps: Path, other: Path, db: Path) -> None:
    imported(db, two_steps, other)
    first, second = done("runs", "list").splitlines()
    assert first.split()[0] == "1"
    assert first.endswith("made.sqlite")
    assert "29 activities" in first
    assert second.split()[0] == "2"
    assert second.endswith("other.sqlite")
    assert "85.0 % in ops" in second


@pytest.mark.slow
def test_a_run_is_shown_with_its_reports_and_ops(two_steps: Path, tmp_path: Path, db: Path) -> None:
    less = made_reports.small(tmp_path / "less.sqlite", without="annotations")
    done("import", two_steps, less)
    shown = done("runs", "show", "1")
    assert "made.sqlite: Nsight Systems 2099.1.2.3-456v0 (schema 9.9.9)" in shown
    assert "warning: less.sqlite: no NVTX ranges" in bridge("runs", "show", "1").stderr
    assert "gemm_kernel" in shown


@pytest.mark.slow
def test_a_removed_run_is_gone_and_the_others_are_not(
    two_steps: Path, other: Path, db: Path
) -> None:
    imported(db, two_steps, other)
    done("import", two_steps, other)
    reports = {run: store.load(db, run) for run in (1, 2, 3)}
    assert all(rows_of(db, 2)[t] for t in ("runs", "reports", "names", "activities", "op_summary"))
    size = db.stat().st_size
    gone = bridge("runs", "rm", "2")
    assert gone.stderr == "removed run 2: other.sqlite\n"
    assert not any(rows_of(db, 2).values())
    assert db.stat().st_size < size
    for run in (1, 3):
        assert_same(store.load(db, run), reports[run])
    change(db, "VACUUM")
    for run in (1, 3):
        assert_same(store.load(db, run), reports[run])
    imported(db, other)
    assert source() == ["other.sqlite"]
    assert_same(store.load(db), reports[2])
    assert_same(store.load(db, 1), reports[1])


@pytest.mark.slow
def test_all_runs_may_go(two_steps: Path, db: Path) -> None:
    imported(db, two_steps)
    done("runs", "rm", "1")
    assert done("runs", "list") == ""
    assert_refused(bridge("report"), "bridge.db", "no run in this store", "bridge import REPORT")
    imported(db, two_steps)
    assert source() == ["made.sqlite"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [["report", "--run"], ["runs", "show"], ["runs", "rm"], ["trace", "-o", "x.json", "--run"]],
)
def test_an_unknown_run_is_refused(
    words: list[str], two_steps: Path, other: Path, db: Path
) -> None:
    imported(db, two_steps, other)
    before = db.read_bytes()
    for run in ("7", "0", "first"):
        assert_refused(bridge(*words, run), "bridge.db", f"no run '{run}': one of 1, 2")
    assert db.read_bytes() == before


@pytest.mark.slow
def test_a_run_and_a_file_are_not_both_read(two_steps: Path, db: Path) -> None:
    imported(db, two_steps)
    assert_misused(bridge("report", two_steps, "--run", "1"), "--run")


# -- files that are no store


READERS = (
    ["report"],
    ["trace", "-o", "x.json"],
    ["runs", "list"],
    ["runs", "show", "1"],
    ["runs", "rm", "1"],
)


def assert_no_store(made: Path, db: Path, *words: str) -> None:
    """Assert that every command refuses the file as a store, and leaves it as it is."""
    before = db.read_bytes(), inside(db.parent)
    for reader in (*READERS, ["import", str(made)]):
        assert_refused(bridge(*reader), "bridge.db", *words)
    assert (db.read_bytes(), inside(db.parent)) == before


def test_where_no_store_is_none_is_made(folder: Path) -> None:
    for reader in READERS:
        assert_refused(bridge(*reader), "bridge.db", "no store here", "bridge import REPORT")
    assert not inside(folder)


@pytest.mark.parametrize("version", [0, 1])
def test_another_programs_database_is_refused(version: int, two_steps: Path, db: Path) -> None:
    """Others number their schemas too, and call a table runs."""
    with closing(sqlite3.connect(db)) as connection:
        connection.execute("CREATE TABLE runs (id INTEGER PRIMARY KEY, loss REAL)")
        connection.execute(f"PRAGMA user_version = {version}")
    assert_no_store(two_steps, db, "not a store of nsight-bridge; choose another --db")


def test_a_report_is_no_store(two_steps: Path, db: Path) -> None:
    shutil.copy(two_steps, db)
    assert_no_store(two_steps, db, "not a store of nsight-bridge")


def test_a_text_is_no_store(two_steps: Path, db: Path) -> None:
    db.write_text("step 1\n" * 1000)
    assert_no_store(two_steps, db, "not a store of nsight-bridge")


@pytest.mark.slow
def test_a_store_of_a_newer_version_is_refused(two_steps: Path, other: Path, db: Path) -> None:
    imported(db, two_steps)
    change(db, "PRAGMA user_version = 99")
    assert_no_store(other, db, "newer nsight-bridge", "schema 99")


@pytest.mark.slow
def test_a_damaged_store_is_one_line(two_steps: Path, other: Path, db: Path) -> None:
    imported(db, two_steps)
    whole = db.read_bytes()
    for page in range(1, len(whole) // 4096):
        db.write_bytes(whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :])
        for reader in (["report"], ["runs", "list"]):
            result = bridge(*reader)
            if result.exit_code:
                assert_refused(result, "bridge.db")
    db.write_bytes(whole[:20_000])
    for reader in (*READERS, ["import", str(other)]):
        assert_refused(bridge(*reader), "bridge.db")


@pytest.mark.slow
def test_an_empty_file_becomes_a_store(two_steps: Path, db: Path) -> None:
    db.touch()
    imported(db, two_steps)
    assert source() == ["made.sqlite"]


# -- imports that died, and imports at the same time


@pytest.mark.slow
def test_what_a_dead_import_left_is_not_seen_and_goes_with_the_next(
    two_steps: Path, other: Path, db: Path
) -> None:
    """A run counts from its row in runs: without it the rest is nobody's."""
    imported(db, two_steps, other)
    change(db, "DELETE FROM runs WHERE id = 2")
    assert rows_of(db, 2)["activities"]
    assert source() == ["made.sqlite"]
    assert len(done("runs", "list").splitlines()) == 1
    assert_refused(bridge("report", "--run", "2"), "no run '2': one of 1")
    imported(db, other)
    assert source() == ["other.sqlite"]
    assert_same(store.load(db, 2), importers.load(other))
    assert_same(store.load(db, 1), importers.load(two_steps))
    for table, rows in rows_of(db, 2).items():
        assert rows == {"runs": 1, "reports": 1}.get(table, rows)
    assert rows_of(db, 2)["activities"] == 5 * made_reports.ACTIVITIES_PER_STEP


@pytest.mark.slow
@pytest.mark.racy("processes are killed while others wait for them")
def test_an_import_killed_half_way_is_cleared_by_the_next(
    two_steps: Path, other: Path, db: Path
) -> None:
    imported(db, two_steps)
    code = (
        "import os, signal, sys, importlib; from bridge.cli import main;"
        " save = importlib.import_module('bridge.store.saving');"
        " save._run = lambda *_: os.kill(os.getpid(), signal.SIGKILL); main(sys.argv[1:])"
    )
    words = [sys.executable, "-c", code, "import", str(other)]
    killed = subprocess.run(words, capture_output=True, check=False, timeout=60)
    assert killed.returncode < 0
    assert source() == ["made.sqlite"]
    imported(db, other)
    assert_same(store.load(db), importers.load(other))
    assert rows_of(db, 2)["activities"] == 5 * made_reports.ACTIVITIES_PER_STEP
    assert inside(db.parent) == ["bridge.db"]


@pytest.mark.slow
@pytest.mark.racy("several processes write one store")
def test_imports_at_the_same_time_do_not_take_each_other_for_dead(tmp_path: Path, db: Path) -> None:
    reports = [made_reports.small(tmp_path / f"{n}.sqlite", steps=n) for n in range(1, 5)]
    code = "from bridge.__main__ import command; command()"
    words = [[sys.executable, "-c", code, "import", "-q", str(report)] for report in reports]
    running = [subprocess.Popen(one, stderr=subprocess.PIPE) for one in words]
    said = [one.communicate(timeout=60)[1] for one in running]
    assert [one.returncode for one in running] == [0] * len(reports), said
    runs = store.list_runs(db)
    assert [run.id for run in runs] == [1, 2, 3, 4]
    for run in runs:
        assert_same(store.load(db, run.id), importers.load(tmp_path / run.source[0]))
    assert inside(db.parent) == ["bridge.db"]


@pytest.mark.slow
@pytest.mark.racy("threads and timers meet at random")
def test_an_import_waits_for_who_reads(two_steps: Path, other: Path, db: Path) -> None:
    imported(db, two_steps)
    reader = sqlite3.connect(db, check_same_thread=False)
    rows = reader.execute("SELECT id FROM activities")  # holds the lock of readers until fetched
    rows.fetchone()
    release = Timer(1.5, rows.close)
    release.start()
    imported(db, other)
    release.join()
    reader.close()
    assert [run.id for run in store.list_runs(db)] == [1, 2]


@pytest.mark.slow
@pytest.mark.racy("threads and timers meet at random")
def test_a_store_appears_whole(db: Path) -> None:
    maker = sqlite3.connect(db, isolation_level=None, check_same_thread=False)
    maker.execute("BEGIN IMMEDIATE")

    def made() -> None:
        MIGRATIONS[0](Database(maker))
        maker.execute("PRAGMA user_version = 1")
        maker.execute("COMMIT")
        maker.close()

    Timer(0.3, made).start()
    assert store.list_runs(db) == []


@pytest.mark.slow
def test_a_store_of_version_1_goes_on(two_steps: Path, other: Path, db: Path) -> None:
    imported(db, two_steps)
    with closing(sqlite3.connect(db)) as old:
        for view in VIEWS_OF_STORE:
            old.execute(f"DROP VIEW {view}")
        for table, columns in NEW_IN_2.items():
            for column in columns.split():
                old.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        for statement in made_reports.UNSEALED:
            old.execute(statement)
        old.execute("DROP TABLE waits")
        old.execute("DELETE FROM extents WHERE [table] = 'waits'")
        for view, sql in VIEWS_OF_STORE.items():
            old.execute(f"CREATE VIEW {view} AS {sql}")
        old.execute("PRAGMA user_version = 1")
        old.commit()
    before = importers.load(two_steps)
    report = store.load(db)
    assert report.activities["bytes"].tolist() == before.activities["bytes"].tolist()
    assert not len(report.waits)
    assert set(report.ranges.json) <= {""}
    imported(db, other)
    assert_same(store.load(db, 2), importers.load(other))


# -- what others see in it


@pytest.mark.slow
def test_the_view_of_kernels_says_names_and_paths(two_steps: Path, db: Path) -> None:
    imported(db, two_steps)
    sql = (
        "SELECT kernel, op, path, reason, count(*), sum(duration_ns), min(start), max(grid_x)"
        " FROM kernels WHERE run = 1 AND kernel != 'backwards' GROUP BY 1, 2, 3, 4 ORDER BY 1"
    )
    assert ask(db, sql) == [
        ("gemm_kernel", "gemm", "step/aten::mm/gemm", None, 4, 320, 1100, 8),
        ("late_kernel", None, None, "no_range", 4, 80, 1960, 8),
        ("lost_kernel", None, None, "no_launch", 4, 12, 1981, 8),
        ("mm_kernel", "aten::mm", "step/aten::mm", None, 4, 120, 1210, 8),
    ]
    assert ask(db, "SELECT op, path, reason FROM kernels WHERE kernel = 'backwards'") == [
        (None, None, "invalid_time")
    ]


def test_the_view_of_calls_says_ops_and_whole_texts(two_steps: Path, db: Path) -> None:
    imported(db, two_steps)
    sql = (
        "SELECT name, op, text, start, end, duration_ns FROM calls WHERE start = ? AND name LIKE ?"
    )
    assert (
        ask(db, sql, 1010, "aten%")
        == [
            (
                "aten::mm",
                "aten::mm",
                "aten::mm, seq = 0, op_id = 50, sizes = [[2, 3]]",
                1010,
                1300,
                290,
            )
        ]
        * 2
    )
    assert ask(db, sql, 1050, "gemm") == [("gemm", "gemm", "gemm", 1050, 1200, 150)] * 2
    counts = dict(ask(db, "SELECT op, count(*) FROM calls GROUP BY op"))
    assert counts["step"] == counts["gemm"] == counts["mine | 'ü'"] == 4
    assert not {"epoch", "ncclAllReduce"} & set(counts)  # a phase and a library's own are no ops


@pytest.mark.slow
def test_the_views_agree_with_the_attribution(two_steps: Path, db: Path) -> None:
    imported(db, two_steps)
    report = importers.load(two_steps)
    found = join(report).op_kernels.assign(kernel=report.activities.name.to_pandas())
    columns = ["kernel", "op", "path", "reason"]
    expected = found.loc[report.activities.kind == "kernel", columns].astype(object)
    rows = ask(db, "SELECT kernel, op, path, coalesce(reason, '') FROM kernels ORDER BY id")
    known = expected.where(expected.notna(), None)
    assert rows == list(known.itertuples(index=False, name=None))


@pytest.mark.slow
@pytest.mark.parametrize("path", real_parts.corpus_reports(names=["mnist-training"]))
def test_the_view_of_kernels_has_the_names_of_the_table_of_kernels(path: Path, db: Path) -> None:
    imported(db, path)
    sql = "SELECT kernel, count(*), sum(duration_ns) FROM kernels GROUP BY kernel"
    table = join(importers.load(path)).by("kernel")
    expected = zip(table["kernel"], table["count"], table["total_ns"], strict=True)
    assert set(ask(db, sql)) == set(expected)
    assert len({short for (short,) in ask(db, "SELECT short_name FROM kernels")}) < len(table)


@pytest.mark.slow
def test_a_store_of_two_runs_keeps_their_rows_apart(two_steps: Path, other: Path, db: Path) -> None:
    imported(db, two_steps, other)
    sql = "SELECT run, count(*) FROM {} GROUP BY run"
    kernels = made_reports.KERNELS_PER_STEP
    assert ask(db, sql.format("kernels")) == [(1, 4 * kernels + 1), (2, 5 * kernels)]
    assert ask(db, sql.format("calls WHERE op = 'gemm'")) == [(1, 4), (2, 5)]
    wrong = "SELECT count(*) FROM activities a JOIN {} o ON o.id = a.{} WHERE o.run != a.run"
    for table, column in (
        ("ranges", '"range"'),
        ("launches", "launch"),
        ("names", "name"),
        ("names", "op"),
    ):
        assert ask(db, wrong.format(table, column)) == [(0,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "table"),
    [
        ("op", "op_summary"),
        ("op-kernel", "op_kernel_summary"),
        ("kernel", "kernel_summary"),
        ("memcpy", "memcpy_summary"),
    ],
)
def test_summaries_hold_what_is_reported(by: str, table: str, two_steps: Path, db: Path) -> None:
    imported(db, two_steps)
    rows = json.loads(done("report", "--by", by, "--format", "json"))["rows"]
    columns = ", ".join(rows[0])
    assert ask(db, f"SELECT {columns} FROM {table} WHERE run = 1") == [
        tuple(r.values()) for r in rows
    ]


@pytest.mark.slow
def test_missing_values_are_null_to_others(two_steps: Path, db: Path) -> None:
    imported(db, two_steps)
    assert ask(db, "SELECT count(*) FROM activities WHERE op IS NULL") == [(9,)]
    [(total,)] = ask(
        db, "SELECT sum(end - start) FROM activities WHERE reason IS NULL AND op IS NULL"
    )
    assert total is None


@pytest.mark.slow
def test_runs_say_what_they_are(two_steps: Path, db: Path) -> None:
    imported(db, two_steps)
    [row] = ask(db, "SELECT id, source, activities, gpu_ns, attributed_ns, ops, version FROM runs")
    assert row[:-1] == (1, '["made.sqlite"]', 29, 612, 520, 3)
    assert ask(db, "SELECT product, schema FROM reports") == [("2099.1.2.3-456v0", "9.9.9")]
    assert ask(db, "PRAGMA integrity_check") == [("ok",)]


def test_a_store_is_found_by_a_missing_one_s_message(folder: Path) -> None:
    with pytest.raises(StoreError, match="no store here"):
        store.load(folder / "none.db")
    assert store.find_run(folder / "none.db", "x") is None
    assert not inside(folder)


@pytest.mark.slow
def test_a_run_is_shown_under_the_rules_it_was_imported_with(tmp_path: Path) -> None:
    from command import done

    from bridge.cli import demo_report

    report, rules, db = tmp_path / "demo.sqlite", tmp_path / "rules.toml", tmp_path / "runs.db"
    demo_report.make(report)
    rules.write_text('[[rule]]\nmatch = "Backward0$"\nop = "backward op"\n')
    done("import", "--quiet", "--db", db, "--op-rules", rules, report)
    assert "backward op" in done("report", "--db", db)
    assert "backward op" in done("runs", "show", "--db", db, "1")
