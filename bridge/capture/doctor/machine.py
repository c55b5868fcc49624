"""What is installed on this machine, as far as profiling goes.

The invariant: looking changes nothing; what cannot be looked at is missing, not an error.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.annotate.version import version_of
from bridge.capture.errors import CaptureError
from bridge.capture.tool import answer

PACKAGES = (
    "nvtx", "nvidia-nvtx", "nvidia-nvtx-cu12", "nvidia-nvtx-cu13", "cuda-bindings", "torch", "jax",
    "cupy-cuda12x", "cupy-cuda13x",
)  # fmt: skip
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
DRIVER = Path("/proc/driver/nvidia/version")
VERSION = re.compile(r"\d+(?:\.\d+)+")


@dataclass(frozen=True)
class Program:
    """A program on the PATH."""

    path: Path
    version: str

    @property
    def numbers(self) -> tuple[int, ...]:
        """The version as numbers, to compare; () where it is unknown."""
        return tuple(map(int, self.version.split("."))) if self.version else ()


@dataclass(frozen=True)
class Machine:
    """Everything that the traps ask for."""

    python: str
    nsys: Program | None
    ncu: Program | None
    driver: str  # its version, "" without one
    packages: dict[str, str]  # versions of those of PACKAGES that are installed
    paranoid: int | None  # kernel.perf_event_paranoid
    chosen: str  # $BRIDGE_NVTX


def look() -> Machine:
    """Look around."""
    versions = {name: version_of(name) for name in PACKAGES}
    return Machine(
        python=f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}",
        nsys=program("nsys"),
        ncu=program("ncu"),
        driver=_driver(),
        packages={name: version for name, version in versions.items() if version},
        paranoid=_paranoid(),
        chosen=os.environ.get("BRIDGE_NVTX", ""),
    )


def program(name: str) -> Program | None:
    """Find a program and ask for its version."""
    found = shutil.which(name)
    if found is None:
        return None
    said = ""
    with suppress(CaptureError):
        said = answer(found, "--version")
    versions = VERSION.findall(said)
    return Program(Path(found), versions[0] if versions else "")


def _driver() -> str:
    with suppress(OSError):
        found = VERSION.search(DRIVER.read_text(encoding="utf-8", errors="replace"))
        return found[0] if found else ""
    return ""


def _paranoid() -> int | None:
    with suppress(OSError, ValueError):
        return int(PARANOID.read_text(encoding="ascii"))
    return None
