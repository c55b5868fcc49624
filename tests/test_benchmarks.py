"""The reports that speeds are measured on have a known truth, and the measuring runs."""

import subprocess
import sys

import pytest
from real_parts import ROOT

import bridge

sys.path.insert(0, str(ROOT / "benchmarks"))

VARIANTS = [{}, {"per_call_text": True, "threads": 2, "processes": 2}]


@pytest.mark.parametrize(
    "variant", VARIANTS, ids=["constant names", "per-call text, 2 x 2 threads"]
)
def test_each_op_owns_its_eighth(variant, tmp_path):
    from make_report import OPS, make

    path = tmp_path / "made.sqlite"
    kernels = make(path, 20_000, **variant)
    run = bridge.load(path)
    ops = run.by("op").set_index("op")
    assert [ops.loc[op, "kernels"] for op in OPS] == [kernels // 8] * 8
    assert [ops.loc[op, "calls"] for op in OPS] == [kernels // 8] * 8
    assert run.totals["unattributed"] == {}
    assert run.totals["activities"] == kernels
    layers = ops[ops.index.str.startswith("layer_")]
    assert layers["gpu_total_ns"].sum() == run.totals["gpu_ns"]
    assert layers["gpu_self_ns"].sum() == 0


def test_the_benchmark_prints_its_ratios():
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "main_job.py", "--kernels", "4000", "--rounds", "1"],
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    for command in (
        "bare column read",
        "report --by op-kernel",
        "import",
        "trace .json.gz",
        "trace .pftrace",
    ):
        assert done.stdout.count(f"| {command} |") == 2


def history(folder, *arguments):
    return subprocess.run(
        [
            *(sys.executable, ROOT / "benchmarks" / "history.py", "--kernels", "4000"),
            *("--rounds", "1", "--history", folder / "history.csv", *arguments),
        ],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_a_ratio_that_grew_fails(tmp_path):
    """Against itself recorded, a run passes; against a history of half the ratio it does not."""
    recorded = history(tmp_path, "--record", "as it is")
    assert recorded.returncode == 0, recorded.stderr
    file = tmp_path / "history.csv"
    head, *rows = file.read_text().splitlines()
    assert head == "date,kernels,job,ratio,peak_mb,what"
    first, rest = rows[0].split(","), rows[1:]
    assert first[2] == "report --by op-kernel"
    first[3] = str(float(first[3]) / 2)
    file.write_text("\n".join([head, ",".join(first), *rest, ""]))
    checked = history(tmp_path, "--check")
    assert checked.returncode == 1
    assert checked.stdout.count("GREW  report --by op-kernel: ") == 1


def test_every_job_has_a_history():
    from history import HISTORY, newest
    from main_job import TARGETS

    assert set(newest(HISTORY, 300_000)) == set(TARGETS)
