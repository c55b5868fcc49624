"""A program with an nvtx.py of its own, which annotates while bridge looks for NVIDIA's package."""

from __future__ import annotations

import subprocess
import sys

import pytest
from real_parts import ROOT


@pytest.mark.slow
def test_a_module_of_that_name_may_annotate_at_its_import(tmp_path):
    own = "import bridge\nwith bridge.profile(), bridge.nvtx_op('at import'):\n    pass\n"
    (tmp_path / "nvtx.py").write_text(own, encoding="utf-8")
    program = "import bridge\nwith bridge.nvtx_op('later'):\n    print('ran')\n"
    (tmp_path / "main.py").write_text(program, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "main.py"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "NSYS_PROFILING_SESSION_ID": "1", "BRIDGE_SIDECAR": "off"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "ran\n", done.stderr
