"""What the real nsys records of a program: its ranges, which need no GPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from real_parts import ROOT

RANGES_ALONE = ("--trace=nvtx", "--sample=none", "--cpuctxsw=none")


def with_bridge(**more: str) -> dict[str, str]:
    """Return this environment, in which programs find `bridge` wherever they run."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **more}


def profiled(
    nsys: str,
    folder: Path,
    *program: str | Path,
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a program in a folder under nsys, which writes report.nsys-rep there; give what it printed."""
    words = [nsys, "profile", *RANGES_ALONE, *options, "-o", "report", *program]
    return _run(words, folder, with_bridge() if env is None else env)


def exported(nsys: str, report: Path) -> Path:
    """Write an export beside a report, under its name; give its path."""
    made = report.with_suffix(".sqlite")
    _run(
        [nsys, "export", "--type=sqlite", "--force-overwrite=true", "-o", made, report],
        report.parent,
    )
    return made


def _run(words: Sequence[str | Path], folder: Path, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        words, cwd=folder, env=env, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
