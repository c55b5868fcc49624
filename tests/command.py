"""Runs `bridge` in this process, and says what a refusal must look like."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bridge import importers
from bridge.cli import main

COMMANDS = ("report", "import", "trace")
BESIDES = re.compile(r"warning: |\d+ of \d+: ")


def bridge(*words: str | Path) -> Result:
    """Run a command; an exception that would be a traceback for the user is one for the test."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        return CliRunner().invoke(main, [str(word) for word in words], catch_exceptions=False)
    finally:
        signal.signal(signal.SIGTERM, before)


def done(*words: str | Path) -> str:
    """Run a command that works, and give its standard output."""
    result = bridge(*words)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def after_scope(text: str) -> str:
    """Give a first screen without its first sentence, which names the report and tells how long the run was."""
    return text.partition(".\n")[2]


def table_in(text: str) -> list[str]:
    """Give the lines from the heading of the first table on."""
    lines = text.splitlines()
    return lines[next(n for n, line in enumerate(lines) if line.startswith("──")) - 1 :]


def on(command: str, *reports: str | Path) -> Result:
    """Run one of the commands that read reports, in a way that it would leave something behind."""
    written = ["-o", "out.json.gz"] if command == "trace" else []
    return bridge(command, *written, "--", *reports)


def assert_refused(result: Result, *words: str) -> None:
    """Assert that it ended with status 1 and one line that holds these words, and printed nothing."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    [line] = unwarned(result.stderr).splitlines()
    assert line.startswith("Error: ")
    for word in words:
        assert word in line


def assert_misused(result: Result, *words: str) -> None:
    """Assert that it ended with status 2, the last line saying what is wrong with the command."""
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: ")
    for word in words:
        assert word in last


def refused(path: Path, *words: str) -> str:
    """Load a file that is refused in one short line that holds its name and these words; give the line."""
    with pytest.raises(importers.ReportError) as caught:
        importers.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 300
    for word in (path.name, *words):
        assert word in message
    return message


def unwarned(said: str) -> str:
    """Give what was said on standard error besides warnings and the progress of workers."""
    lines = said.splitlines(keepends=True)
    return "".join(line for line in lines if not BESIDES.match(line))


def inside(folder: Path) -> list[str]:
    """List the names in a folder, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())


def listing(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Give the bytes and the time of change of every file of a folder."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns) for p in files}
