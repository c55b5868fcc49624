"""The program that is profiled, as a command: a Python script, a module, or any command.

The invariant: what is not there, or cannot be run, is found before the profiler starts.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from bridge.capture.errors import NOT_EXECUTABLE, NOT_FOUND, CaptureError, MisuseError

PYTHON = re.compile(r"python[\d.]*")
ELF = b"\x7fELF"


def command(words: Sequence[str], *, module: bool, plain: bool, auto: bool) -> list[str]:
    """Return the command for a program and its arguments.

    ``module``: the first word is a module for this interpreter; ``plain``: it is a command, not a
    script of Python; ``auto``: run it through `bridge.autorun`. Raises CaptureError.
    """
    if plain and (module or auto):
        given = "-m" if module else "--auto"
        remedy = (
            ": leave -- and the interpreter away" if PYTHON.fullmatch(Path(words[0]).name) else ""
        )
        raise MisuseError(
            f"{given} goes with a program for this Python, not with a command after --{remedy}"
        )
    if plain:
        return _checked_command(list(words))
    if not module:
        _check_script(words)
    autorun = ["-m", "bridge.autorun"] if auto else []
    return [sys.executable, *autorun, *(["-m"] if module else []), *words]


def _checked_command(words: list[str]) -> list[str]:
    if shutil.which(words[0]):
        return words
    if Path(words[0]).exists() and "/" in words[0]:
        raise CaptureError(f"{words[0]}: no program that may be executed", NOT_EXECUTABLE)
    raise CaptureError(f"{words[0]}: no such program", NOT_FOUND)


def _check_script(words: Sequence[str]) -> None:
    script = Path(words[0])
    remedy = f"; a command stands after --: bridge run -- {words[0]} …"
    if not script.exists():
        command = shutil.which(words[0])
        raise CaptureError(f"{script}: no such script{remedy if command else ''}", NOT_FOUND)
    if script.is_file() and _beginning(script) == ELF:
        raise CaptureError(f"{script}: no script of Python{remedy}", NOT_EXECUTABLE)


def _beginning(script: Path) -> bytes:
    try:
        with script.open("rb") as file:
            return file.read(len(ELF))
    except OSError as error:
        raise CaptureError(f"{script}: {error.strerror}", NOT_EXECUTABLE) from error
