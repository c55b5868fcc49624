"""`bridge --debug`: the log and the causes on stderr beside the line of today; nothing without it; no secrets."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import made_reports
import pytest
from command import bridge, done

from bridge.importers.nsys import schema
from bridge.report import load
from bridge.scale import debugging

SECRET = "hidden"
PLAIN = {name: value for name, value in os.environ.items() if name != "BRIDGE_DEBUG"}


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let no variable of the machine switch it on, and no store of the working directory be found."""
    monkeypatch.delenv("BRIDGE_DEBUG", raising=False)
    monkeypatch.chdir(tmp_path)


def said(*words: str | Path) -> str:
    """Give what a command that works says on stderr with --debug."""
    result = bridge("--debug", *words)
    assert result.exit_code == 0, result.output
    return result.stderr


def lines_of(logger: str, text: str) -> list[str]:
    """Give the messages of a logger in what was printed."""
    return [
        line.partition(f"{logger}: ")[2] for line in text.splitlines() if f" {logger}: " in line
    ]


# -- Errors


@pytest.mark.parametrize(
    ("options", "status"),
    [(("--sidecar", "none"), 1), (("--kernel-rules", "none"), 2)],
)
def test_an_error_is_the_same_line_below_its_causes(demo, options, status) -> None:
    plain = bridge("report", demo, *options)
    debugged = bridge("--debug", "report", demo, *options)
    assert plain.exit_code == debugged.exit_code == status
    assert debugged.stderr.endswith(plain.stderr)
    assert "Traceback" not in plain.stderr
    before = debugged.stderr.removesuffix(plain.stderr)
    cause = before.index("FileNotFoundError: [Errno 2]")
    assert cause < before.index("The above exception was the direct cause", cause)
    assert debugged.stdout == plain.stdout == ""


def test_the_option_after_the_command_is_told_its_place(demo) -> None:
    for command in ("report", "runs list"):
        result = bridge(*command.split(), "--debug")
        line = f"Error: --debug stands before the command: main --debug {command}"
        assert result.stderr.splitlines()[-1] == line
        assert result.exit_code == 2


def test_an_error_of_a_worker_has_its_causes(demo) -> None:
    Path("text.sqlite").write_text("no report", encoding="utf-8")
    result = bridge("--debug", "report", demo, "text.sqlite", "--workers", "1")
    assert "bridge.scale: text.sqlite: left out\nTraceback" in result.stderr
    assert "broken: " in result.stderr


def test_the_place_of_an_interrupt_is_shown(demo, monkeypatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bridge.importers.load", interrupted)
    result = bridge("--debug", "report", demo)
    assert result.exit_code == 130
    assert "in interrupted" in result.stderr
    assert result.stderr.endswith("interrupted; nothing half-written was left\n")


# -- Nothing without it


def test_a_command_says_nothing_more_without_it(demo) -> None:
    assert bridge("report", demo).stderr == ""
    assert said("report", demo)
    assert bridge("report", demo).stderr == ""  # nothing stays switched on
    rooms = logging.getLogger("bridge")
    assert (rooms.handlers, rooms.level) == ([], logging.NOTSET)
    assert "BRIDGE_DEBUG" not in os.environ


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [("-m", "bridge", "report", "{}"), ("-c", "import bridge; bridge.load('{}').by('op')")],
)
def test_processes_print_nothing_on_stderr(demo, program) -> None:
    words = [sys.executable, *(word.format(demo) for word in program)]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, env=PLAIN)
    assert ran.stderr == ""


@pytest.mark.slow
def test_neither_a_program_nor_a_help_text_loads_logging() -> None:
    for program in (
        "import bridge; bridge.nvtx_op",
        "from bridge.cli import main; main(['report', '--help'], standalone_mode=False)",
    ):
        code = f"{program}\nimport sys; assert 'logging' not in sys.modules"
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, env=PLAIN)


@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_standard_output_is_the_same(demo, form) -> None:
    words = ("report", demo, "--format", form)
    assert done("--debug", *words) == done(*words)


def test_the_variable_is_as_good_as_the_option(demo, monkeypatch) -> None:
    for value, is_on in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("BRIDGE_DEBUG", value)
        assert bool(lines_of("bridge.importers", bridge("report", demo).stderr)) is is_on


# -- What the log says


def test_it_says_what_is_read_of_an_export(demo) -> None:
    log = "\n".join(lines_of("bridge.importers", said("report", demo)))
    assert f"{demo}: begins as SQLite or Arrow: read as an export of Nsight Systems" in log
    [rows] = [line for line in log.splitlines() if "rows read: " in line]
    counted = dict(part.split() for part in rows.partition("rows read: ")[2].split(", "))
    stored = rows_in(demo)
    assert {name: int(counted[name]) for name in stored} == stored
    [absent] = [line for line in log.splitlines() if ": absent: " in line]
    assert "context_switches" in absent
    assert not set(counted) & set(absent.partition(": absent: ")[2].split(", "))


def rows_in(path: Path) -> dict[str, int]:
    """Count the rows of tables with Python's own SQLite, as a second witness."""
    with closing(sqlite3.connect(path)) as database:
        return {
            name: database.execute(f'SELECT count(*) FROM "{schema.READ[name].name}"').fetchone()[0]
            for name in ("kernels", "launches", "annotations")
        }


def test_it_says_which_table_is_not_read_from_pages(demo) -> None:
    path = Path("view.sqlite")
    path.write_bytes(demo.read_bytes())
    name = schema.READ["kernels"].name
    made_reports.changed(
        path, f"ALTER TABLE {name} RENAME TO kept", f"CREATE VIEW {name} AS SELECT * FROM kept"
    )
    log = lines_of("bridge.importers", said("report", path))
    [line] = [line for line in log if "tables from pages" in line]
    assert line.endswith(f"; views, or of unusual storage: {name}")


def test_it_says_which_formats_a_file_has_not() -> None:
    Path("text.json").write_text("no report", encoding="utf-8")
    result = bridge("--debug", "report", "text.json")
    log = lines_of("bridge.importers", result.stderr)
    refused = [line.partition("not of the format that ")[2] for line in log if "not of" in line]
    assert len(refused) >= 3
    assert "text.json: of no other known format: read as an export of Nsight Systems" in log


def test_it_says_who_answers_before_anything_is_read(demo) -> None:
    done("import", demo, "-q")
    for words, who in (
        ((demo,), "rows answer; options that need them: none"),
        ((demo, "--workers", "1"), "workers answer: 1"),
        ((), "stored tables answer"),
        (("--from", "0"), "rows answer; options that need them: --from"),
    ):
        log = said("report", *words)
        assert lines_of("bridge.source", log) == [who]
        assert "bridge.importers: " not in log.partition("bridge.source: ")[0]


def test_it_says_how_activities_were_attributed(demo) -> None:
    totals = load(demo).totals
    [line] = [line for line in lines_of("bridge.join", said("report", demo)) if "by rule" in line]
    numbers = line.partition("by rule: ")[2].replace("; without, by reason:", ",")
    assert (
        sum(int(part.split()[-1]) for part in numbers.split(", ") if part != "none")
        == (totals["activities"])
    )


def test_windows_are_counted(demo) -> None:
    log = said("report", demo, "--workers", "1", "--memory-limit", "10GB")
    assert f"{demo.name}: 1 windows for 10000000000 bytes" in lines_of("bridge.scale", log)


@pytest.mark.slow
def test_worker_processes_follow(demo, tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    other.write_bytes(demo.read_bytes())
    words = [sys.executable, "-m", "bridge", "--debug", "report", demo, other, "--workers", "2"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, env=PLAIN)
    read = [line for line in ran.stderr.splitlines() if "rows read: " in line]
    assert len(read) == 2
    assert all("] worker " in line for line in read)


# -- Nothing that others may not see, or that acts on a terminal


def test_credentials_of_urls_are_printed_in_no_cause() -> None:
    text = f"no answer from https://me:{SECRET}@host/a.sqlite?sig={SECRET}"
    error = ValueError(f"{text} again\nand {text}")
    error.__cause__ = OSError(text)
    printed = debugging.causes(error)
    assert printed.count("https://host/a.sqlite") >= 2
    assert "direct cause" in printed
    assert SECRET not in printed


def test_credentials_of_urls_are_in_no_line_of_the_log(capsys) -> None:
    room = logging.getLogger("bridge.importers")
    with debugging.logged():
        room.debug("fetched %s", f"s3://key:{SECRET}@bucket/a?b={SECRET}")
        room.warning("s3://key:%s@bucket/a is old", SECRET)
    printed = capsys.readouterr().err
    assert "bridge.importers: fetched s3://bucket/a" in printed
    assert "\ns3://bucket/a is old\n" in printed  # a warning is the line that it is otherwise
    assert SECRET not in printed


def test_neither_the_log_nor_causes_act_on_a_terminal(capsys) -> None:
    acting = "\x1b]0;title\x07"
    with debugging.logged():
        logging.getLogger("bridge.join").debug("%s", acting)
    printed = capsys.readouterr().err + debugging.causes(ValueError(f"{acting}\udcff"))
    assert printed.count("]0;title") == 2
    assert all(line.isprintable() for line in printed.splitlines())
