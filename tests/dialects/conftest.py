"""The tools that read PyTorch's traces, in an environment of their own: they ask for old parts of other packages."""

import json
import os
import subprocess
from functools import cache
from pathlib import Path

import pytest
from real_parts import need

import bridge

HERE = Path(__file__).parent
PYTHON = os.environ.get(
    "BRIDGE_TRACE_TOOLS", ""
)  # with torch-tb-profiler and HolisticTraceAnalysis
NONE = "no tools for PyTorch's traces: $BRIDGE_TRACE_TOOLS names no Python that has them"


@pytest.fixture(scope="session")
def tools():
    """Start the Python that has the trace tools, once."""
    need("trace-tools", PYTHON if Path(PYTHON).is_file() else None, NONE)
    with subprocess.Popen(
        [PYTHON, HERE / "tools.py"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=HERE.parent,
    ) as process:  # fmt: skip
        yield process
        process.stdin.close()


@pytest.fixture
def tool_says(tools):
    """Run one of the scripts here on a file or folder, and give what it found."""

    def run(script, path):
        print(json.dumps([str(HERE / script), str(path)]), file=tools.stdin, flush=True)
        answer, error = json.loads(tools.stdout.readline())
        assert error is None, error
        return json.loads(answer)

    return run


@pytest.fixture(scope="session")
def reports(corpus):
    """Load a real profile by its name, once: `reports("mnist-training")`."""

    @cache
    def load(name, folder="nsys", suffix=".sqlite"):
        return bridge.load(corpus / folder / f"{name}{suffix}")

    return load
