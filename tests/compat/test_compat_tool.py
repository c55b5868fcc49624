"""The old programs under the real nsys: their ranges are in the report; without it their import is light."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module

import old_programs
import pytest
from captures import exported, profiled
from real_parts import ROOT

from bridge import importers

NAMES = {
    "RAF": {"outer", 'inner ü "quoted"'},
    "MEGENGINE": {"outer", "forward"},
    "MXNET": {"outer", "epoch", "batch", "load"},
    "TORCH": {"outer", "forward", "ProfilerStep#2", "ProfilerStep#7"},
}
MARKS = {"MXNET": {"checkpoint", "counter:samples"}}


@pytest.mark.slow
@pytest.mark.parametrize("program", NAMES)
def test_ranges_are_in_the_report(nsys, program, tmp_path):
    words = (sys.executable, "-c", getattr(old_programs, program))
    profiled(nsys, tmp_path, *words, env=old_programs.environment())
    report = importers.load(exported(nsys, tmp_path / "report.nsys-rep"))
    assert NAMES[program] <= set(report.ranges["name"])
    assert MARKS.get(program, set()) <= set(report.marks["name"])


FACES = ["raf", "megengine", "mxnet", "torch_profiler"]


@pytest.mark.parametrize(
    "face",
    [*FACES[:-1], "mxnet.profiler", pytest.param("torch_profiler", marks=pytest.mark.slow)],
)
def test_every_name_is_in_the_documentation(face):
    page = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
    said = set(re.findall(r"\w+", page))
    assert set(import_module(f"bridge.compat.{face}").__all__) <= said


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES[:-1])  # the last one needs PyTorch
def test_importing_a_face_is_light(face, tmp_path):
    program = f"""
import sys, bridge
assert not [name for name in sys.modules if name.startswith("bridge.compat")]
import bridge.compat.{face}
assert not {{"pandas", "numpy", "click", "sqlite3", "torch"}} & sys.modules.keys()
"""
    old_programs.run(program, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "words", "status", "said"),
    [
        ("megengine.profiler", ["nosuch.py"], 2, "nosuch.py"),
        ("megengine.profiler", [], 2, "name a script"),
        ("megengine.tools.profiler", ["nosuch.py"], 2, "nosuch.py"),
        ("megengine.profile_analyze", ["-h"], 0, "List the operators of DUMP"),
        ("megengine.tools.profile_analyze", ["-h"], 0, "List the operators of DUMP"),
        ("megengine.tools.svg_viewer", ["-h"], 0, "usage"),
        ("mxnet.dumps", ["-h"], 0, "Print the aggregates of REPORT"),
    ],
)
def test_the_commands_of_other_profilers(module, words, status, said, tmp_path):
    command = [sys.executable, "-m", f"bridge.compat.{module}", *words]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == status, done.stderr
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert [*tmp_path.iterdir()] == []
