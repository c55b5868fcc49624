"""The command line in a terminal and in a pipe: colours, bars, widths, and what it is at meanwhile."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time

import made_reports
import pytest
from real_parts import few

pytestmark = pytest.mark.slow


ESCAPE = "\x1b["


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


# One process prints what several would, each time with other variables: most of a process is its start.
EACH = """
import json, os, sys
from bridge.cli import main
for words, variables in json.loads(sys.argv[1]):
    os.environ.update(variables)
    main(words, standalone_mode=False)
    for name in variables:
        del os.environ[name]
    print("END", flush=True)
"""
WIDTHS = (80, 120, 200)


def each(commands):
    """Say how to run these commands, each words and variables, in one process."""
    return ["-c", EACH, json.dumps([[list(map(str, words)), more] for words, more in commands])]


@pytest.fixture(scope="module")
def on_terminal(demo):
    """Give what a terminal shows of some commands."""
    commands = {
        "coloured": (["report", demo, "--by", "op"], {"COLUMNS": "140"}),
        "colourless": (["report", demo], {"COLUMNS": "140", "NO_COLOR": "1"}),
        "few": (["diff", demo, demo, "--by", "op,step"], {"COLUMNS": "140"}),
        "all": (["diff", demo, demo, "--by", "op,step", "--top", "all"], {"COLUMNS": "140"}),
    }
    for width in WIDTHS:
        variables = {"COLUMNS": str(width), "NO_COLOR": "1"}
        commands[width] = (["report", demo, "--by", "op-kernel"], variables)
    *shown, rest = in_terminal(*each(commands.values())).split("END\r\n")
    assert rest == ""
    return dict(zip(commands, shown, strict=True))


def test_a_terminal_gets_bars_and_colours(on_terminal):
    assert ESCAPE in on_terminal["coloured"]
    assert "██████████" in on_terminal["coloured"]


def test_a_comparison_ends_after_twenty_rows(on_terminal):
    few, every = on_terminal["few"], on_terminal["all"]
    assert "more (--top all)" in few
    assert "more (--top all)" not in every
    rows = [text.split("\u2500\r\n")[1].split("\r\n\r\n")[0].splitlines() for text in (few, every)]
    assert len(rows[0]) == 20
    assert rows[1][:20] == rows[0]
    left = len(rows[1]) - 20
    assert f"… and {left} more (--top all)" in few


@pytest.mark.parametrize("width", WIDTHS)
def test_lines_fit_the_terminal(on_terminal, width):
    headline, table, *_ = on_terminal[width].split("\r\n\r\n")
    assert max(map(len, table.splitlines())) <= width
    words, _, command = headline.rpartition("\r\n")
    assert all(len(line) <= width for line in words.splitlines())
    assert command.startswith("→ bridge ") or len(command) <= width  # commands stay whole


def test_no_color_keeps_the_bars(on_terminal):
    assert ESCAPE not in on_terminal["colourless"]
    assert "██████████" in on_terminal["colourless"]


def piped(*command):
    gone = ("NO_COLOR", "FORCE_COLOR")
    environment = {name: value for name, value in os.environ.items() if name not in gone}
    return subprocess.run(
        [sys.executable, *command],
        capture_output=True, text=True, check=True, timeout=60, env={**environment, "COLUMNS": "140"},
    )  # fmt: skip


def test_a_pipe_gets_plain_text(demo):
    done = piped("-m", "bridge", "report", demo)
    assert ESCAPE not in done.stdout
    assert "█" not in done.stdout
    assert done.stderr == ""


@pytest.fixture(scope="module")
def forced(demo, tmp_path_factory):
    """Give what a pipe gets and a file holds where colours are asked for by the environment."""
    output = tmp_path_factory.mktemp("forced") / "table.txt"
    commands = [
        (["report", demo], {"FORCE_COLOR": "1"}),
        (["report", demo], {"FORCE_COLOR": "1", "NO_COLOR": "1"}),
        (["report", demo, "-o", output], {"FORCE_COLOR": "1"}),
    ]
    asked, refused, _, rest = piped(*each(commands)).stdout.split("END\n")
    assert rest == ""
    return {"asked": asked, "refused": refused, "file": output.read_text()}


def test_colours_can_be_forced_into_a_pipe(forced):
    assert ESCAPE in forced["asked"]
    assert ESCAPE not in forced["refused"]


def test_a_file_gets_plain_text_too(forced):
    assert ESCAPE not in forced["file"]


SLOW = """
import time
from bridge.cli import options as progress
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


# -- names that would act on a terminal

EVIL = "\x1b]0;owned\x07\x1b[2J\x1b[8m\x9b31m\x85\u202e\r"
OWN_STYLES = re.compile(r"\x1b\[(?:0|1|3[0-7])m")


@pytest.fixture(scope="module")
def evil(demo, tmp_path_factory):
    """Give a report all of whose names hold control characters."""
    path = shutil.copy(demo, tmp_path_factory.mktemp("evil") / "evil.sqlite")
    codes = ", ".join(str(ord(c)) for c in EVIL)
    return made_reports.changed(
        path,
        f"UPDATE StringIds SET value = value || char({codes})",
        f"UPDATE NVTX_EVENTS SET text = text || char({codes})",
    )


@pytest.mark.parametrize(
    "words",
    few(
        [
            ["report"], ["report", "--format", "csv"], ["summary"], ["report", "--format", "json"], ["flame"],
            ["report", "--format", "md"], ["advise"], ["why", "#3"], ["advise", "--format", "json"],
            ["report", "--by", "kernel", "--kernel-names", "demangled", "--format", "csv"], ["doctor"],
        ],
        6,
    ),
)  # fmt: skip
def test_no_name_acts_on_a_terminal(words, evil):
    shown = in_terminal("-m", "bridge", words[0], str(evil), *words[1:])
    plain = OWN_STYLES.sub("", shown).replace("\r\n", "\n")
    plain = plain.partition("\x1b[K")[2] or plain  # the end of the progress on stderr
    assert not [c for c in plain if c in EVIL and c not in "owned0;]2J[8m31 "]


def test_a_pipe_gets_the_names_as_they_are(evil):
    text = piped("-m", "bridge", "report", str(evil), "--format", "csv").stdout
    assert "\x1b]0;owned\x07" in text
