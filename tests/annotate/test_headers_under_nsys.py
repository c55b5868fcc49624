"""The header for C and C++: compilers take it without a warning, and the importer reads its ranges back."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from captures import exported, profiled
from click.testing import CliRunner
from real_parts import need

import bridge
from bridge import importers
from bridge.annotate import headers
from bridge.cli import main
from bridge.importers.capture import Capture

HERE = Path(__file__).parent
STRICT = ("-Wall", "-Wextra", "-Werror")
STANDARDS = [
    ("gcc", "macros.c", "c99"),
    ("gcc", "macros.c", "gnu17"),
    ("g++", "macros.cpp", "c++11"),
    ("g++", "macros.cpp", "c++20"),
]


def compiled(compiler: str, source: str, standard: str, folder: Path) -> Path:
    """Compile a program as the documentation says; skip without the compiler."""
    path = need(compiler, shutil.which(compiler), f"{compiler} is not installed")
    program = folder / "program"
    options = CliRunner().invoke(main, ["--includes"]).output.split()
    command = [
        path,
        f"-std={standard}",
        *STRICT,
        *options,
        str(HERE / source),
        "-o",
        str(program),
        "-ldl",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return program


def recorded(nsys: str, program: Path, **environ: str) -> Capture:
    overwriting = ["--force-overwrite=true"]
    profiled(nsys, program.parent, program, options=overwriting, env=os.environ | environ)
    return importers.load(exported(nsys, program.parent / "report.nsys-rep"))


def ranges(capture: Capture) -> list[tuple[str, str]]:
    return list(zip(capture.ranges.name, capture.ranges.category, strict=True))


def test_folders_are_those_of_the_headers():
    folders = headers.include_folders()
    assert folders[0] == bridge.get_include()
    assert (Path(folders[0]) / headers.HEADER).is_file()
    assert all((Path(folder) / headers.NVTX).is_file() for folder in folders[1:])


@pytest.mark.slow
@pytest.mark.parametrize(("compiler", "source", "standard"), STANDARDS)
def test_compilers_take_it(compiler, source, standard, tmp_path):
    program = compiled(compiler, source, standard, tmp_path)
    done = subprocess.run([program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == ""
    if source.endswith("cpp"):
        report, work, flushed = done.stderr.splitlines()[0], *done.stderr.splitlines()[1:]
        assert report == "Scope Timer Report:"
        assert work.startswith("work: ")
        assert work.endswith("from 3 samples")
        assert flushed.startswith("Timed flushed: ")


@pytest.mark.slow
def test_ranges_of_c_come_back(nsys, tmp_path):
    found = recorded(nsys, compiled("gcc", "macros.c", "c99", tmp_path))
    assert ranges(found) == [("outer", ""), ("inner", "io"), ("inner", "io")]
    outer, *inner = zip(found.ranges["start"], found.ranges["end"], strict=True)
    assert all(outer[0] <= start <= end <= outer[1] for start, end in inner)
    assert found.marks["name"].tolist() == ["here"] * 2


@pytest.mark.slow
def test_ranges_of_cpp_come_back_by_level(nsys, tmp_path):
    program = compiled("g++", "macros.cpp", "c++17", tmp_path)
    level_1 = [
        ("step", ""),
        ("load", "io"),
        ("conv2d", "MemoryRequest"),
        ("work", "timer"),
        ("gemm", "Stream 1"),
        ("work", "timer"),
        ("work", "timer"),
        ("throws", "MemoryRequest"),
        ("flushed", "timer"),
    ]
    found = recorded(nsys, program)
    assert ranges(found) == level_1
    assert not found.ranges["open"].any()  # the exception closed its range
    marks = zip(found.marks.name, found.marks.category, strict=True)
    assert list(marks) == [("loaded", ""), ("Count: 3", "args")]
    level_2 = [*level_1[:6], ("InvokeJit", "VMInstruction"), *level_1[6:]]
    assert ranges(recorded(nsys, program, BRIDGE_LEVEL="2")) == level_2
    assert "conv2d" in set(bridge.load(program.parent / "report.sqlite").by("op")["op"])
