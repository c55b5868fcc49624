"""`bridge run --auto` in front of any command: all its Python processes are annotated, and each rank is told apart."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from command import done
from real_parts import ROOT

from bridge import importers

pytestmark = pytest.mark.slow

BIN = Path(sys.executable).parent
TRAIN = """
import torch
torch.distributed.init_process_group("gloo")
net = torch.nn.Linear(2, 2)
net(torch.zeros(1, 2)).sum().backward()
torch.distributed.barrier()
print("SAID", torch.distributed.get_rank(), torch.distributed.get_world_size())
"""
LIBRARY = "".join(
    f"def {name}(): return 0\n" for name in ("unbuffered", "optimized", "code", "script", "test")
)
PROGRAM = "import library, sys\ngetattr(library, sys.argv[1])()\nprint('SAID', sys.argv[1:], sys.flags.optimize)"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(nsys: str, folder: Path) -> Run:
    """Run `bridge run --auto` in front of a command, in a folder with programs; the report is r.nsys-rep."""
    files = {
        "train.py": TRAIN, "library.py": LIBRARY, "program.py": PROGRAM,
        "test_library.py": "import library\ndef test_library(): library.test()\n",
        "tool": f"#!{sys.executable} -s\nimport sys, library\nsys.exit(library.script())\n",
    }  # fmt: skip
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "tool").chmod(0o755)
    left = {name: value for name, value in os.environ.items() if not name.startswith("BRIDGE_")}
    paths = {"PYTHONPATH": f"{ROOT}", "PATH": f"{folder}:{BIN}:{os.environ['PATH']}"}

    def launch(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "bridge", "run", "--no-import", "-o", "r", "--auto"]
        return subprocess.run(
            [*command, *words], env={**left, **paths}, cwd=folder, input="", capture_output=True,
            text=True, check=False, timeout=120,
        )  # fmt: skip

    return launch


def table(by: str) -> dict[str, list[dict[str, object]]]:
    return json.loads(done("report", "r.nsys-rep", "--by", by, "--format", "json"))


TORCHRUN = "torchrun --standalone --nproc-per-node 2"
ACCELERATE = "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"


@pytest.mark.parametrize("launcher", [TORCHRUN, ACCELERATE], ids=["torchrun", "accelerate"])
def test_each_rank_of_a_launcher_has_its_ranges_and_its_rows(run, launcher):
    """Without ops no call has details, and still the recordings tell the rank of each process."""
    name, *words = launcher.split()
    if find_spec("torch") is None or not (BIN / name).exists():
        pytest.skip(f"{name} is not installed")
    ended = run("--no-ops", name, *words, "train.py")
    assert ended.returncode == 0, ended.stderr
    assert {"SAID 0 2", "SAID 1 2"} <= set(ended.stdout.splitlines())
    assert re.search(
        r"annotations of modules took about .* in 2 processes: 4 ranges x ", ended.stderr
    )
    assert len(importers.load(Path("r.nsys-rep")).facts[0].metadata["annotation_costs"]) == 2
    ranks = table("rank")
    known = [(row["rank"], row["known_by"]) for row in ranks["ranks"]]
    assert known == [(0, "recording"), (1, "recording")]
    assert sorted(row["rank"] for row in ranks["rows"]) == [0, 1]
    assert sorted((row["rank"], row["op"]) for row in table("rank,op")["rows"]) == [
        (n, f"{kind}:Linear") for n in (0, 1) for kind in ("backward", "module")
    ]


def test_every_python_of_a_command_is_annotated_whatever_its_options(run):
    script = """
    export BRIDGE_AUTORUN_OPTIONS=--wrap=library
    python -u program.py unbuffered; python -O -B -W error -X dev -m program optimized
    python -c 'import library; library.code()'; tool; pytest -q -p no:cacheprovider test_library.py
    exit 7
    """
    ended = run("sh", "-c", script)
    assert ended.returncode == 7, ended.stderr
    assert {"SAID ['unbuffered'] 0", "SAID ['optimized'] 1"} <= set(ended.stdout.splitlines())
    assert "1 passed" in ended.stdout
    ranges = importers.load(Path("r.nsys-rep")).ranges.to_pandas().sort_values("start")
    assert ranges["name"].tolist() == [
        f"library.{name}" for name in ("unbuffered", "optimized", "code", "script", "test")
    ]
    assert ranges["process"].nunique() == 5


def test_an_interpreter_that_cannot_be_annotated_runs_after_a_line_on_what_to_do(run):
    ended = run("python", "-uI", "-c", "print('SAID', 1)")
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, "SAID 1")
    line = "with -I, Python does not load what annotates it; leave -I away\n"
    assert f"bridge run annotates child processes alone: {line}" in ended.stderr
