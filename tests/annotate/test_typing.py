"""A type checker sees through the decorator: whatever was decorated keeps its signature."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from real_parts import ROOT

pytestmark = pytest.mark.slow


PROGRAM = """
from collections.abc import AsyncIterator, Iterator
from bridge import backend, nvtx_op

@nvtx_op
def f(x: int, *, y: str = "") -> float: return x / 2
@nvtx_op("name", domain="d", category="c", color="red", payload=1.5)
async def co(x: int) -> str: return str(x)
@nvtx_op()
def g(n: int) -> Iterator[int]: yield n
@nvtx_op("ag", color=0xFF00FF00)
async def ag(n: int) -> AsyncIterator[int]: yield n

class Layer:
    @nvtx_op
    def forward(self, x: int) -> int: return x
    @classmethod
    @nvtx_op
    def make(cls) -> "Layer": return cls()
    @staticmethod
    @nvtx_op("s")
    def static(x: int) -> int: return x
    @property
    @nvtx_op
    def size(self) -> int: return 1

reveal_type(f)
reveal_type(g(1))
reveal_type(ag(1))
reveal_type(Layer().forward(1))
reveal_type(Layer.make())
reveal_type(Layer.static(1))
reveal_type(Layer().size)
reveal_type(backend().reason)

async def main() -> None:
    reveal_type(await co(1))
    with nvtx_op("block", domain="d") as op:
        reveal_type(op)

def early() -> int:
    with nvtx_op("block"):
        return 1

f("wrong")
Layer().forward("wrong")
nvtx_op(3)
nvtx_op("x", color=1.5)
"""

REVEALED = [
    "def (x: int, *, y: str =) -> float",
    "Iterator[int]",
    "AsyncIterator[int]",
    "int",
    "Layer",
    "int",
    "int",
    "str",
    "str",
    "Op",
]


def test_mypy_sees_the_signatures(tmp_path: Path) -> None:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    (tmp_path / "program.py").write_text(PROGRAM)
    done = subprocess.run(
        # As the project itself is checked, and with what mypy knows of it from there.
        [
            sys.executable,
            "-m",
            "mypy",
            "--config-file",
            ROOT / "pyproject.toml",
            "--cache-dir",
            ROOT / ".mypy_cache",
            "program.py",
        ],
        cwd=tmp_path,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    revealed = [line.split('"')[1] for line in lines if "Revealed type" in line]
    assert [kind.split(".")[-1] if "def" not in kind else kind for kind in revealed] == REVEALED, (
        lines
    )
    errors = [line for line in lines if ": error:" in line]
    assert len(errors) == 4, errors
    assert "[arg-type]" in errors[0]
    assert "[arg-type]" in errors[1]
    assert "[call-overload]" in errors[2]
    assert "[call-overload]" in errors[3]
