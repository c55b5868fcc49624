"""`bridge run --deep` from end to end, with stand-ins for nsys and ncu: two runs of a program, and both reports joined."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import two_runs

import bridge

pytestmark = pytest.mark.slow


ROOT = Path(bridge.__file__).parent.parent
Run = Callable[..., subprocess.CompletedProcess[str]]
METRICS = "ncu_time,time_ratio,occupancy,sm_throughput,memory_throughput,bottleneck,match"


def environ(tools: Path) -> dict[str, str]:
    left = {name: value for name, value in os.environ.items() if not name.startswith("BRIDGE_")}
    # Without NVIDIA's library ncu prints a report, which the stand-in does.
    path = os.pathsep.join([str(tools / "absent"), str(ROOT)])
    told = {"STAND_IN": str(tools / "told.json"), "PYTHONPATH": path, "COLUMNS": "100"}
    return {**left, **told, "PATH": f"{tools}:/usr/bin:/bin", "BRIDGE_CACHE": "off"}


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Run:
    """Run `bridge run --deep` with stand-ins, of which that of ncu does as it is told."""
    (folder / "train.py").write_text(two_runs.PROGRAM)

    def launch(
        *words: str, does: str = "measures", tools: str = "nsys ncu", **program: object
    ) -> subprocess.CompletedProcess[str]:
        given = two_runs.launches(**program)
        bin_ = two_runs.install(tmp_path / "bin", given, does, tools)
        command = [sys.executable, "-m", "bridge", "run", "--deep", *words, "train.py"]
        return subprocess.run(
            command, cwd=folder, env=environ(bin_), capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL, timeout=120,
        )  # fmt: skip

    return launch


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "train.py")


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text())


def line_with(words: str, text: str) -> str:
    return next(line for line in text.splitlines() if words in line)


NSYS_ALONE = ["bridge.db", "report1.nsys-rep", "runs"]


def table_of(folder: Path, tools: Path, *words: str) -> list[dict]:
    command = [sys.executable, "-m", "bridge", "report", *words, "--by", "op-kernel"]
    command += ["--metrics", METRICS, "--format", "json"]
    done = subprocess.run(
        command, cwd=folder, env=environ(tools), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)["rows"]


def test_both_reports_are_one(run, folder, tmp_path):
    done = run()
    assert done.returncode == 0, done.stderr
    assert runs(folder) == 2
    assert listed(folder) == ["bridge.db", "report1.ncu-rep", "report1.nsys-rep", "runs"]
    plan = line_with("second run:", done.stderr)
    assert "ncu measures 4 launches of 2 kernels, about 1" in plan
    assert plan.endswith("an estimate), budget 10m")
    assert "  gemm in linear: 4.000 ms, kernel-hotspot\n" in done.stderr
    assert "--kernel-id=::regex:^(_Z4gemmPf|_Z3addPf)$:^(4|6)$' --launch-count=4" in done.stderr
    # What ncu measured by its own count is what was chosen: two launches of each kernel, of the second step on.
    measured = json.loads((tmp_path / "bin" / "measured.json").read_text())
    assert [(one["name"], one["number"], one["step"]) for one in measured] == [
        ("gemm", 4, 1), ("gemm", 6, 1), ("add", 4, 3), ("add", 6, 5)
    ]  # fmt: skip
    assert "run 1 of bridge.db" in done.stderr
    linear = line_with("linear", done.stdout.partition("time ratio")[2])
    assert linear.split() == "linear gemm 4.800 ms 1.25 50.0 % 72.5 % 64.0 % compute".split()
    assert "sync" not in done.stdout.partition("time ratio")[2]
    rows = table_of(folder, tmp_path / "bin")
    by_op = {row["op"]: row for row in rows}
    us = {"linear": 12 * 400, "norm": 6 * 60, "head": 6 * 50}
    for op, total in us.items():
        assert by_op[op]["total_ns"] == total * 1_000
        assert by_op[op]["ncu_time"] == total * 1_250
        assert by_op[op]["time_ratio"] == 1.25
        assert by_op[op]["match"] == "path"
    assert [by_op[op]["bottleneck"] for op in us] == ["compute", "memory", "compute"]
    assert by_op["sync"]["ncu_time"] == by_op["sync"]["time_ratio"] == -1
    assert by_op["sync"]["bottleneck"] == by_op["sync"]["match"] == ""


def test_without_an_import_the_files_say_the_same(run, folder, tmp_path):
    done = run("--no-import", "-o", "r")
    assert listed(folder) == ["r.ncu-rep", "r.nsys-rep", "runs"]
    assert "linear  gemm" in done.stdout
    command = line_with("for programs: ", done.stderr).partition(": ")[2]
    assert command == (
        f"bridge report r.nsys-rep --ncu r.ncu-rep --by op-kernel --metrics {METRICS} --format json"
    )
    rows = table_of(folder, tmp_path / "bin", "r.nsys-rep", "--ncu", "r.ncu-rep")
    assert {row["op"] for row in rows if row["match"]} == {"linear", "norm", "head"}


def test_a_small_budget_measures_less(run, folder):
    done = run("--no-import", "--budget", "11.6s")
    plan = line_with("second run:", done.stderr)
    assert "ncu measures 2 launches of 1 kernel," in plan
    assert "add in norm" not in done.stderr
    assert runs(folder) == 2


def test_kernels_outside_of_ops_are_named_alone(run):
    done = run("--no-import", steps=0)
    assert "  fill in (no op): 20.000 µs, " in done.stderr
    table = done.stdout.partition("time ratio")[2]
    assert line_with("fill", table).split()[:3] == ["fill", "20.000", "µs"]
    assert "--by kernel --metrics ncu_time" in line_with("for programs: ", done.stderr)


@pytest.mark.parametrize(
    ("words", "does", "said"),
    [
        (["--budget", "3s"], "measures", "even if it measures nothing, more than --budget 3s"),
        (["--op", "none"], "measures", "no second run: no kernel computes in none"),
        ([], "permission", "ncu may not read the counters of the GPU (ERR_NVGPUCTRPERM): run this as root"),
        ([], "none", "not measured: ncu met none of the chosen launches"),
        ([], "cut", "not measured: report1.ncu-rep: cut off or damaged"),
    ],
)  # fmt: skip
def test_whatever_goes_wrong_the_report_of_nsys_is_whole(run, folder, words, does, said):
    done = run(*words, does=does)
    assert done.returncode == 0, done.stderr
    [line] = [line for line in done.stderr.splitlines() if line.startswith(("not ", "no second"))]
    assert said in line
    assert listed(folder) == NSYS_ALONE
    assert runs(folder) == (1 if words else 2)
    assert "run 1 of bridge.db" in done.stderr
    assert "linear  gemm" in done.stdout
    assert "time ratio" not in done.stdout


def test_kernels_of_another_name_are_not_joined(run, folder):
    done = run(does="renames")
    assert done.returncode == 0, done.stderr
    assert "ncu measured no kernel of the report of nsys: do both runs do the same?" in done.stderr
    assert "time ratio" not in done.stdout
    assert "report1.ncu-rep: metrics of 0 of 31 kernels" in done.stderr
    assert "linear  gemm" in done.stdout


def test_without_ncu_there_is_one_run(run, folder):
    done = run(tools="nsys")
    assert done.returncode == 0
    assert line_with("no second run", done.stderr).startswith("note: no second run: ncu is not on")
    assert (listed(folder), runs(folder)) == (NSYS_ALONE, 1)


def test_a_program_that_fails_is_not_run_again(run, folder):
    (folder / "train.py").write_text(f"{two_runs.PROGRAM}\nraise SystemExit(7)")
    done = run()
    assert done.returncode == 7
    assert "no second run: the first did not succeed" in done.stderr
    assert (listed(folder), runs(folder)) == (NSYS_ALONE, 1)


def test_a_gpu_that_waits_is_not_measured_unless_that_is_asked_for(run, folder):
    idle = {"work": (("a", "k", 8, 3), ("b", "k2", 8, 1))}
    done = run("--no-import", **idle)
    line = line_with("no second run", done.stderr)
    assert "the GPU is idle for 78.9 % of its iterations: faster kernels would not help." in line
    assert "First: Launch-bound" in line
    assert (runs(folder), "time ratio" in done.stdout) == (1, False)
    asked = run("--no-import", "--op", "b", **idle)
    assert "ncu measures 1 launch of 1 kernel" in asked.stderr
    every = run("--no-import", "--even-idle", **idle)
    assert "ncu measures 2 launches of 2 kernels" in every.stderr
    assert (runs(folder), "time ratio" in every.stdout) == (5, True)


def test_under_the_real_nsys_without_a_gpu_there_is_nothing_to_measure(nsys, run, folder):
    program = "from bridge import nvtx_op\nwith nvtx_op('work'):\n    pass\n"
    (folder / "train.py").write_text(program + two_runs.PROGRAM)
    done = run(tools="ncu")
    assert done.returncode == 0, done.stderr
    assert "no second run: nothing ran on a GPU" in done.stderr
    assert runs(folder) == 1
    assert "run 1 of bridge.db" in done.stderr
    assert "report1.ncu-rep" not in listed(folder)


def test_a_second_run_that_fails_keeps_what_was_measured(run, folder):
    (folder / "train.py").write_text(
        f"{two_runs.PROGRAM}\nraise SystemExit(len(p.read_text()) - 1)"
    )
    done = run()
    assert done.returncode == 0
    assert "; the program ended with status 1" in line_with("measured in", done.stderr)
    assert "report1.ncu-rep" in listed(folder)


@pytest.mark.racy("a signal comes at a random moment")
def test_a_signal_in_the_second_run_leaves_the_first_report(run, folder, tmp_path):
    bin_ = two_runs.install(tmp_path / "bin", two_runs.launches(), "signal")
    command = [sys.executable, "-m", "bridge", "run", "--deep", "train.py"]
    with subprocess.Popen(
        command, cwd=folder, env=environ(bin_), stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as started:  # fmt: skip
        end = time.monotonic() + 60
        while not (folder / "runs").exists() or runs(folder) < 2:
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(0.5)
        started.send_signal(signal.SIGINT)
        out, err = started.communicate(timeout=60)
    assert started.returncode == 128 + signal.SIGINT, err
    assert "not measured: SIGINT ended the run under ncu; the report of nsys is whole" in err
    assert listed(folder) == NSYS_ALONE
    assert "linear  gemm" in out


def test_the_page_shows_what_is_printed(run):
    done = run("--no-import")
    page = (ROOT / "docs" / "run.md").read_text(encoding="utf-8")
    shown = page.partition("<!-- deep-output -->\n```\n")[2].partition("\n```")[0].splitlines()
    printed = [*done.stderr.splitlines(), *done.stdout.splitlines()]

    def rough(line: str) -> str:
        """Leave out how long the runs took."""
        return re.sub(r"(about|the run|measured in) [\d.]+ s", r"\1 … s", line)

    rows = [line for line in map(rough, shown) if line not in map(rough, printed)]
    assert not rows
    assert len(shown) == 10
