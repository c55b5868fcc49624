"""What the real nsys records: places of ops before its capture begins, and call stacks of the OS runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bridge import importers

PROGRAM = """
import time
from bridge import nvtx_op, push, pop

@nvtx_op(source=True)
def step():
    time.sleep(0.01)

step()
push("capture", domain="test")
step()
pop()
"""


@pytest.mark.slow
def test_places_and_stacks_are_in_the_report(nsys, tmp_path):
    program, report = tmp_path / "program.py", tmp_path / "report"
    program.write_text(PROGRAM)
    options = [
        "--trace=nvtx,osrt", "--sample=none", "--cpuctxsw=none", "--osrt-threshold=1000",
        "--osrt-backtrace-threshold=1000", "--capture-range=nvtx", "--nvtx-capture=capture@test",
        "--env-var=NSYS_NVTX_PROFILER_REGISTER_ONLY=0,BRIDGE_NVTX=interop", f"--output={report}",
    ]  # fmt: skip
    words = [nsys, "profile", *options, sys.executable, str(program)]
    root = Path(importers.__file__).parents[2]
    subprocess.run(words, check=False, capture_output=True, timeout=120, cwd=root)
    details = {"system_calls", "chain", "system_call_chains"}
    capture = importers.load(report.with_suffix(".nsys-rep"), details=details)
    [place] = capture.chains.sources.to_pandas().to_dict("records")
    assert (place["op"], place["function"], place["line"]) == ("step", "step", 5)
    assert place["file"] == str(program)
    assert capture.ranges.name.tolist().count("step") == 1
    assert capture.chains.nodes.file.matching(lambda module: "libc" in module).any()
    assert (capture.chains.system_call >= 0).any()
