"""A machine without a GPU: one plain warning, in every command once."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import bridge, done, unwarned
from made_reports import PUSH_POP, Made, thread

from bridge.importers.nsys.schema import NO_GPU

PID = 100
NO_KERNELS = "no kernels, memcpys or memsets; was it recorded with --trace=cuda?"


def of_machine(path: Path, *, gpus: int = 0, launches: bool = False, **facts: str) -> Path:
    """Write an export with one range, of a machine of which an export says this."""
    made = Made()
    made.annotation(PUSH_POP, 1_000, 2_000, text="step", thread=thread(PID))
    made.tables["gpus"] += [{"gpu": n, "device": n, "name": f"GPU {n}"} for n in range(gpus)]
    made.tables["system"] += [{"name": name, "value": value} for name, value in facts.items()]
    if launches:
        name = made.string("cudaGetDeviceCount_v3020")
        made.tables["launches"].append(
            {"start": 1_100, "end": 1_200, "thread": thread(PID), "correlation": 1, "name": name}
        )
    return made.written(path)


def warnings(path: Path) -> list[str]:
    said = bridge("report", path).stderr.splitlines()
    return [line.removeprefix(f"warning: {path.name}: ") for line in said]


@pytest.mark.parametrize("facts", [{"NvDriverVersion": "0"}, {"HasDiscreteGpu": "0"}])
@pytest.mark.parametrize("launches", [False, True])
def test_one_warning_says_that_the_machine_has_no_gpu(
    tmp_path: Path, facts: dict[str, str], launches: bool
) -> None:
    assert warnings(of_machine(tmp_path / "x.sqlite", launches=launches, **facts)) == [NO_GPU]


def test_where_there_may_be_a_gpu_the_warnings_say_how_to_record_it(tmp_path: Path) -> None:
    for name, path in {
        "nothing is known": of_machine(tmp_path / "a.sqlite"),
        "a driver": of_machine(tmp_path / "b.sqlite", NvDriverVersion="535.54", HasDiscreteGpu="1"),
        "an integrated GPU": of_machine(tmp_path / "c.sqlite", gpus=1, HasDiscreteGpu="0"),
    }.items():
        assert NO_KERNELS in warnings(path), name
        assert NO_GPU not in warnings(path), name


def test_kernels_are_evidence_of_a_gpu(tmp_path: Path) -> None:
    made = Made()
    made.kernel("gemm", 150, PID, 160, 180)
    made.tables["system"].append({"name": "NvDriverVersion", "value": "0"})
    assert NO_GPU not in warnings(made.written(tmp_path / "x.sqlite"))


@pytest.mark.parametrize("command", ["import", "report", "summary", "diff"])
def test_a_command_says_it_once_for_each_report(command: str, folder: Path) -> None:
    reports = [of_machine(folder / "x.sqlite", NvDriverVersion="0")]
    if command == "diff":
        reports.append(of_machine(folder / "y.sqlite", NvDriverVersion="0"))
    result = bridge(command, *reports)
    assert result.exit_code == 0
    assert result.stderr.count("no GPU") == len(reports)
    assert "no GPU" not in result.stdout
    assert "no GPU" not in unwarned(result.stderr)
    assert "CPU" in result.stdout
    assert "trace=cuda" not in result.stdout + result.stderr


@pytest.mark.slow
@pytest.mark.skipif(bool(shutil.which("nvidia-smi")), reason="the machine has a GPU")
def test_a_real_capture_says_that_there_is_no_gpu(nsys: str, tmp_path: Path) -> None:
    program, report = tmp_path / "program.py", tmp_path / "r.nsys-rep"
    program.write_text("from bridge import nvtx_op\nwith nvtx_op('step'): pass\n", encoding="utf-8")
    words = [nsys, "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "-o", report]
    subprocess.run([*words, sys.executable, program], check=True, timeout=60, capture_output=True)
    assert warnings(report) == [NO_GPU]
    assert "step" in done("report", report)
