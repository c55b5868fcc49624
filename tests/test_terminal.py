"""The command line in a terminal and in a pipe: colours, bars, widths, and what it is at meanwhile."""

import os
import pty
import subprocess
import sys
import time

import pytest

from bridge import demo

pytestmark = pytest.mark.slow


ESCAPE = "\x1b["


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("demo") / "demo.sqlite"
    demo.make(path)
    return path


def in_terminal(*command, **variables):
    """Run a command with a terminal for output and errors; return all that it showed."""
    ours, theirs = pty.openpty()
    environment = {
        k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")
    }
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**environment, "TERM": "xterm", **variables},
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux says so that nobody has it open any more
            break
        shown += piece
    os.close(ours)
    assert process.wait(timeout=60) == 0, shown
    return shown.decode()


def bridge(*words):
    return ["-m", "bridge", *map(str, words)]


def test_a_terminal_gets_bars_and_colours(report):
    shown = in_terminal(*bridge("report", report, "--by", "op"), COLUMNS="140")
    assert ESCAPE in shown
    assert "██████████" in shown


@pytest.mark.parametrize("width", ["80", "120", "200"])
def test_lines_fit_the_terminal(report, width):
    shown = in_terminal(*bridge("report", report, "--by", "op-kernel"), COLUMNS=width, NO_COLOR="1")
    table, *_ = shown.split("\r\n\r\n")
    assert max(map(len, table.splitlines())) <= int(width)


def test_no_color_keeps_the_bars(report):
    shown = in_terminal(*bridge("report", report), COLUMNS="140", NO_COLOR="1")
    assert ESCAPE not in shown
    assert "██████████" in shown


def piped(*words, **variables):
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    return subprocess.run(
        [sys.executable, *bridge(*words)],
        capture_output=True, text=True, check=True, timeout=60, env={**environment, "COLUMNS": "140", **variables},
    )  # fmt: skip


def test_a_pipe_gets_plain_text(report):
    done = piped("report", report)
    assert ESCAPE not in done.stdout
    assert "█" not in done.stdout
    assert done.stderr == ""


def test_colours_can_be_forced_into_a_pipe(report):
    assert ESCAPE in piped("report", report, FORCE_COLOR="1").stdout
    assert ESCAPE not in piped("report", report, FORCE_COLOR="1", NO_COLOR="1").stdout


def test_a_file_gets_plain_text_too(report, tmp_path):
    piped("report", report, "-o", tmp_path / "table.txt", FORCE_COLOR="1")
    assert ESCAPE not in (tmp_path / "table.txt").read_text()


SLOW = """
import time
from bridge.cli import progress
progress.PATIENCE = {patience}
with progress.doing("reading [all] of it"):
    time.sleep(0.6)
print("done")
"""


@pytest.mark.racy("progress is shown by the clock")
def test_what_takes_long_says_what_it_is_at_and_leaves_no_trace():
    shown = in_terminal("-c", SLOW.format(patience=0.1))
    assert "reading [all] of it" in shown
    assert shown.rstrip().endswith("done")
    after = shown.rsplit("reading", 1)[1]
    assert "\x1b[2K" in after  # the line is cleared


def test_what_is_quick_says_nothing():
    assert "reading" not in in_terminal("-c", SLOW.format(patience=5))


@pytest.mark.racy("progress is shown by the clock")
def test_an_end_is_not_waited_for():
    began = time.monotonic()
    in_terminal("-c", SLOW.format(patience=30))
    assert time.monotonic() - began < 20


def test_no_terminal_no_progress():
    done = subprocess.run(
        [sys.executable, "-c", SLOW.format(patience=0.1)], capture_output=True, text=True, check=True, timeout=60
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("done\n", "")
