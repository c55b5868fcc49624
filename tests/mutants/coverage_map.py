"""Knows which tests run which lines: recorded once per suite with coverage.py, a context per test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import coverage

from .source import Mutant


class CoverageMap:
    """The tests of a suite by the lines that they run."""

    def __init__(self, data_file: Path, root: Path) -> None:
        self.root = root
        self.data = coverage.CoverageData(str(data_file))
        self.data.read()
        self._contexts: dict[str, dict[int, list[str]]] = {}
        self.breadth: dict[str, int] = defaultdict(
            int
        )  # of a test: how many files it runs lines of

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that run a mutant's statement, else those of its module; the most focused come first."""
        by_line = self._of_file(mutant.path)
        first, last = mutant.lines
        found = {test for line in range(first, last + 1) for test in by_line.get(line, ())}
        found = found or {test for tests in by_line.values() for test in tests}
        return sorted(found, key=lambda test: (self.focus.get(test, 0), test))

    def _of_file(self, path: str) -> dict[int, list[str]]:
        if path not in self._contexts:
            contexts = self.data.contexts_by_lineno(str(self.root / path))
            self._contexts[path] = {
                line: [name.partition("|")[0] for name in names if name]
                for line, names in contexts.items()
            }
        return self._contexts[path]

    @property
    def focus(self) -> dict[str, int]:
        """How many files of the product each test runs lines of."""
        if not self.breadth:
            with self.data._connect() as database:  # the public API has no count per context
                rows = database.execute(
                    "select context, count(distinct file_id) from line_bits join context on context.id = context_id group by 1"
                )
                for name, files in rows:
                    test = name.partition("|")[0]
                    self.breadth[test] = max(self.breadth[test], files)
        return self.breadth


def record(suite: list[str], data_file: Path, root: Path) -> None:
    """Run a suite under coverage.py and keep what it ran.

    Raises
    ------
    SystemExit
        A test fails without any mutant.
    """
    data_file.parent.mkdir(parents=True, exist_ok=True)
    options = [
        "--cov=bridge",
        "--cov=importers",
        "--cov-context=test",
        "--cov-report=",
        "-q",
        "-n",
        "2",
    ]
    command = [sys.executable, "-m", "pytest", *options, *suite]
    done = subprocess.run(
        command, cwd=root, env={**os.environ, "COVERAGE_FILE": str(data_file)}, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(suite)}: the suite fails without any mutant")
