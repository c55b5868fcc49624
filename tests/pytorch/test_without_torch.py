"""PyTorch is loaded by those who ask for it, and missed in one line."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def run(program: str) -> subprocess.CompletedProcess[str]:
    call = [sys.executable, "-c", program]
    return subprocess.run(call, capture_output=True, text=True, check=False, timeout=60)


def test_bridge_does_not_load_it():
    done = run("import bridge, sys; assert 'torch' not in sys.modules")
    assert done.returncode == 0, done.stderr


def test_it_is_missed_in_one_line():
    done = run("import sys; sys.modules['torch'] = None; import bridge.torch")
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: bridge.torch needs PyTorch (pip install torch): ")
    assert "During handling" not in done.stderr
