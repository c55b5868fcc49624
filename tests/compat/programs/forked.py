"""Runs whole programs in one process that has PyTorch loaded: a fork for each, in a folder of its own.

Called as `python forked.py FOLDER PROGRAM.py[?VARIABLE=value&…] …`, it leaves what a program printed in
FOLDER/<program>/stdout, its messages in stderr.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from urllib.parse import parse_qsl

HERE = Path(__file__).parent


class Ran:
    """A program that has run: its folder, what it printed, what it said on stderr."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stdout = (folder / "stdout").read_text(encoding="utf-8")
        lines = (folder / "stderr").read_text(encoding="utf-8").splitlines(keepends=True)
        # What a mode changes is said where ops are recorded by one.
        self.stderr = "".join(line for line in lines if "a dispatch mode records" not in line)


def run_all(folder: Path, *programs: str) -> dict[str, Ran]:
    """Run programs of this folder; return each by its name."""
    from compat.old_programs import environment

    paths = [str(HERE / program) for program in programs]
    command = [sys.executable, str(HERE / "forked.py"), str(folder), *paths]
    done = subprocess.run(
        command, env=environment(), capture_output=True, check=False, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    names = [_name(program) for program in programs]
    return {name: Ran(folder / name) for name in names}


def _name(program: str) -> str:
    return Path(program.partition("?")[0]).stem


def _main(folder: Path, programs: list[str]) -> None:
    import pandas as pd  # noqa: F401 (what takes long to load is loaded once for all programs)
    import torch._dynamo  # noqa: F401

    failed = []
    for program in programs:
        process = os.fork()
        if not process:
            _become(folder / _name(program), program)
            return
        if os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
            failed.append(program)
            sys.stderr.write((folder / _name(program) / "stderr").read_text(encoding="utf-8"))
    if failed:
        sys.exit(f"failed: {failed}")


def _become(folder: Path, program: str) -> None:
    """Run a program in this process, which has been forked for it."""
    path, _, variables = program.partition("?")
    os.environ.update(parse_qsl(variables))
    folder.mkdir(parents=True)
    os.chdir(folder)
    for number, name in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), number)
    sys.argv[:] = [path]
    runpy.run_path(path, run_name="__main__")


if __name__ == "__main__":
    _main(Path(sys.argv[1]), sys.argv[2:])
