"""A type checker sees through the decorator: whatever was decorated keeps its signature."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
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

USES = """
import bridge
import bridge.bench

report = bridge.load("report.sqlite", steps="step")
reveal_type(report.by("op", inclusive=True))
reveal_type(bridge.diff(report, "other.sqlite", "op", noise=0.1))
reveal_type(bridge.bench.op(print, 1, runs=3))
reveal_type(bridge.bench.group([print], runs=3))
with bridge.profile(level=2) as session:
    reveal_type(session.by("op", inclusive=True))

bridge.load("report.sqlite", step="step")
report.by("op", inclusiv=True)
report.export_trace("t.json", compact=True)
bridge.diff(report, report, noises=0.1)
bridge.bench.op(print, run=3)
bridge.bench.group([print], run=3)
bridge.profile(levels=2)
session.by("op", inclusiv=True)
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


@pytest.fixture
def checked(tmp_path: Path) -> Callable[[str], list[str]]:
    """Give the lines that mypy prints of a program, checked as the project itself is."""
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")

    def check(program: str) -> list[str]:
        (tmp_path / "program.py").write_text(program)
        words = ["--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / ".mypy_cache"]
        done = subprocess.run(
            [sys.executable, "-m", "mypy", *words, "program.py"],
            cwd=tmp_path,
            env={**os.environ, "MYPYPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout.splitlines()

    return check


def revealed(lines: list[str]) -> list[str]:
    kinds = [line.split('"')[1] for line in lines if "Revealed type" in line]
    return [kind.split(".")[-1] if "def" not in kind else kind for kind in kinds]


def test_mypy_sees_the_signatures(checked) -> None:
    lines = checked(PROGRAM)
    assert revealed(lines) == REVEALED, lines
    errors = [line for line in lines if ": error:" in line]
    assert len(errors) == 4, errors
    assert "[arg-type]" in errors[0]
    assert "[arg-type]" in errors[1]
    assert "[call-overload]" in errors[2]
    assert "[call-overload]" in errors[3]


def test_unknown_keywords_are_refused(checked) -> None:
    """Each line behind the blank one has a keyword that is written wrong."""
    lines = checked(USES)
    assert revealed(lines) == ["DataFrame", "Diff", "Result", "Group", "DataFrame"], lines
    wrong = USES.rstrip().splitlines()
    begin = max(n for n, line in enumerate(wrong) if not line) + 2
    errors = {int(line.split(":")[1]) for line in lines if ": error:" in line}
    assert errors == set(range(begin, len(wrong) + 1)), lines
