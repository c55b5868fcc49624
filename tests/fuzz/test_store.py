"""A store whose imports are killed at any moment, and one that eight processes import into at once."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import made_reports
import pytest
from command import bridge, done, inside
from real_parts import NIGHT

from bridge import store

pytestmark = pytest.mark.slow

KILLS = 5 if NIGHT else 3
PROCESSES = 8


def forked(work: Callable[[], int]) -> int:
    """Do work in a process of its own; return its id."""
    child = os.fork()
    if not child:
        status = 70
        try:
            status = work()
        finally:
            os._exit(status)
    return child


def imported(path: Path, db: Path) -> int:
    return bridge("import", "-q", path, "--db", db).exit_code


def rows_of_run(db: Path, run: int) -> str:
    return done("report", "--db", db, "--run", str(run), "--by", "op-kernel", "--format", "csv")


@pytest.fixture
def first(folder: Path) -> Path:
    """Give a store with a run, whose reports and rows are known."""
    made_reports.report(folder / "first.sqlite", steps=3)
    assert imported(folder / "first.sqlite", folder / "first.db") == 0
    return folder / "first.db"


def test_a_store_opens_wherever_its_import_was_killed(first: Path, folder: Path) -> None:
    second = made_reports.report(folder / "second.sqlite", steps=20)
    expected = {
        path: done("report", path, "--by", "op-kernel", "--format", "csv")
        for path in (folder / "first.sqlite", second)
    }
    db = folder / "bridge.db"
    shutil.copy(first, db)
    began = monotonic()
    assert os.waitpid(forked(lambda: imported(second, db)), 0)[1] == 0
    took = monotonic() - began
    pauses = [took * (nth + 1) / (KILLS + 1) for nth in range(KILLS)]
    runs_after_kill = []
    while pauses:
        pause = pauses.pop()
        for old in folder.glob("bridge.db*"):
            old.unlink()
        shutil.copy(first, db)
        child = forked(lambda: imported(second, db))
        sleep(pause)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        runs = store.list_runs(db)
        runs_after_kill.append(len(runs))
        if not pauses and 1 not in runs_after_kill and len(runs_after_kill) < 4 * KILLS:
            # The measured import was slower than these: kill earlier, until a kill is in time.
            pauses.append(pause / 2)
        assert [run.source for run in runs][:1] == [("first.sqlite",)]
        for run, path in zip(runs, expected, strict=False):
            assert rows_of_run(db, run.id) == expected[path]
        assert imported(second, db) == 0
        assert len(store.list_runs(db)) == 2
        assert rows_of_run(db, 2) == expected[second]
        assert [name for name in inside(folder) if name.startswith("bridge.db")] == ["bridge.db"]
    assert 1 in runs_after_kill, "every kill came too late to tell"


def test_eight_processes_lose_nothing(folder: Path) -> None:
    reports = [made_reports.report(folder / f"{n}.sqlite", steps=n + 1) for n in range(PROCESSES)]
    db = folder / "bridge.db"
    children = [forked(lambda path=path: imported(path, db)) for path in reports]  # type: ignore[misc]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * PROCESSES
    runs = store.list_runs(db)
    assert sorted(run.id for run in runs) == [*range(1, PROCESSES + 1)]
    assert sorted(run.source[0] for run in runs) == [path.name for path in reports]
    for run in runs:
        of_run = done(
            "report", "--db", db, "--run", str(run.id), "--by", "op-kernel", "--format", "csv"
        )
        assert of_run == done(
            "report", folder / run.source[0], "--by", "op-kernel", "--format", "csv"
        )


def test_the_same_report_from_eight_processes_is_one_run(folder: Path) -> None:
    report = made_reports.report(folder / "same.sqlite", steps=3)
    db = folder / "bridge.db"
    children = [forked(lambda: imported(report, db)) for _ in range(PROCESSES)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * PROCESSES
    assert len(store.list_runs(db)) == 1
