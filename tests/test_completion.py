"""Completion in the shells themselves: commands, tables, columns, runs, rules and reports, in little time."""

from __future__ import annotations

import os
import pty
import resource
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import made_reports
import pytest
from command import done

from bridge.analyze.checks.advice import RULES
from bridge.cli import completion

CPU_S = 0.3  # of one completion
PROGRAM = "from bridge.__main__ import command\ncommand()\n"
LINES = {  # as docs/completion.md has them
    "bash": 'eval "$(_BRIDGE_COMPLETE=bash_source bridge)"',
    "zsh": 'eval "$(_BRIDGE_COMPLETE=zsh_source bridge)"',
    "fish": "_BRIDGE_COMPLETE=fish_source bridge | source",
}
CASES = [  # the words, and what they are completed to
    (("adv",), ["advise"]),
    (("report", "--by", "op-"), ["op-kernel"]),
    (("report", "--by", "op,sha"), ["op,shape"]),
    (("report", "--by", "kernel", "--columns", "count,tot"), ["count,total_ns"]),
    (("report", "--sort", "+gpu_self"), ["+gpu_self_ns"]),
    (("report", "--run", "nigh"), ["nightly"]),
    (("runs", "show", "1"), ["1"]),
    (("report", "rep"), ["report.sqlite"]),
    (("report", "inner/de"), ["inner/deep.nsys-rep"]),
    (("advise", "--rule", "single-proc"), ["single-process-loader"]),
    (("diff", "--by", "op-k"), ["op-kernel"]),
    (("import", "rep"), ["report.sqlite"]),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with reports, a store, and `bridge` as it is installed."""
    folder = tmp_path_factory.mktemp("completed")
    path = made_reports.small(folder / "report.sqlite")
    done("import", path, "--name", "nightly", "--quiet", "--db", folder / "bridge.db")
    (folder / "report.txt").touch()
    (folder / "inner").mkdir()
    (folder / "inner" / "deep.nsys-rep").touch()
    (folder / "inner" / "deep.log").touch()
    program = folder / "bin" / "bridge"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\n{PROGRAM}")
    program.chmod(0o755)
    return folder


def environment(place: Path, **more: str) -> dict[str, str]:
    root = str(Path(__file__).parents[1])
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": root, "PATH": path, "HOME": str(place), **more}


def answers(place: Path, words: Sequence[str]) -> list[str]:
    """Return what `bridge` says to a shell: the values alone."""
    asking = {"COMP_WORDS": " ".join(["bridge", *words]), "COMP_CWORD": str(len(words))}
    asking["_BRIDGE_COMPLETE"] = "bash_complete"
    text = subprocess.run(
        [place / "bin" / "bridge"], env=environment(place, **asking), cwd=place,
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    return [line.partition(",")[2] for line in text.splitlines() if line]


def shell(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"no {name} on this machine")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("words", "found"), CASES)
def test_a_word_is_completed(words: tuple[str, ...], found: list[str], place: Path) -> None:
    assert answers(place, words) == found


@pytest.mark.slow
def test_folders_are_left_to_the_shell_where_they_alone_fit(place: Path) -> None:
    assert answers(place, ["report", "inn"]) == ["inn"]
    assert answers(place, ["report", "r"]) == ["report.sqlite"]
    assert answers(place, ["report", "nothing/x"]) == []


@pytest.mark.slow
def test_completion_takes_little_time(place: Path) -> None:
    for words in (
        ["rep"],
        ["report", "--by", "op"],
        ["report", "--run", ""],
        ["advise", "--rule", ""],
    ):
        used = []
        for _ in range(3):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            answers(place, words)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        # The limit is for a machine that does nothing else.
        assert min(used) < 2 * CPU_S, words


@pytest.mark.slow
@pytest.mark.parametrize(("option", "found"), [("--run", "nightly"), ("--by", "op-kernel")])
def test_completion_loads_no_pandas(place: Path, option: str, found: str) -> None:
    asking = {"COMP_WORDS": f"bridge report {option} ", "COMP_CWORD": "3"}
    program = place / "bin" / "bridge"
    loaded = subprocess.run(
        [sys.executable, "-X", "importtime", program],
        env=environment(place, **asking, _BRIDGE_COMPLETE="bash_complete"), cwd=place,
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert found in loaded.stdout
    names = {line.rpartition("|")[2].strip() for line in loaded.stderr.splitlines()}
    assert "click" in names
    assert not names & {"pandas", "numpy", "sqlite_utils", "bridge.analyze.tables.build"}


def test_rules_are_those_of_advise() -> None:
    assert [rule.name for rule in RULES] == completion.RULES


def test_the_page_has_the_lines() -> None:
    page = (Path(__file__).parents[1] / "docs" / "completion.md").read_text(encoding="utf-8")
    for line in LINES.values():
        assert line in page


# -- In the shells


@pytest.mark.slow
def test_bash_completes(place: Path) -> None:
    for words, found in CASES:
        line = " ".join(f"'{word}'" for word in ("bridge", *words))
        program = (
            f"{LINES['bash']}; complete -p bridge >/dev/null || exit 3\n"
            f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _bridge_completion bridge\n"
            "printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        text = subprocess.run(
            [shell("bash"), "--norc", "-c", program], env=environment(place), cwd=place,
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout  # fmt: skip
        assert text.splitlines() == found


@pytest.mark.slow
def test_fish_completes(place: Path) -> None:
    for words, found in CASES:
        program = f"{LINES['fish']}; complete -C 'bridge {' '.join(words)}'"
        text = subprocess.run(
            [shell("fish"), "--no-config", "-c", program], env=environment(place), cwd=place,
            capture_output=True, text=True, check=True, timeout=60,
        ).stdout  # fmt: skip
        assert [line.split("\t")[0] for line in text.splitlines()] == found


@pytest.mark.slow
@pytest.mark.parametrize(("words", "found"), [CASES[0], CASES[2], CASES[5], CASES[7]])
def test_zsh_completes(words: tuple[str, ...], found: list[str], place: Path) -> None:
    """A terminal is needed: zsh completes what is typed into it."""
    program = shell("zsh")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(place)
        os.execve(program, ["zsh", "-f", "-i"], environment(place, TERM="dumb"))
    try:
        setup = f"PS1=; autoload -U compinit; compinit -u -D; {LINES['zsh']}; echo read''y\n"
        os.write(terminal, setup.encode())
        assert "ready" in typed(terminal, "\nready")
        os.write(terminal, f"bridge {' '.join(words)}\t".encode())
        line = f"bridge {' '.join([*words[:-1], found[0]])}"
        assert line in typed(terminal, line)
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def typed(terminal: int, wanted: str, limit_s: float = 30) -> str:
    """Return what a terminal shows until the text is in it."""
    shown, ends = "", time.monotonic() + limit_s
    while wanted not in shown.replace("\r", "") and time.monotonic() < ends:
        if select.select([terminal], [], [], 0.2)[0]:
            shown += os.read(terminal, 4096).decode(errors="replace")
    return shown.replace("\r", "")
