"""The stand-in for CUDA's driver and CUPTI, tests/gpu/fake_cuda.c, which the programs that tests start load."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from real_parts import ROOT, need

KIT = Path(__file__).parent / "gpu"


def include_folder() -> Path | None:
    """Find the headers of CUDA and CUPTI: those of the wheels, or of a toolkit."""
    wheels = (Path(path) / "nvidia" / "cu13" / "include" for path in sys.path)
    folders = (*wheels, Path("/usr/local/cuda/include"))
    return next((path for path in folders if (path / "cupti_activity.h").exists()), None)


class StandIn(NamedTuple):
    """The stand-in, and the environment in which programs load it as libcuda and libcupti."""

    library: Path
    environ: dict[str, str]

    def run(
        self, folder: Path, *command: str | Path, status: int = 0, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a Python program there; it must end with the status."""
        done = subprocess.run(
            [sys.executable, *map(str, command)],
            cwd=folder, env=self.environ | variables, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def bridge(self, folder: Path, *words: str | Path, status: int = 0, **variables: str) -> str:
        """Run the command line; return what it wrote."""
        done = self.run(folder, "-m", "bridge", *words, status=status, **variables)
        return done.stdout + done.stderr


def build(folder: Path) -> StandIn:
    """Build the stand-in in a folder; skip the test without a compiler or headers."""
    compiler = need("compiler", shutil.which("cc"), "no C compiler to build the stand-in with")
    include = need(
        "compiler", include_folder(), "no headers of CUDA and CUPTI to build the stand-in with"
    )
    library = folder / "libcuda.so.1"
    build: Sequence[str] = (
        compiler, "-shared", "-fPIC", "-O2", "-w", f"-I{include}", str(KIT / "fake_cuda.c"), "-o", str(library),
        "-ldl", "-lpthread",
    )  # fmt: skip
    subprocess.run(build, check=True)
    without_tools = {n: v for n, v in os.environ.items() if not n.startswith(("NSYS_", "NVTX_"))}
    return StandIn(
        library,
        {
            **without_tools,
            "LD_LIBRARY_PATH": str(library.parent),
            "BRIDGE_LIBCUPTI": str(library),
            "BRIDGE_SIDECAR": "off",
            "PYTHONPATH": str(ROOT),
        },
    )
