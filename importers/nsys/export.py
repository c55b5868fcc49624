"""An .nsys-rep or .qdrep becomes SQLite through the `nsys export` found on the machine.

The export goes to a temporary folder that is gone afterwards; the input's folder stays untouched.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from importers.errors import ExportFailed

SUFFIXES = (".nsys-rep", ".qdrep")
TIME_LIMIT_S = 3600


@contextmanager
def exported(path: Path) -> Iterator[Path]:
    """Yield the SQLite export of a report, by the report's own name; it is gone after the block."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise ExportFailed(
            f"{path.name}: reading it needs nsys, which is not on the PATH; install Nsight Systems,"
            f" or run 'nsys export --type sqlite {path.name}' where it was recorded"
        )
    with tempfile.TemporaryDirectory(prefix="bridge-export-") as folder:
        target = Path(folder) / "export.sqlite"
        _export(nsys, path, target)
        yield target.rename(target.with_name(path.name))


def _export(nsys: str, path: Path, target: Path) -> None:
    command = [nsys, "export", "--type", "sqlite", "--output", str(target), str(path.resolve())]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIME_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ExportFailed(f"{path.name}: nsys export did not run: {error}") from error
    # A failed export leaves a readable but hollow database behind: only the exit status tells.
    if done.returncode or not target.exists():
        raise ExportFailed(
            f"{path.name}: nsys export failed ({_reason(done.stdout + done.stderr)});"
            f" is {nsys} ({_version(nsys)}) older than the nsys that recorded it?"
        )


def _reason(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "failed" in line.lower()]
    return (telling or lines or ["no message"])[-1][:200]


def _version(nsys: str) -> str:
    command = [nsys, "--version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return "unknown version"
    return (done.stdout.split() or ["unknown version"])[-1]
