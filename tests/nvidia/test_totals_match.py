"""Totals match those of NVIDIA's own report scripts: run here, on reports made here, to the nanosecond.

`nsys stats` of the installed Nsight Systems reads the same exports as `bridge report`. The corpus of real
profiles, where it is present, is compared with recorded results of NVIDIA's scripts besides (`test_parity.py`).
"""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from nvidia.training import export

import bridge


@pytest.fixture(scope="module", params=[1, 2])
def training_export(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return export(tmp_path_factory.mktemp("nvidia") / "report.sqlite", seed=request.param)


@pytest.fixture(scope="module")
def ours(training_export: Path):
    return bridge.load(training_export)


@pytest.fixture
def theirs(nsys_tool: str, training_export: Path, tmp_path: Path):
    """Give the rows of one of NVIDIA's reports."""
    return lambda *names: rows_of(nsys_tool, training_export, tmp_path, names)


def rows_of(nsys: str, report: Path, folder: Path, names: tuple[str, ...]) -> list[dict[str, str]]:
    """Return what a report of `nsys stats` prints for a copy of an export, for it writes into what it reads."""
    copied = shutil.copy(report, folder / "copy.sqlite")
    known = run(nsys, "stats", "--help-reports", check=False)  # it does not end with 0
    name = next(name for name in names if name in known)  # they were renamed in 2023
    options = ["--quiet", "--report", name, "--format", "csv", "--output", "-"]
    return list(csv.DictReader(io.StringIO(run(nsys, "stats", *options, copied).lstrip())))


def run(*command: str | Path, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=check, timeout=120)
    return done.stdout


def ns(row: dict[str, str], name: str) -> int:
    """Read a column of nanoseconds, whose heading tells the unit in some versions."""
    return int(row.get(f"{name} (ns)") or row[name])


def counted(table, name: str) -> dict[str, tuple[int, int]]:
    """Give count and total of each row of a table of ours, by its name."""
    return {row[name]: (row["count"], row["total_ns"]) for row in table.to_dict("records")}


def test_kernels(ours, theirs):
    table = ours.by("kernel", kernel_names="demangled")
    columns = ["count", "total_ns", "min_ns", "max_ns"]
    found = {
        row["kernel"]: tuple(int(row[name]) for name in columns) for row in table.to_dict("records")
    }
    expected: dict[str, tuple[int, int, int, int]] = {}
    for row in theirs("gpukernsum", "cuda_gpu_kern_sum"):  # a row per name, grid and block
        figures = int(row["Instances"]), ns(row, "Total Time"), ns(row, "Min"), ns(row, "Max")
        count, total, least, most = expected.get(row["Name"], (0, 0, 1 << 62, 0))
        expected[row["Name"]] = (
            count + figures[0],
            total + figures[1],
            min(least, figures[2]),
            max(most, figures[3]),
        )
    assert found == expected
    assert len(expected) > 3


def test_copies(ours, theirs):
    longer = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device"}
    expected = {}
    for row in theirs("gpumemtimesum", "cuda_gpu_mem_time_sum"):
        name = row["Operation"]
        for short, long in longer.items():
            name = name.replace(f" {short}]", f" {long}]")
        expected[name] = (int(row["Count"]), ns(row, "Total Time"))
    assert counted(ours.by("memcpy"), "operation") == expected
    assert len(expected) > 1


def test_calls(ours, theirs):
    rows = theirs("cudaapisum", "cuda_api_sum")
    expected = {row["Name"]: (int(row["Num Calls"]), ns(row, "Total Time")) for row in rows}
    assert counted(ours.by("api"), "api") == expected
    assert expected


def test_kernels_of_ranges(training_export, theirs):
    """A kernel counts in every range around its launch; no range here is inside one of its own text."""
    table = bridge.load(training_export, raw=True).by(
        "op-kernel", inclusive=True, kernel_names="demangled"
    )
    found = {
        (row["op"], row["kernel"]): (row["count"], row["total_ns"])
        for row in table.to_dict("records")
        if row["op"]
    }
    expected: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    for row in theirs("nvtxkernsum", "nvtx_kern_sum"):  # a row per process and thread besides
        if row["NVTX Range"] not in {"", "None"}:  # kernels outside of every range
            expected[row["NVTX Range"], row["Kernel Name"]] += ns(row, "Total Time")
            counts[row["NVTX Range"], row["Kernel Name"]] += int(row["Kern Inst"])
    assert found == {key: (counts[key], total) for key, total in expected.items()}
    assert len(expected) > 4


def test_projections_of_ranges(training_export, theirs):
    table = bridge.load(training_export, raw=True).by("range")
    table = table[table["activities"] > 0]
    columns = ["start_ns", "duration_ns", "gpu_start_ns", "gpu_span_ns", "activities"]
    found = Counter(tuple(int(row[name]) for name in columns) for row in table.to_dict("records"))
    rows = theirs("nvtxgpuproj", "nvtx_gpu_proj_trace")
    names = ["Orig Start", "Orig Duration", "Projected Start", "Projected Duration"]
    expected = Counter(
        (*(ns(row, name) for name in names), int(row["NumGPUOps"])) for row in rows if row["Name"]
    )
    assert found == expected
    assert len(expected) > 4


PROGRAM = """
import threading, time, bridge
def work():
    with bridge.nvtx_op("sleep"):
        for _ in range(5): time.sleep(0.01)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


def test_calls_of_the_operating_system(nsys, tmp_path):
    traced = ["--trace=nvtx,osrt", "--sample=none", "--cpuctxsw=none"]
    run(nsys, "profile", *traced, "-o", tmp_path / "r", sys.executable, "-c", PROGRAM)
    export = tmp_path / "r.sqlite"
    run(nsys, "export", "--type=sqlite", "-o", export, tmp_path / "r.nsys-rep")
    rows = rows_of(nsys, export, tmp_path, ("osrtsum", "osrt_sum"))
    expected = {row["Name"]: (int(row["Num Calls"]), ns(row, "Total Time")) for row in rows}
    assert counted(bridge.load(export).by("osrt"), "call") == expected
    assert len(expected) > 3
