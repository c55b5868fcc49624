"""`check.sh` itself, against the stand-in: its steps run, and it leaves a summary, logs and small reports."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cuda_stand_in import KIT, StandIn

pytestmark = pytest.mark.slow


def test_the_check_runs_every_step_that_needs_no_gpu(stand_in: StandIn, tmp_path):
    dry = {
        "DRY": "1",
        "FAKE": str(stand_in.library),
        "KIT": str(tmp_path),
        "PYTHON": sys.executable,
    }
    done = subprocess.run(
        [KIT / "check.sh", tmp_path / "out"], env=stand_in.environ | dry, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    summary = (tmp_path / "out" / "summary.txt").read_text(encoding="utf-8")
    passed = [line.split()[3] for line in summary.splitlines() if line.startswith("PASS")]
    assert {
        "program",
        "doctor",
        "cupti-node-truth",
        "cupti-graph-truth",
        "cupti-session-truth",
        "remedies",
    } <= {*passed}
    assert "2 of 2 pairs ran" in summary
    assert [line.split()[0] for line in summary.splitlines()[-4:-2]] == [
        "wait-each-step",
        "first-calls",
    ]
    reports = {path.name for path in (tmp_path / "out" / "reports").glob("*.sqlite")}
    assert {"cupti.sqlite", "cupti-graph.sqlite", "cupti-session.sqlite"} <= reports


def test_steps_that_have_no_time_left_are_skipped(stand_in: StandIn, tmp_path):
    dry = {
        "DRY": "1",
        "FAKE": str(stand_in.library),
        "KIT": str(tmp_path),
        "PYTHON": sys.executable,
        "DEADLINE": "0",
    }
    subprocess.run(
        [KIT / "check.sh", tmp_path / "out"],
        env=stand_in.environ | dry,
        capture_output=True,
        timeout=60,
        check=False,
    )
    summary = (tmp_path / "out" / "summary.txt").read_text(encoding="utf-8").splitlines()
    assert all(line.startswith("SKIP") for line in summary[:-1])
