"""Let `ncu` print a report where NVIDIA's library is not installed.

The module stands alone because it is the only reader of ncu files that starts a program.
"""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

from bridge.importers.errors import NotAReport
from bridge.importers.programs import find_program

LOG = logging.getLogger("bridge.importers")

NCU = "ncu"
OPTIONS = ("--csv", "--page", "raw", "--print-units", "base")  # no scaled value, which is rounded
TIME_LIMIT_S = 600
MAX_REASON = 300  # characters of what ncu says
MISSING = (
    "to read .ncu-rep files, NVIDIA's ncu-report or ncu is needed: pip install ncu-report,"
    " or put ncu of Nsight Compute on the PATH; or give the output of"
    f" ncu --import FILE {' '.join(OPTIONS)}"
)


def raw_page(path: Path) -> bytes:
    """Return the raw page of a report as CSV, as `ncu` on the PATH prints it.

    Raises NotAReport if there is no ncu, or if it cannot read the report.
    """
    ncu = find_program(NCU)
    if ncu is None:
        raise NotAReport(f"{path.name}: {MISSING}")
    command = [ncu, "--import", str(path.absolute()), *OPTIONS]
    LOG.debug("without NVIDIA's library: running %s", command)
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIME_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAReport(f"{path.name}: {ncu} does not run: {error}") from error
    if done.returncode:
        message = (done.stderr + done.stdout).decode(errors="replace")
        reason = " ".join(message.split())[:MAX_REASON]
        raise NotAReport(f"{path.name}: {ncu} cannot read it: {reason}")
    return done.stdout
