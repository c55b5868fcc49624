"""What a command takes in a process of its own: ``--memory-limit`` is held, or refused before it is exceeded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from made_reports import PUSH_POP, Made, thread

from bridge.scale.windows import window

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not window.STATUS.exists(), reason="Linux alone says what a process had"),
]
MB = 10**6
NAMES = 60_000
PROGRAM = """
import atexit, re, runpy, sys
status = open("/proc/self/status")
atexit.register(lambda: print(re.search(r"VmHWM:\\s+(\\d+)", status.read())[1], file=sys.stderr))
runpy.run_module("bridge", run_name="__main__")
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a report whose ops and kernels all have names of their own."""
    made = Made()
    for number in range(NAMES):
        start = 1_000 * (number + 1)
        made.annotation(PUSH_POP, start, start + 900, text=f"op_{number}_x", thread=thread(100))
        made.kernel(f"kernel_{number}_x", start + 10, 100, start + 50, start + 800)
    return made.written(tmp_path_factory.mktemp("names") / "names.sqlite")


def run(*words: str | Path) -> tuple[int, str, list[str], int]:
    """Run a command; give its status, its output, the lines on standard error, and its peak in bytes."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )
    *lines, peak = ran.stderr.splitlines()
    return ran.returncode, ran.stdout, lines, int(peak) << 10


@pytest.mark.parametrize(
    ("words", "limit"),
    [
        ("--by op --format json --names raw", 300),
        ("--by kernel --format csv", 275),
    ],
)
def test_a_report_of_distinct_names_holds_the_limit(words: str, limit: int, path: Path) -> None:
    command = ["report", path, *words.split()]
    status, printed, lines, peak = run(*command, "--memory-limit", f"{limit}MB")
    assert (status, lines) == (0, [])
    assert peak <= 1.1 * limit * MB
    assert printed == run(*command)[1]


def test_an_import_of_distinct_names_holds_the_limit(path: Path, tmp_path: Path) -> None:
    status, _, _, peak = run(
        "import", path, "--db", tmp_path / "bridge.db", "--memory-limit", "910MB"
    )
    assert status == 0
    assert peak <= 1.1 * 910 * MB


@pytest.mark.parametrize("command", ["report --by op", "report --by kernel", "import"])
def test_a_limit_that_is_too_low_is_refused_before_it_is_exceeded(
    command: str, path: Path, tmp_path: Path
) -> None:
    name, *words = command.split()
    words += ["--db", str(tmp_path / "bridge.db")] if name == "import" else []
    status, printed, lines, peak = run(name, path, *words, "--memory-limit", "200MB")
    assert (status, printed) == (1, "")
    assert "names.sqlite: --memory-limit 200MB is too little: " in lines[-1]
    assert peak <= 1.1 * 200 * MB


def test_a_table_that_would_exceed_the_limit_is_not_written(path: Path) -> None:
    command = ["report", path, "--by", "op", "--columns", "all", "--memory-limit", "390MB"]
    status, printed, lines, peak = run(*command)
    assert (status, printed) == (1, "")
    assert "is too little to write" in lines[-1]
    assert peak <= 1.1 * 390 * MB
