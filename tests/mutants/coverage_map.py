"""Knows which tests run which lines: recorded once per suite with coverage.py, a context per test."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path
from xml.etree import ElementTree as ET

import coverage

from .source import Mutant


class CoverageMap:
    """The tests of a suite by the lines that they run."""

    def __init__(self, data_file: Path, root: Path) -> None:
        self.root = root
        self.data = coverage.CoverageData(str(data_file))
        self.data.read()
        self._failed = failed(data_file.with_suffix(".xml"))
        self._contexts: dict[str, dict[int, list[str]]] = {}
        self.breadth = self._breadth(data_file)

    def tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that run a mutant's statement, else those of its module, else of its folder.

        A statement that runs when its module is imported belongs to no test.
        The most focused come first, and one of each function before the second of any: what one set of
        parameters lets pass, most others do too.
        """
        by_line = self._of_file(mutant.path)
        first, last = mutant.lines
        found = {test for line in range(first, last + 1) for test in by_line.get(line, ())}
        found = found or {test for tests in by_line.values() for test in tests}
        if not found:
            beside = sorted((self.root / mutant.path).parent.glob("*.py"))
            maps = [self._of_file(path.relative_to(self.root).as_posix()) for path in beside]
            found = {test for lines in maps for tests in lines.values() for test in tests}
        found -= self._failed
        focused = sorted(found, key=lambda test: (self.breadth.get(test, 0), test))
        # What a fixture of a module runs is known of its first test alone: the others of the file look at it too.
        files = {test.partition("::")[0] for test in found}
        focused += sorted(
            test
            for test in self.breadth
            if test.partition("::")[0] in files and test not in found | self._failed
        )
        seen: Counter[str] = Counter()
        turns = {}
        for test in focused:
            function = test.partition("[")[0]
            turns[test] = seen[function]
            seen[function] += 1
        return sorted(focused, key=turns.__getitem__)

    def _of_file(self, path: str) -> dict[int, list[str]]:
        if path not in self._contexts:
            contexts = self.data.contexts_by_lineno(str(self.root / path))
            self._contexts[path] = {
                line: [name.partition("|")[0] for name in names if name]
                for line, names in contexts.items()
            }
        return self._contexts[path]

    def _breadth(self, data_file: Path) -> dict[str, int]:
        """Count the files that each test runs lines of; coverage.py has no such count in its API."""
        counted = "select context, count(distinct file_id) from line_bits join context on context.id = context_id group by 1"
        result: dict[str, int] = defaultdict(int)
        with closing(sqlite3.connect(data_file)) as database:
            for name, files in database.execute(counted):
                test = name.partition("|")[0]
                result[test] = max(result[test], files)
        return result


def record(suite: list[str], data_file: Path, root: Path) -> None:
    """Run a suite under coverage.py and keep what it ran.

    A test that fails without any mutant, as those that measure time do under coverage.py, would kill every
    mutant: its name is kept beside the data, and it is not used.
    """
    data_file.parent.mkdir(parents=True, exist_ok=True)
    results = data_file.with_suffix(".xml")
    options = [
        "--cov=bridge",
        "--cov-context=test",
        "--cov-report=",
        f"--junitxml={results}",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *options, *suite]
    subprocess.run(
        command, cwd=root, env={**os.environ, "COVERAGE_FILE": str(data_file)}, check=False
    )


def failed(results: Path) -> set[str]:
    """Return the tests that failed while a suite was recorded, as `file.py::name[parameters]`."""
    cases = ET.parse(results).getroot().iter("testcase")
    wrong = (
        case for case in cases if case.find("failure") is not None or case.find("error") is not None
    )
    return {
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}" for case in wrong
    }
