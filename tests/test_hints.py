"""Every command that a command prints as the next one works as printed, and reads the same report."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import made_reports
import pytest
from command import assert_refused, bridge, done
from read_once import reading_once
from real_parts import NIGHT, corpus_reports, few, skip_what_holds_no_profile

from bridge.render.wrapping import COMMAND, wrap

PRINTING = ("summary", "report", "report --by kernel", "advise", "doctor", "why {} #0")
ELSEWHERE = ("run", "demo", "import")  # these record or store a report, and read none
FILES = ("mnist-training", "pytorch-backward", "torch-compile-graphs", "pytorch-2gpu-after")
FILES += ("two-processes", "memcpy-heavy")


def suggested(text: str) -> list[list[str]]:
    """Return the commands in a text, as the words that a shell makes of them."""
    commands = [match[0].removeprefix("→ ").rstrip(".") for match in COMMAND.finditer(text)]
    words = dict.fromkeys(tuple(shlex.split(command)[1:]) for command in commands)
    # A file that the reader is to make is none that can be read here.
    return [list(one) for one in words if one[0] not in ELSEWHERE and "FILE" not in " ".join(one)]


def sources(words: list[str]) -> list[str]:
    """Run a suggested command, and return the names of the reports that it read."""
    done(*words, *(["--force"] if words[0] == "trace" else []))
    if words[0] == "trace":
        return json.loads(done("summary", *words[1 : words.index("-o")], "--format", "json"))[
            "source"
        ]
    if words[0] == "why":
        return [json.loads(done(*words, "--format", "json"))["report"]]
    plain = words[: words.index("--format")] if "--format" in words else words
    return json.loads(done(*plain, "--format", "json"))["source"]


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.delenv("BRIDGE_DB", raising=False)
    return tmp_path


def hints_of(*commands: list[str | Path]) -> list[list[str]]:
    """Run commands, and return what they suggest, each once."""
    printed = "\n".join(done(*words) + bridge(*words).stderr for words in commands)
    assert "REPORT" not in printed
    return suggested(printed)


def commands_on(*report: str) -> list[list[str]]:
    """Return the commands of `PRINTING` on a report."""
    lines = (line if "{}" in line else f"{line} {{}}" for line in PRINTING)
    return [
        [w for word in line.split() for w in (report if word == "{}" else [word])] for line in lines
    ]


# -- on files


@pytest.mark.parametrize("path", corpus_reports(names=() if NIGHT else few(FILES, 3)))
def test_hints_on_a_real_report_read_it(path, folder):
    (folder / "newer.sqlite").symlink_to(made_reports.small(folder / "small.sqlite"))
    done("import", "newer.sqlite", "-q")  # what a hint without a name would read
    report = folder / "a report; of ours.sqlite"
    report.symlink_to(path)
    with reading_once():
        try:
            hints = hints_of(*commands_on(report.name))
        except AssertionError:
            skip_what_holds_no_profile(path)
        assert {words[0] for words in hints} <= {"report", "advise", "doctor", "why"}
        assert hints
        for words in hints:
            assert sources(words) == [report.name], words


def test_hints_name_what_selects_a_part_of_a_report(folder):
    report = made_reports.small(folder / "small.sqlite")
    part = ["--step", "1", "--domain", "all"]
    hints = hints_of(["summary", report.name, *part], ["report", report.name, *part])
    assert ["doctor", "small.sqlite", "--domain", "all"] in hints  # it has no --step
    hints = [words for words in hints if words[0] != "doctor"]
    assert all(words[1:6] == ["small.sqlite", "--domain", "all", "--step", "1"] for words in hints)
    assert sources(["summary", *hints[0][1:6]]) == ["small.sqlite"]


def test_a_message_of_an_error_names_the_whole_report(folder):
    path = made_reports.small(folder / "small.sqlite")
    gone = bridge("why", path.name, "--domain", "all", "nothing like it")
    assert_refused(gone, "bridge report small.sqlite --domain all --by kernel lists them")
    many = [f"a range called {n}" for n in range(20)]
    made_reports.changed(
        path,
        *(
            f"UPDATE NVTX_EVENTS SET text = '{text}', textId = NULL WHERE rowid = {n}"
            for n, text in enumerate(many)
        ),
    )
    result = bridge("report", path.name, "--from", "1ns", "--range", "nosuch")
    assert "bridge report small.sqlite --by range shows all" in result.stderr
    result = bridge("report", path.name, "--by", "step", "--steps", "nosuch")
    shown_by = "bridge report small.sqlite --by range --names raw"
    assert f"{shown_by} shows all" in result.stderr
    assert many[1] in done(*shown_by.split()[1:], "--top", "all")


def test_of_many_reports_a_hint_names_some(folder):
    names = [made_reports.small(folder / f"r{n}.sqlite").name for n in range(9)]
    [line] = [line for line in done("summary", *names).splitlines() if "bridge advise" in line]
    assert line.endswith(f"bridge advise {' '.join(names[:8])} …")


# -- on runs of the store


@pytest.fixture
def stored(folder) -> Path:
    """Store two reports: run 1 of old.sqlite, named first, and run 2 of new.sqlite."""
    for name, steps in (("old.sqlite", 2), ("new.sqlite", 3)):
        made_reports.small(folder / name, steps=steps)
        done("import", name, "-q", *(["--name", "first"] if name == "old.sqlite" else []))
    return folder


@pytest.mark.parametrize(
    ("selection", "expected", "source"),
    [
        ([], [], "new.sqlite"),
        (["--run", "1"], ["--run", "1"], "old.sqlite"),
        (["--run", "first"], ["--run", "first"], "old.sqlite"),
    ],
)
def test_hints_on_a_run_read_it(stored, selection, expected, source):
    commands = [words for words in commands_on(*selection) if words[0] != "doctor" or selection]
    hints = hints_of(*commands)
    for words in hints:
        assert sources(words) == [source]
        given = words[1 : 1 + len(expected)] if words[0] != "doctor" else expected
        assert given == expected


def test_hints_name_a_store_that_is_not_the_default(stored, monkeypatch):
    (stored / "bridge.db").rename(stored / "other.db")
    for words in hints_of(["summary", "--db", "other.db"]):
        assert sources(words) == ["new.sqlite"]
    monkeypatch.setenv("BRIDGE_DB", "other.db")
    hints = hints_of(["summary"])
    assert not [words for words in hints if "--db" in words]
    for words in hints:
        assert sources(words) == ["new.sqlite"]


@pytest.mark.parametrize(("name", "words"), [("old.sqlite", "--run 1 "), ("new.sqlite", "")])
def test_an_import_names_its_run_unless_it_is_the_newest(stored, name, words):
    result = bridge("import", name)
    assert f"bridge report {words}--by op, or bridge trace {words}-o trace" in result.stderr
    for hint in suggested(result.stdout + result.stderr):
        assert sources(hint) == [name]


def test_a_shown_run_is_the_one_that_hints_read(stored):
    for words in hints_of(["runs", "show", "1"]):
        assert sources(words) == ["old.sqlite"]


def test_the_demo_names_its_report(folder):
    for words in suggested(done("demo").partition("Next, a program")[0]):
        assert sources(words) == ["demo.sqlite"]


@pytest.mark.parametrize(
    ("run", "words"), [("1", "--run 1"), ("9", "--run 9"), ("first", "--run first")]
)
def test_a_run_that_is_named_as_a_file_is_shown_how(stored, run, words):
    expected = f"{run}: no such file; for that run of the store, write {words}"
    assert_refused(bridge("summary", run), expected)
    assert_refused(bridge("why", run, "gemm"), expected)
    (stored / "bridge.db").rename(stored / "other.db")
    assert_refused(bridge("report", run, "--db", "other.db"), expected)
    assert_refused(bridge("summary", "second"), "second: no such file; is the name right?")


# -- lines


def test_a_command_is_never_broken():
    text = "Some words before it. → bridge report 'my own.sqlite' --by op,kernel; 12.3 ms, more"
    assert wrap(text, 30) == [
        "Some words before it.",
        "→ bridge report 'my own.sqlite' --by op,kernel;",
        "12.3 ms, more",
    ]
    assert re.fullmatch(COMMAND, "bridge advise a.sqlite --step 1..2")
