"""Many threads annotate at once, on this Python and on every newer one of this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from annotate import threaded
from recorder import Recorder

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"python3\.(\d+)t?")
OLDEST = 11


def installed() -> list[Path]:
    """Find Pythons: those on the PATH, of pyenv and of uv; one of each name."""
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv"))
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", home / ".local/share/uv/python"))
    folders = [Path(entry) for entry in os.get_exec_path() if Path(entry).is_absolute()]
    folders = [folder for folder in folders if folder != pyenv / "shims"]  # they ask pyenv which
    folders += [*pyenv.glob("versions/*/bin"), *uv.glob("*/bin")]
    names = {}
    for path in (path for folder in folders for path in sorted(folder.glob("python3.*"))):
        match = NAME.fullmatch(path.name)
        if match and int(match[1]) >= OLDEST:
            names.setdefault(path.name, path)
    return [names[name] for name in sorted(names)]


def test_sixteen_threads_nest_each_for_itself(tool: Recorder) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threaded.run()
    finally:
        sys.setswitchinterval(interval)
    threaded.check(tool)


@pytest.mark.slow
@pytest.mark.parametrize("python", installed(), ids=lambda path: path.name)
def test_so_they_do_on_other_pythons(python: Path) -> None:
    """Annotations need nothing but the standard library."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    done = subprocess.run(
        [python, "-W", "error", "-S", threaded.__file__],
        env={"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    version, count = done.stdout.split(": ")
    assert python.name == f"python{version}"
    assert int(count) == threaded.THREADS * threaded.CALLS * (threaded.PER_CALL + 1)
