"""Every example runs as it stands, and under the real nsys gives the ranges that it promises."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from real_parts import ROOT

import bridge
from bridge.report import Report

EXAMPLES = ROOT / "examples"
CALLS = {  # of ops, under nsys
    "by_hand": {"step": 10, "load": 10, "forward": 10, "matmul": 20, "update": 10},
    "torch_automatic": {"module:Sequential": 3, "backward:Sequential.0": 3, "Optimizer.step#AdamW.step": 3},
    "asyncio_server": {"request": 8, "parse": 8, "model": 8, "reply": 8},
    "custom_op": {"mylib::scaled_gelu": 3, "mylib::scaled_gelu::gelu": 3, "torch.linalg.norm": 3},
    "data_loading": {"wait for data": 1, "load": 8, "decode": 32},
    "benchmark": {"by_division": 70, "by_einsum": 70, "bench:by_division": 3, "bench:by_division + by_einsum": 1},
}  # fmt: skip
ELSEWHERE = {"schedule", "model_server"}  # captured in parts, below; and in tests/serving
CYCLES = ["-c", "nvtx", "-p", "capture@nsight-bridge", "--capture-range-end=repeat"]

Captured = Callable[[str, Path], tuple[Path, Report]]


def names() -> list[str]:
    return sorted(path.stem for path in EXAMPLES.glob("*.py"))


@pytest.fixture(params=names())
def example(request: pytest.FixtureRequest) -> Path:
    path = EXAMPLES / f"{request.param}.py"
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    imported = {
        *(name.name for node in nodes if isinstance(node, ast.Import) for name in node.names),
        *(str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)),
    }
    packages = sorted({name.partition(".")[0] for name in imported})
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    return path


def run(command: list[str], folder: Path) -> str:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    environ = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def profile(nsys: str, example: Path, folder: Path, *options: str) -> None:
    quiet = ["-t", "nvtx", "-s", "none", "--cpuctxsw=none", "-o", "report"]
    run([nsys, "profile", *quiet, *options, sys.executable, str(example)], folder)


@pytest.fixture(scope="module")
def captured(tmp_path_factory: pytest.TempPathFactory) -> Captured:
    """Profile an example, once for all tests of it, and give its folder too."""
    loaded: dict[str, tuple[Path, Report]] = {}

    def load(nsys: str, example: Path) -> Report:
        if example.stem not in loaded:
            folder = tmp_path_factory.mktemp(example.stem)
            profile(nsys, example, folder)
            loaded[example.stem] = folder, bridge.load(folder / "report.nsys-rep")
        return loaded[example.stem]

    return load


def calls(joined: Report) -> dict[str, int]:
    table = joined.by("op")
    return dict(zip(table["op"], table["calls"], strict=True))


def test_examples_are_all_here() -> None:
    assert {*CALLS, *ELSEWHERE} == set(names())


@pytest.mark.slow
def test_it_runs_without_a_profiler(example: Path, folder: Path) -> None:
    assert run([sys.executable, str(example)], folder)
    assert list(folder.iterdir()) == []  # and leaves nothing behind


@pytest.mark.slow
@pytest.mark.parametrize("example", CALLS, indirect=True)
def test_its_ops_are_recorded(example: Path, nsys: str, captured: Captured) -> None:
    found = calls(captured(nsys, example)[1])
    expected = CALLS[example.stem]
    assert {op: found.get(op) for op in expected} == expected


@pytest.mark.slow
def test_details_come_with_the_report(nsys: str, captured: Captured) -> None:
    _, joined = captured(nsys, EXAMPLES / "by_hand.py")
    table = joined.by("range", arguments=True)
    matmul = table[table["name"] == "matmul"]
    assert set(matmul["shapes"]) == {"[[64, 16], [16, 1]]", "[[16, 64], [64, 1]]"}
    assert set(matmul["flops"]) == {2 * 64 * 16}
    assert set(table[table["name"] == "update"]["args.rate"]) == {0.01}


@pytest.mark.slow
def test_workers_have_recordings_of_their_own(nsys: str, captured: Captured) -> None:
    folder, joined = captured(nsys, EXAMPLES / "data_loading.py")
    table = joined.by("range", arguments=True)
    decode = table[table["name"] == "decode"]
    assert sorted(decode["args.number"]) == list(range(32))
    assert len(list(folder.glob("bridge-*.jsonl"))) == (decode["thread"] // (1 << 24)).nunique()


@pytest.mark.slow
def test_a_schedule_makes_a_report_of_each_cycle(nsys: str, folder: Path) -> None:
    profile(nsys, EXAMPLES / "schedule.py", folder, *CYCLES)
    reports = sorted(folder.glob("report*.nsys-rep"))
    assert [path.name for path in reports] == ["report.1.nsys-rep", "report.2.nsys-rep"]
    for report in reports:
        assert calls(bridge.load(report)) == {"ProfilerStep": 3, "compute": 3, "exchange": 3}
