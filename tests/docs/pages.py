"""The pages of the documentation: their marked blocks, what the commands in them print, their lists.

In README.md and docs/*.md, an HTML comment before a fenced block says what the block is:

    <!-- run -->       its `bridge …` lines are run, all of one page in one empty folder, and must succeed
    <!-- output -->    what the block before it printed, exactly

`<!-- corpus-run -->` and `<!-- corpus-output -->` are run apart, beside the real profiles that they name; `made-…`
beside made.sqlite, a report with samples of hardware counters, cpu-training.xplane.pb, a profile of JAX, and cuspy.pftrace, a trace of PyTorch. A page's first `<!-- run -->` block must make what
the later ones use (`bridge demo` does).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import bridge
from gpu_counters.made import made
from real_parts import CORPUS, ROOT

Files = Iterator[
    tuple[Path, str | bytes]
]  # what a subcommand yields: files, and what belongs into them
DOCS = ROOT / "docs"
README = ROOT / "README.md"
PAGES = [page for page in (README, *sorted(DOCS.rglob("*.md"))) if page.exists()]
KINDS = ("", "corpus-", "made-")  # of blocks with commands
BLOCK = re.compile(r"^<!-- ([\w-]+) -->\n+```\w*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROFILE = re.compile(r"[\w-]+\.(?:sqlite|pt\.trace\.json\.gz|ncu-rep|csv)")
PLAIN = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
QUOTED = re.compile(r"""'[^']*'|"[^"$`]*\"""")
SHELL = re.compile(r"[|&;<>$`(){}*?~!]")  # what a shell would do something with
ABOUT_PROCESSES = ("run", "view", "doctor")


def blocks(text: str) -> list[tuple[str, str]]:
    """List the marked blocks: the mark and the lines."""
    return BLOCK.findall(text)


def bridge_lines(body: str) -> list[str]:
    """List the commands of ours; a line may go on after a backslash."""
    joined = body.replace("\\\n", " ")
    return [line for line in joined.splitlines() if re.match(r"(\$ )?bridge\b", line)]


def kinds_in(text: str) -> list[str]:
    """List the kinds of blocks whose outputs a page shows."""
    marks = {mark for mark, _ in blocks(text)}
    return [kind for kind in KINDS if marks & {f"{kind}run", f"{kind}output"}]


def as_printed(text: str, kind: str, folder: Path) -> str:
    """Return a page in which every output of a kind is what the commands before it print in a folder."""
    prepare(text, kind, folder)
    printed, pieces, reached = "", [], 0
    for block in BLOCK.finditer(text):
        mark, body = block.groups()
        if mark == f"{kind}run":
            printed = "".join(run(line, folder) for line in bridge_lines(body))
        elif mark == f"{kind}output":
            pieces += [text[reached : block.start(2)], printed]
            reached = block.end(2)
    return "".join([*pieces, text[reached:]])


def prepare(text: str, kind: str, folder: Path) -> None:
    """Put what the commands of a kind read into a folder."""
    if kind == "made-":
        made(folder / "made.sqlite")
        shutil.copy(ROOT / "tests/xplane/data/cpu-training.xplane.pb", folder)
        shutil.copy(ROOT / "tests/perfetto/data/cuspy.pftrace", folder)
    elif kind == "corpus-":
        commands = "\n".join(body for mark, body in blocks(text) if mark == "corpus-run")
        for name in set(PROFILE.findall(commands)):
            for profile in CORPUS.rglob(name):
                shutil.copy(profile, folder)


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


def with_list(page: str, name: str, lines: list[str]) -> str:
    """Return a page with these lines between the two comments of a list."""
    begin = f"<!-- {name}: made by tests/docs -->\n"
    end = f"<!-- end of {name} -->\n"
    before, _, rest = page.partition(begin)
    return "\n".join([before + begin, *lines, "", end]) + rest.partition(end)[2]
