"""Install a wheel alone, without a compiler, and run the main commands of README.md.

    python .ci/try_wheel.py [--uv UV] WHEEL [PYTHON ...]

Each PYTHON (default: the one that runs this) gets a new environment, in which no program but those of the
environment itself is on the PATH. With --uv, uv installs instead of pip.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KEPT = re.compile(r"HOME|LANG|TMPDIR|SSL_CERT_FILE|BRIDGE_CORPUS|(PIP|UV)_\w+")  # where things are
RUN = re.compile(r"^<!-- run -->\n```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMPILERS = "cc", "gcc", "c++", "g++", "clang"


def main_commands(readme: str) -> list[list[str]]:
    """Return the words of each command in the blocks of README.md that are marked to be run."""
    lines = [line for block in RUN.findall(readme) for line in block.splitlines()]
    return [shlex.split(line) for line in lines if line.startswith("bridge ")]


def environment(path: Path) -> dict[str, str]:
    """Return the variables of a process that finds nothing but the programs of an environment."""
    kept = {name: value for name, value in os.environ.items() if KEPT.fullmatch(name)}
    return kept | {"PATH": str(path)}


def attempt(wheel: Path, python: str, uv: str | None, folder: Path) -> None:
    """Install the wheel for one Python, and run the commands in an empty folder.

    Raises:
        subprocess.CalledProcessError: if one of them fails; it has printed why.

    """
    programs, here = folder / "environment" / "bin", folder / "here"
    here.mkdir()
    subprocess.run([python, "-m", "venv", programs.parent], check=True)
    variables = environment(programs)
    if there := [name for name in COMPILERS if (programs / name).exists()]:
        raise FileExistsError(there)

    def run(*words: str | Path) -> str:
        done = subprocess.run(
            words,
            cwd=here,
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        return done.stdout

    own = programs / "python"
    pip = (uv, "pip", "install", "-p", own) if uv else (own, "-m", "pip", "install")
    run(*pip, "-q", "--only-binary", ":all:", wheel)
    run(own, "-W", "error", "-c", "import bridge")
    sys.stdout.write(run(programs / "bridge", "--version"))
    for _, *words in main_commands((ROOT / "README.md").read_text(encoding="utf-8")):
        run(programs / "bridge", *words)


def main() -> int:
    """Try the wheel with every Python that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--uv")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("python", nargs="*", default=[sys.executable])
    given = parser.parse_args()
    for python in given.python:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            attempt(given.wheel.resolve(), python, given.uv, Path(folder))
        sys.stdout.write(f"{python}: installed and ran in {time.monotonic() - begun:.0f} s\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
