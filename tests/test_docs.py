"""The documentation cannot lie: its commands are run, its outputs compared, and no command goes without a word.

In README.md and docs/*.md, an HTML comment before a fenced block says what the block is:

    <!-- run -->       its `bridge …` lines are run, all of one page in one empty folder, and must succeed
    <!-- output -->    what the block before it printed, exactly
    <!-- cpu-run -->   its lines are run beside the program in `<!-- cpu-program -->`, saved as train.py

A page's first `<!-- run -->` block must make what the later ones use (`bridge demo` does).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import bridge
from real_parts import ROOT

README = ROOT / "README.md"
PAGES = [page for page in (README, *sorted((ROOT / "docs").rglob("*.md"))) if page.exists()]
BLOCK = re.compile(r"^<!-- ([\w-]+) -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text: str) -> list[tuple[str, str]]:
    """List the marked blocks: the mark and the lines."""
    return BLOCK.findall(text)


def bridge_lines(body: str) -> list[str]:
    """List the commands of ours; a line may go on after a backslash."""
    joined = body.replace("\\\n", " ")
    return [line for line in joined.splitlines() if re.match(r"(\$ )?bridge\b", line)]


PLAIN = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
QUOTED = re.compile(r"""'[^']*'|"[^"$`]*\"""")
SHELL = re.compile(r"[|&;<>$`(){}*?~!]")  # what a shell would do something with
ABOUT_PROCESSES = ("run", "view", "doctor")


def run(line: str, folder: Path) -> str:
    """Run one command as a reader would, and give what it printed: in this process, where that is the same."""
    line = line.removeprefix("$ ")
    words = shlex.split(line, comments=True)[1:]
    if SHELL.search(QUOTED.sub("", line)) or not words or words[0] in ABOUT_PROCESSES:
        return run_in_shell(line, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in PLAIN.items():
            patch.setenv(name, value)
        result = bridge(*words)
    assert result.exit_code == 0, f"{line}\n{result.output}"
    return result.stdout


def run_in_shell(line: str, folder: Path) -> str:
    """Run a line in a shell, with this environment's `bridge`."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=folder,
        env=os.environ | PLAIN | {"PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    return done.stdout


def follow(text: str, folder: Path) -> None:
    """Do what a page says, in order, and compare what it shows."""
    printed = ""
    for kind, body in blocks(text):
        if kind == "run":
            printed = "".join(run(line, folder) for line in bridge_lines(body))
        elif kind == "output":
            assert printed == body


def commands(group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Give each command's full name and help, through all groups."""
    for name, command in group.commands.items():
        yield " ".join([*path, name]), command.help or ""
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


def named_in(text: str, command: str) -> bool:
    return bool(re.search(rf"\bbridge {re.escape(command)}(?![\w-])", text))


def test_every_command_is_documented():
    from bridge.cli import main

    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [name for name, _ in commands(main) if not named_in(text, name)] == []


def test_every_command_has_help():
    from bridge.cli import main

    assert [name for name, told in commands(main) if not told.strip()] == []


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES or [README], ids=lambda page: page.name)
def test_a_page_does_what_it_says(page, tmp_path):
    follow(page.read_text(encoding="utf-8"), tmp_path)


SNIPPETS = re.findall(
    r"^```python\n(.*?)^```$", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_a_snippet_of_the_readme_runs_in_a_bare_interpreter(number, tmp_path):
    """Each is a program: it runs alone, as a reader would copy it, beside what `bridge demo` made."""
    snippet = SNIPPETS[number]
    if "import torch" in snippet:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    if "bridge-demo" in snippet:
        run("bridge demo", tmp_path)
    program = tmp_path / "snippet.py"
    program.write_text(snippet, encoding="utf-8")
    command = [sys.executable, "-W", "error::DeprecationWarning:__main__", str(program)]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout or "optimizer.step" in snippet, "a reader would see nothing"
    assert "Traceback" not in done.stderr


def test_the_readme_has_snippets_and_few_lines():
    assert len(SNIPPETS) >= 4
    assert len(README.read_text(encoding="utf-8").splitlines()) < 180


@pytest.mark.parametrize("name", ["test-command", "demo-command"])
def test_the_readme_has_the_two_commands_in_one_line_each(name):
    found = [body for kind, body in blocks(README.read_text(encoding="utf-8")) if kind == name]
    assert [len(body.splitlines()) for body in found] == [1]


# -- the tests above can fail

PAGE = """
<!-- run -->
```sh
bridge --version \\
  --x
pip install nothing
$ bridge demo
```
Text between.
<!-- output -->

```
shown
```
```sh
bridge not-marked
```
"""


def test_blocks_and_commands_are_found():
    (kind, body), output = blocks(PAGE)
    assert kind == "run"
    commands = [line.removeprefix("$ ").split() for line in bridge_lines(body)]
    assert commands == [["bridge", "--version", "--x"], ["bridge", "demo"]]
    assert output == ("output", "shown\n")


def test_only_what_a_shell_must_do_is_left_to_one():
    assert SHELL.search(QUOTED.sub("", "bridge report | head"))
    assert SHELL.search(QUOTED.sub("", 'bridge report "$x"'))
    assert not SHELL.search(QUOTED.sub("", "bridge report --filter 'op == \"a|b\"' --top 5"))


def test_a_failing_command_is_found(tmp_path):
    with pytest.raises(AssertionError, match="no-such-command"):
        follow("<!-- run -->\n```sh\nbridge no-such-command\n```\n", tmp_path)


@pytest.mark.slow
def test_a_reader_without_a_gpu_sees_ops_of_a_program(nsys, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    marked = dict(blocks(README.read_text(encoding="utf-8")))
    (tmp_path / "train.py").write_text(marked["cpu-program"], encoding="utf-8")
    recorded, ops, steps = (run(line, tmp_path) for line in bridge_lines(marked["cpu-run"]))
    for shown in (recorded, ops):
        assert "aten::addmm" in shown
    assert "5 steps, each ended by the optimizer" in steps


def test_a_wrong_output_is_found(tmp_path):
    with pytest.raises(AssertionError):
        follow("<!-- output -->\n```\nsomething\n```\n", tmp_path)


def test_a_name_is_found_whole():
    assert named_in("`bridge runs list`", "runs list")
    assert not named_in("bridge runs-over", "runs")
    assert not named_in("bridge reporting", "report")


def test_no_page_has_a_blank_left_to_fill_in():
    assert [page.name for page in PAGES if "@@" in page.read_text(encoding="utf-8")] == []
