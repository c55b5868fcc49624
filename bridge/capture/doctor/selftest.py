"""Profile a decorated function with the nsys that is installed, and look whether its range was recorded.

The invariant: everything happens in a temporary folder, which is gone afterwards.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bridge.capture.doctor.machine import Program

CALLS = 3
NAME = "bridge doctor"
SAID = "backend="
TIME_LIMIT_S = 120
PROGRAM = f"""
import bridge
op = bridge.nvtx_op({NAME!r})(lambda: None)
for _ in range({CALLS}):
    op()
print({SAID!r} + str(bridge.backend()))
"""
QUIET = ("--trace=nvtx", "--sample=none", "--cpuctxsw=none")  # the least that nsys can do


@dataclass(frozen=True)
class SelfTest:
    """What came of it."""

    backend: str = ""  # who emitted the ranges, and why that one
    recorded: int = 0  # ranges in the report
    unfinished: bool = False  # nsys left a capture that it did not make a report of
    problem: str = ""  # the step that failed, and what it said

    @property
    def passed(self) -> bool:
        """Whether all that was annotated was recorded."""
        return self.recorded == CALLS


def run(nsys: Program) -> SelfTest:
    """Profile, export, count."""
    with tempfile.TemporaryDirectory(prefix="bridge-doctor-") as folder:
        report = Path(folder, "report.nsys-rep")
        command = [
            str(nsys.path),
            "profile",
            *QUIET,
            "-o",
            str(report.with_suffix("")),
            sys.executable,
        ]
        done = _ran([*command, "-c", PROGRAM], Path(folder))
        said = [line for line in done.stdout.splitlines() if line.startswith(SAID)]
        backend = said[0].removeprefix(SAID) if said else ""
        if not report.exists():
            unfinished = any(Path(folder).rglob("*.qdstrm")) or ".qdstrm" in done.stdout
            return SelfTest(backend, 0, unfinished, f"nsys profile made no report: {_last(done)}")
        return _counted(report, backend)


def _counted(report: Path, backend: str) -> SelfTest:
    import importers  # noqa: PLC0415 (pandas, only once there is something to read)
    from importers.errors import NothingRecorded  # noqa: PLC0415

    try:
        ranges = importers.load(report, details=False).ranges
    except NothingRecorded:
        return SelfTest(backend)
    except importers.ReportError as error:
        return SelfTest(backend, problem=str(error))
    return SelfTest(backend, int((ranges["name"] == NAME).sum()))


def _ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run nsys, its temporary files in the folder as well."""
    own = {"TMPDIR": str(folder), "BRIDGE_SIDECAR": "off", "BRIDGE_AUTOSTART": "0"}
    try:
        return subprocess.run(
            command, cwd=folder, env={**os.environ, **own}, capture_output=True, text=True,
            errors="replace", timeout=TIME_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return subprocess.CompletedProcess(command, 1, "", str(error))


def _last(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    telling = [line for line in lines if "rror" in line or "ailed" in line or "not found" in line]
    return (telling or lines or ["no message"])[-1][:300]
