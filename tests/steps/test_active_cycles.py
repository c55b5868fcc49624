"""A report that holds more than the active steps of a session says what the others lack."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import made_reports
import pytest

import bridge
from bridge.analyze.core import session_cycles as cycles
from bridge.analyze.core.session_cycles import ActiveCycles
from bridge.capture.session import control
from bridge.render.summaries import cycles_line

PID = 100
DOMAIN = 4


def session_report(path: Path, active, *, own: str = "", phase: str = cycles.NAME) -> Path:
    """Write a report of ten steps: op mm in the active ones, and ``own`` in all."""
    made, host = made_reports.Made(), {"thread": made_reports.thread(PID)}
    made.annotation(75, 1, None, text=cycles.DOMAIN, domain=DOMAIN, **host)
    for number in range(10):
        at = 1_000 * (number + 1)
        if number in active:
            made.annotation(
                made_reports.START_END, at - 20, at + 920, text=phase, domain=DOMAIN, **host
            )
            for n in range(3):
                made.annotation(
                    made_reports.PUSH_POP,
                    at + 100 * n + 10,
                    at + 100 * n + 90,
                    text="aten::mm",
                    **host,
                )
        made.annotation(made_reports.PUSH_POP, at, at + 900, text=f"ProfilerStep#{number}", **host)
        if own:
            made.annotation(made_reports.PUSH_POP, at + 500, at + 600, text=own, **host)
        made.kernel("gemm", at + 20, PID, at + 100, at + 180)
    return made.written(path)


def test_the_phase_is_the_one_that_sessions_open():
    assert (cycles.DOMAIN, cycles.NAME) == (control.DOMAIN, control.NAME)


def test_steps_outside_of_the_cycles_lack_the_ops_of_the_session(tmp_path):
    report = bridge.load(session_report(tmp_path / "a.sqlite", {3, 4, 7}, own="forward"))
    assert report.cycles == ActiveCycles(steps=10, active=3, ops=1, example="aten::mm")
    assert cycles_line(report.cycles) == (
        "3 of 10 steps are active in the session's schedule. The others lack the ranges of 1 op"
        " (aten::mm): their time counts for the ops around them. To see the active steps alone: --range capture\n"
    )
    selected = report.within(range_name="capture")
    assert selected.cycles is None
    assert selected.by("op").set_index("op")["calls"]["ProfilerStep"] == 3


@pytest.mark.parametrize(
    ("active", "more"),
    [
        (range(10), {}),  # all steps are active
        ((), {}),  # no session
        ((2, 3), {"phase": "of mine"}),
    ],
)
def test_other_reports_have_no_such_line(tmp_path, active, more):
    report = bridge.load(session_report(tmp_path / "a.sqlite", set(active), **more))
    assert report.cycles is None
    assert cycles_line(report.cycles) == ""


def test_ops_in_all_steps_tell_no_cycles_apart(tmp_path):
    report = bridge.load(session_report(tmp_path / "a.sqlite", {2}, own="aten::mm"))
    assert report.cycles is None


# Iterations take longer than what follows the last one, on a machine of any speed.
PROGRAM = """
import time
import bridge
import torch
model = torch.nn.Linear(8, 2)
with bridge.profile(schedule=bridge.schedule(wait=2, warmup=0, active=2, repeat=1), ops=True) as session:
    for _ in range(6):
        model(torch.ones(3, 8))
        time.sleep(0.002)
        session.step()
"""


@pytest.mark.slow
def test_a_run_without_a_schedule_says_which_steps_have_ops(nsys: str, tmp_path: Path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "bridge", "run", "-o", "made", "train.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120
    )
    assert "2 of 6 steps are active in the session's schedule." in done.stdout
    assert "--range capture" in done.stdout
    calls = bridge.load(tmp_path / "made.nsys-rep").by("op").set_index("op")["calls"]
    assert calls["aten::addmm"] == 2
