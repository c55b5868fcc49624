"""Tries one mutant after another: each in a fork of this process, on a copy of the tree that holds the change.

The copy lets what tests start as programs of their own see the change too; the fork spares pytest, pandas
and hypothesis from being imported for every mutant.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from .source import Mutant

KILLED, SURVIVED, TIMEOUT, BROKEN = "killed", "survived", "timeout", "broken"
OUTCOMES = {0: SURVIVED, 1: KILLED, 2: BROKEN}  # a signal that ends the fork is a kill
FIRST = 40  # tests that are tried before all others: most mutants die there
PRELOADED = (
    "hypothesis",
    "numpy",
    "pandas",
    "scipy.stats",
    "click.testing",
    "rich.table",
    "adbc_driver_sqlite.dbapi",
    "nanoarrow",
)


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant; ``by`` is the test that failed."""

    mutant: Mutant
    outcome: str
    by: str
    seconds: float


class Selected:
    """A pytest plugin that runs the chosen tests alone, in the order given, and keeps the first that fails."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.rank = {test: place for place, test in enumerate(tests)}
        self.failed = ""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the chosen tests, once each, and try none of them again where it fails."""
        items[:] = sorted(
            (one for one in items if one.nodeid in self.rank), key=lambda one: self.rank[one.nodeid]
        )
        for item in items:
            item.own_markers = [mark for mark in item.own_markers if mark.name != "flaky"]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a failure."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a file that cannot even be imported."""
        if report.failed and not self.failed:
            self.failed = report.nodeid


class Copies:
    """Copies of the tree, one per process that runs at a time."""

    def __init__(self, root: Path, folder: Path, count: int) -> None:
        self.root = root
        listed = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"],
            capture_output=True,
            text=True,
            check=True,
        )
        self.free = []
        for number in range(count):
            copy = folder / f"copy{number}"
            for name in listed.stdout.splitlines():
                if (root / name).exists():
                    (copy / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy2(root / name, copy / name, follow_symlinks=False)
            # Bytecode that is checked by the source's hash: times do not tell a mutant from what it was.
            compiled = [
                sys.executable,
                "-m",
                "compileall",
                "-q",
                "--invalidation-mode",
                "checked-hash",
                "bridge",
                "importers",
                "tests",
            ]
            subprocess.run(compiled, cwd=copy, check=True)
            self.free.append(copy)


def try_all(
    jobs: Sequence[tuple[Mutant, list[str]]], copies: Copies, limit_s: float
) -> Iterator[Verdict]:
    """Yield what becomes of each mutant, as many at a time as there are copies."""
    for name in PRELOADED:
        __import__(name)
    waiting, running = list(reversed(jobs)), {}
    while waiting or running:
        while waiting and copies.free:
            mutant, tests = waiting.pop()
            copy = copies.free.pop()
            running[_start(mutant, tests, copy)] = (mutant, copy, time.monotonic())
        done, code = os.waitpid(-1, os.WNOHANG)
        for pid, (mutant, copy, since) in list(running.items()):
            if pid != done and time.monotonic() - since < limit_s:
                continue
            if pid != done:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            del running[pid]
            shutil.copy2(copies.root / mutant.path, copy / mutant.path)
            copies.free.append(copy)
            outcome = (
                TIMEOUT if pid != done else OUTCOMES.get(os.waitstatus_to_exitcode(code), KILLED)
            )
            yield Verdict(mutant, outcome, _killer(copy), time.monotonic() - since)
        if not done:
            time.sleep(0.02)


def _start(mutant: Mutant, tests: list[str], copy: Path) -> int:
    (copy / "killer.txt").unlink(missing_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if not pid:  # whatever happens in the fork must end there: the parent's clean-up is not its own
        code = 2
        try:
            code = _run(mutant, tests, copy)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid


def _killer(copy: Path) -> str:
    path = copy / "killer.txt"
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _run(mutant: Mutant, tests: list[str], copy: Path) -> int:
    """Run the tests on the changed copy, in the fork; return 1 where one fails."""
    os.setsid()
    silent = os.open(copy / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(silent, stream)
    os.chdir(copy)
    sys.path[:0] = [str(copy)]
    os.environ["PYTHONPATH"] = str(copy)
    path = copy / mutant.path
    path.write_text(mutant.applied(path.read_text(encoding="utf-8")), encoding="utf-8")
    for part in (tests[:FIRST], tests[FIRST:]):
        chosen = Selected(part)
        files = sorted({test.partition("::")[0] for test in part})
        options = [
            "-x",
            "-q",
            "--no-header",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:xdist",
            "-p",
            "no:pytest_cov",
            "-o",
            "addopts=--strict-markers",
            "-W",
            "ignore::pytest.PytestAssertRewriteWarning",
        ]
        status = pytest.main([*options, *files], plugins=[chosen]) if part else 0
        if chosen.failed:
            (copy / "killer.txt").write_text(chosen.failed, encoding="utf-8")
            return 1
        if status:
            return 2
    return 0
