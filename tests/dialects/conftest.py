"""The tools that read PyTorch's traces, in an environment of their own: they ask for old parts of other packages."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from real_parts import need

HERE = Path(__file__).parent
PYTHON = os.environ.get(
    "BRIDGE_TRACE_TOOLS", ""
)  # with torch-tb-profiler and HolisticTraceAnalysis
NONE = "no tools for PyTorch's traces: $BRIDGE_TRACE_TOOLS names no Python that has them"


@pytest.fixture(scope="session")
def tool_says():
    """Run one of the scripts here on a file or folder, and give what it found."""
    need("trace-tools", PYTHON if Path(PYTHON).is_file() else None, NONE)

    def run(script, path):
        done = subprocess.run(
            [PYTHON, HERE / script, path],
            capture_output=True, text=True, check=False, timeout=300, cwd=HERE.parent,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run
