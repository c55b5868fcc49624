"""The program of known truth for machines with a GPU, tried against a stand-in for the driver and CUPTI.

It shows that the kit runs and reads what stands today, not that NVIDIA's driver behaves so: `check.sh` does that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

KIT = Path(__file__).parent
ROOT = KIT.parents[1]
CUDA_INCLUDES = (
    Path("/usr/local/cuda/include"),
    *(Path(path) / "nvidia" / "cu13" / "include" for path in sys.path),
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Build the stand-in; give the environment in which programs load it as libcuda and libcupti."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    headers = next((path for path in CUDA_INCLUDES if (path / "cupti_activity.h").exists()), None)
    if compiler is None or headers is None:
        pytest.skip("no C compiler, or no headers of CUDA and CUPTI, to build the stand-in with")
    library = tmp_path_factory.mktemp("driver") / "libcuda.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-w", f"-I{headers}", str(KIT / "fake_cuda.c"),
         "-o", str(library), "-ldl", "-lpthread"],
        check=True,
    )  # fmt: skip
    return {
        **os.environ,
        "LD_LIBRARY_PATH": str(library.parent),
        "BRIDGE_LIBCUPTI": str(library),
        "BRIDGE_SIDECAR": "off",
        "PYTHONPATH": str(ROOT),
    }


def run(environment: dict[str, str], folder: Path, *command: str | Path) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("graphs", ["node", "graph"])
def test_a_capture_by_cupti_holds_what_was_launched(
    graphs: str, environment: dict[str, str], tmp_path: Path
) -> None:
    environment = {
        **environment,
        "KIT_GRAPHS": graphs,
        "KIT_EXACT": str(int(graphs == "node")),
        "KIT_CHILD": f"{KIT / 'cupti_capture.py'} {tmp_path / 'child.sqlite'}",
    }
    capture = KIT / "cupti_capture.py", "run.sqlite", KIT / "program.py"
    run(environment, tmp_path, *capture, "--expect", "truth.json")
    held = KIT / "hold_against_truth.py", "truth.json", "run.sqlite", "child.sqlite"
    assert "PASS" in run(environment, tmp_path, *held, "--graphs", graphs)
