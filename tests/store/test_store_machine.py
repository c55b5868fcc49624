"""A store under any sequence of imports, removals, kills and readers holds the runs that were imported, each whole."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from tempfile import mkdtemp
from time import sleep

import made_reports
import pytest
from command import bridge, done
from fuzz.test_store import forked
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from real_parts import NIGHT

from bridge import store

REPORTS = ("small", "steps", "one")
TABLE = ("--by", "op-kernel", "--format", "csv")


class StoreMachine(RuleBasedStateMachine):
    """`runs` is the model: the reports of the runs that the store must have, by number."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(mkdtemp(prefix="store-machine-"))
        self.db = self.folder / "bridge.db"
        self.runs: dict[int, str] = {}
        self.reader: sqlite3.Connection | None = None

    @initialize()
    def reports(self) -> None:
        """Make the reports, and what they say without a store."""
        for number, name in enumerate(REPORTS, 1):
            made_reports.report(self.path(name), steps=number)
        self.expected = {name: done("report", self.path(name), *TABLE) for name in REPORTS}

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.sqlite"

    def by_store(self) -> dict[int, str]:
        return {run.id: run.source[0].removesuffix(".sqlite") for run in store.list_runs(self.db)}

    @rule(name=st.sampled_from(REPORTS))
    def import_report(self, name: str) -> None:
        """A report makes one run, however often it is imported."""
        done("import", "-q", self.path(name), "--db", self.db)
        new = self.by_store().keys() - self.runs.keys()
        assert len(new) == (name not in self.runs.values())
        self.runs |= dict.fromkeys(new, name)

    @rule(name=st.sampled_from(REPORTS), after=st.floats(0, 1))
    def import_and_kill(self, name: str, after: float) -> None:
        """A killed import has made a whole run or none."""
        child = forked(lambda: bridge("import", "-q", self.path(name), "--db", self.db).exit_code)
        sleep(0.15 * after)
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if self.db.exists():
            new = self.by_store().keys() - self.runs.keys()
            assert len(new) <= (name not in self.runs.values())
            self.runs |= dict.fromkeys(new, name)

    @precondition(lambda self: self.runs and not self.reader)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        """A removed run is gone, and no other."""
        run = data.draw(st.sampled_from(sorted(self.runs)))
        done("runs", "rm", str(run), "--db", self.db)
        del self.runs[run]

    @precondition(lambda self: self.runs and not self.reader)
    @rule()
    def open_reader(self) -> None:
        """Somebody reads the store with another program while the next commands run."""
        self.reader = sqlite3.connect(f"{self.db.as_uri()}?mode=ro", uri=True)
        self.reader.execute("SELECT count(*) FROM runs").fetchone()

    @precondition(lambda self: self.reader)
    @rule()
    def close_reader(self) -> None:
        """The other program ends."""
        assert self.reader
        self.reader.close()
        self.reader = None

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def report(self, data: st.DataObject) -> None:
        """A stored run says what its report says."""
        run = data.draw(st.sampled_from(sorted(self.runs)))
        printed = done("report", "--db", self.db, "--run", str(run), *TABLE)
        assert printed == self.expected[self.runs[run]]

    @invariant()
    def it_holds_these_runs(self) -> None:
        """The store opens, and has the runs of the model."""
        if self.db.exists():
            assert self.by_store() == self.runs

    def teardown(self) -> None:
        """Check every run, and what stands beside the store."""
        if self.reader:
            self.reader.close()
        if self.db.exists() and self.runs:
            lines = done("runs", "check", "--db", self.db).splitlines()
            assert lines == [f"run {run}: intact" for run in sorted(self.runs)]
        if self.db.exists():
            with closing(sqlite3.connect(self.db)) as database:
                assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        names = {path.name for path in self.folder.iterdir()}
        # A killed import may leave SQLite's own journal, which the next command that writes takes up.
        assert names <= {f"{n}.sqlite" for n in REPORTS} | {
            "bridge.db",
            "bridge.db-journal",
            "bridge.db-wal",
            "bridge.db-shm",
        }
        shutil.rmtree(self.folder)


TestStoreMachine = pytest.mark.slow(StoreMachine.TestCase)
TestStoreMachine.settings = settings(
    max_examples=100 if NIGHT else 6, stateful_step_count=12, deadline=None
)
