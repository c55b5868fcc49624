"""A variable of the environment annotates an unchanged program, and selects what is recorded, under the real nsys."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from compat.old_programs import environment

import bridge

PROGRAM = Path(__file__).parent / "mxnet" / "unchanged.py"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
def test_autostart_and_mode_need_no_change_of_the_program(nsys, tmp_path):
    command = [sys.executable, "-m", "bridge", "run", "--no-import", "-o", "report", str(PROGRAM)]
    environ = environment(BRIDGE_AUTOSTART="1", BRIDGE_MODE="6")
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    report = bridge.load(tmp_path / "report.nsys-rep")
    ops = set(report.by("op")["op"])
    assert {"aten::add", "MyAddOne", "torch.Tensor.backward"} <= ops
    assert not {op for op in ops if op.startswith("module:")}  # 2 is ops, 4 API calls
    parts = set(report.by("custom-op")["part"])
    assert {
        "MyAddOne::pure_python",
        "MyAddOne::aten::add",
        "MyAddOneBackward::aten::clone",
    } <= parts
