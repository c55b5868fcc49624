"""What annotates and records loads nothing but nvtx, the standard library and the framework itself."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from real_parts import few

import bridge

pytestmark = pytest.mark.slow  # each starts a Python of its own

OURS = {"bridge", "__main__", "__mp_main__"}
LISTING = """
import sys
loaded = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(loaded - set(sys.stdlib_module_names)))
"""


def loaded(program: str, folder: Path, *, first: str = "", **environ: str) -> set[str]:
    """Name the packages outside the standard library that a program loads, but for what ``first`` did."""
    text = f"{first}\nimport sys\nbefore = set(sys.modules)\n{program}\n{LISTING}"
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(Path(bridge.__file__).parents[1]),
            **environ,
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return set(done.stdout.splitlines()[-1].split()) - OURS


STEPS = """
for number in range(3):
    with bridge.nvtx_op("work"):
        pass
    session.step()
"""
USES = {
    "the package": "",
    "an op": "@bridge.nvtx_op\ndef f(): pass\nf()",
    "details": "@bridge.nvtx_op(shapes=True)\ndef f(x): pass\nf([1])",
    "ranges and marks": "with bridge.nvtx_range('a', domain='d'): bridge.mark('m')\nbridge.push('b'); bridge.pop()",
    "scopes and counters": "with bridge.scope('a'): bridge.counter('c', 1)",
    "wrapped functions": "import json\nbridge.wrap(json, ['dumps'])\njson.dumps([1])",
    "a program": "bridge.autorun.arm()",
    "memory": "bridge.memory",
    "a session": "with bridge.profile() as session:" + STEPS.replace("\n", "\n    "),
    "a schedule": "with bridge.profile(schedule=bridge.schedule(wait=1, warmup=1, active=1)) as session:"
    + STEPS.replace("\n", "\n    "),
    "a recording": "with bridge.profile(path='r.jsonl') as session:"
    + STEPS.replace("\n", "\n    "),
}


@pytest.mark.parametrize("use", USES)
def test_annotation_loads_the_standard_library_alone(use: str, tmp_path: Path) -> None:
    assert loaded(f"import bridge\n{USES[use]}", tmp_path) == set()


@pytest.mark.parametrize("use", ["an op", "ranges and marks", "a session"])
def test_ranges_for_a_tool_load_nvtx_alone(use: str, tmp_path: Path) -> None:
    """Something that looks like a tool to the library: the ranges go through the package nvtx."""
    packages = loaded(f"import bridge\n{USES[use]}", tmp_path, BRIDGE_NVTX="nvtx")
    assert packages <= loaded("import nvtx", tmp_path) | {
        "cuda"
    }  # nvtx itself loads NumPy if it is there
    assert "nvtx" in packages


TORCH = """
import bridge
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
{use}
model(torch.ones(3, 2)).sum().backward()
"""
TORCH_USES = [
    "bridge.torch.auto(model)",
    "bridge.torch.ops(shapes=True).enable()",
    "bridge.autorun.arm(bridge.autorun.Options(shapes=True))",
    "bridge.profile(path='r.jsonl').start(); bridge.torch.ops(shapes=True).enable()",
]


@pytest.mark.skipif(find_spec("torch") is None, reason="PyTorch is not installed")
@pytest.mark.parametrize("use", few(TORCH_USES, 2))
def test_pytorch_is_annotated_with_itself_alone(use: str, tmp_path: Path) -> None:
    first = "import torch, torch._dynamo"  # PyTorch loads the latter at its first dispatch mode
    assert loaded(TORCH.format(use=use), tmp_path, first=first) <= {"torch"}


def test_a_recording_loads_pandas_when_it_is_read(tmp_path: Path) -> None:
    program = (
        "import bridge, sys\nwith bridge.profile() as session:"
        + STEPS.replace("\n", "\n    ")
        + "\nassert 'pandas' not in sys.modules\nassert 'work' in set(session.by('op')['op'])"
    )
    assert {"pandas", "numpy"} <= loaded(program, tmp_path)
