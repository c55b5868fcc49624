"""The Python that a command starts, and whether its environment can annotate it."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

PYTHON = re.compile(r"python[\d.]*")
ELF = b"\x7fELF"
HASH_BANG = b"#!"
MOST_HEAD = 4096  # bytes of a file that are read for its first lines
# Options with which Python ignores PYTHONPATH or loads no sitecustomize; before -c, -m, -W and -X, which take a word.
BLOCKING = re.compile(r"-[^-cmWX]*([EIS])")
LAST_OPTION = re.compile(r"-[^-WX]*[cm]|[^-]|--|-$")
WITH_A_WORD = re.compile(r"-[^-WX]*[WX]$")


def python_words(command: Sequence[str]) -> list[str]:
    """Return the interpreter that a command starts, and the words behind it; [] if it starts no Python.

    They are those of the command, or of the first lines of its script.
    """
    if is_python(command[0]):
        return list(command)
    head = beginning(Path(shutil.which(command[0]) or command[0]))
    # A path that is too long for the first line stands in the second, which the shell executes.
    line = re.match(rb"#!(?:/bin/sh\n'''exec')?(.*)", head)
    with suppress(ValueError):  # no words of the shell
        words = shlex.split(os.fsdecode(line[1])) if line else []
        if at := [n for n, word in enumerate(words[:3]) if is_python(word)]:  # env -S python …
            return words[at[0] :]
    return []


def unannotated(command: Sequence[str]) -> str:
    """Return a line on why a command's own Python cannot be annotated, "" if it can."""
    python = python_words(command)
    option = _blocking_option(python[1:])
    if not option:
        return ""
    what = f"annotates child processes alone: with {option}, Python does not load what annotates it"
    if is_python(command[0]):
        return f"{what}; leave {option} away"
    script = shutil.which(command[0]) or command[0]
    remedy = shlex.join(["bridge", "run", "--auto", "--", python[0], script, *command[1:]])
    return f"{what}, and the first line of {script} has it; this annotates it: {remedy}"


def _blocking_option(options: Sequence[str]) -> str:
    """Return the option among those of Python with which it does not load our `sitecustomize`, "" if there is none."""
    left = iter(options)
    for word in left:
        if found := BLOCKING.match(word):
            return f"-{found[1]}"
        if LAST_OPTION.match(word):
            break
        if WITH_A_WORD.match(word):
            next(left, None)
    return ""


def is_python(word: str) -> bool:
    return PYTHON.fullmatch(Path(word).name) is not None


def is_other_program(path: Path) -> bool:
    """Return whether a file is a program that Python cannot run: of the machine, or a script of another interpreter."""
    if not os.access(path, os.X_OK):
        return False
    head = beginning(path)
    line = head.partition(b"\n")[0]
    return head.startswith(ELF) or (line.startswith(HASH_BANG) and b"python" not in line)


def beginning(path: Path) -> bytes:
    """Return the first bytes of a file, none if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MOST_HEAD)
    except OSError:
        return b""
