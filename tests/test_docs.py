"""The documentation cannot lie: its commands are run, its outputs compared, and no command goes without a word.

Which blocks of a page are run and compared: `docs.pages`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
from docs.pages import PAGES, QUOTED, README, SHELL, as_printed, blocks, bridge_lines, kinds_in, run

MARKS = re.compile(r"^<!-- ((?:\w+-)?(?:run|output)) -->$", re.MULTILINE)
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
PRINTING = [
    pytest.param(page, kind, id=page.stem)
    for page, text in TEXTS.items()
    for kind in kinds_in(text)
    if kind != "corpus-"
]
ON_REAL_PROFILES = [page for page, text in TEXTS.items() if "corpus-" in kinds_in(text)]


def commands(group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Give each command's full name and help, through all groups."""
    for name, command in group.commands.items():
        yield " ".join([*path, name]), command.help or ""
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))


def named_in(text: str, command: str) -> bool:
    return bool(re.search(rf"\bbridge {re.escape(command)}(?![\w-])", text))


def test_every_command_has_help():
    from bridge.cli import main

    assert [name for name, told in commands(main) if not told.strip()] == []


@pytest.mark.slow
@pytest.mark.parametrize(("page", "kind"), PRINTING)
def test_a_page_shows_what_its_commands_print(page, kind, tmp_path):
    assert as_printed(TEXTS[page], kind, tmp_path) == TEXTS[page]


@pytest.mark.slow
@pytest.mark.parametrize("page", ON_REAL_PROFILES, ids=lambda page: page.stem)
def test_a_page_shows_what_is_printed_of_real_profiles(page, corpus, tmp_path):
    assert as_printed(TEXTS[page], "corpus-", tmp_path) == TEXTS[page]


def test_every_mark_stands_before_a_block():
    for text in TEXTS.values():
        assert MARKS.findall(text) == [
            mark for mark, _ in blocks(text) if mark.endswith(("run", "output"))
        ]


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


def test_the_snippets_of_the_readme_are_found():
    assert len(SNIPPETS) >= 4


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
        as_printed("<!-- run -->\n```sh\nbridge no-such-command\n```\n", "", tmp_path)


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
    page = "<!-- run -->\n```sh\nbridge --version\n```\n<!-- output -->\n```\nsomething\n```\n"
    printed = as_printed(page, "", tmp_path)
    assert "something" not in printed
    assert as_printed(printed, "", tmp_path) == printed


def test_a_name_is_found_whole():
    assert named_in("`bridge runs list`", "runs list")
    assert not named_in("bridge runs-over", "runs")
    assert not named_in("bridge reporting", "report")


def test_no_page_has_a_blank_left_to_fill_in():
    assert [page.name for page, text in TEXTS.items() if "@@" in text] == []
