"""The files of sessions: they grow, have numbers, are whole or as before, and survive what ends the program."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import done as printed_by
from watched import names, op

import bridge
from bridge import importers

pytestmark = pytest.mark.usefixtures("all_as_before")

ROOT = Path(bridge.__file__).parent.parent
CYCLES = {"wait": 0, "warmup": 0, "active": 1, "repeat": 3}


def traced(path: Path) -> set[str]:
    """Give the names of the events in a trace."""
    read = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return {event.get("name") for event in json.loads(read)["traceEvents"]}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".json.gz"])
def test_every_cycle_has_a_file(suffix, tmp_path):
    session = bridge.profile(path=tmp_path / f"a.b{suffix}", schedule=bridge.schedule(**CYCLES))
    with session:
        for step in range(3):
            op(f"in {step}")
            session.step()
    files = [tmp_path / f"a.b{number}{suffix}" for number in ("", "-2", "-3")]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    for step, file in enumerate(files):
        found = names(importers.load(file)) if suffix == ".jsonl" else traced(file)
        assert f"in {step}" in found
        assert not {f"in {other}" for other in range(3) if other != step} & set(found)


def test_with_cycles_that_accumulate_there_is_one_file(tmp_path):
    session = bridge.profile(
        path=tmp_path / "a.jsonl", schedule=bridge.schedule(**CYCLES), acc_events=True
    )
    with session:
        for step in range(3):
            op(f"in {step}")
            session.step()
    assert [file.name for file in tmp_path.iterdir()] == ["a.jsonl"]
    assert names(importers.load(tmp_path / "a.jsonl")) == ["in 0", "in 1", "in 2"]


@pytest.mark.slow
@pytest.mark.racy("threads and timers meet at random")
def test_a_recording_grows_and_is_readable_at_any_moment(tmp_path):
    path = tmp_path / "made" / "here" / "a.jsonl"
    seen = []
    with bridge.profile(path=path, dump_period=0.02):
        ends = time.monotonic() + 20
        while len(seen) < 5 and time.monotonic() < ends:
            op("a")
            time.sleep(0.005)
            if path.exists():
                count = len(names(importers.load(path)))
                seen += [count] if not seen or count > seen[-1] else []
    assert len(seen) == 5


@pytest.mark.slow
@pytest.mark.racy("processes are killed while others wait for them")
def test_after_a_kill_the_recording_is_readable(tmp_path):
    program = """
import bridge, os, signal, time
session = bridge.profile(path="a.jsonl", dump_period=0.05, metadata={"run": 1}).start()
with bridge.nvtx_op("open"):
    with bridge.nvtx_op("done"): pass
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environ, check=False, timeout=60
    )
    assert killed.returncode == -signal.SIGKILL
    report = importers.load(tmp_path / "a.jsonl")
    assert dict(zip(report.ranges["name"], report.ranges["open"], strict=True)) == {
        "open": True,
        "done": False,
    }
    assert report.facts[0].metadata["run"] == 1


def test_an_existing_file_is_replaced(tmp_path):
    for suffix in (".jsonl", ".json"):
        path = tmp_path / f"a{suffix}"
        path.write_text("of somebody else")
        with bridge.profile(path=path):
            op("a")
        assert "of somebody else" not in path.read_text()
        assert "a" in (names(importers.load(path)) if suffix == ".jsonl" else traced(path))


def test_a_session_that_never_records_leaves_an_existing_file_alone(tmp_path):
    for suffix in (".jsonl", ".json"):
        path = tmp_path / f"a{suffix}"
        path.write_text("as before")
        session = bridge.profile(path=path, schedule=bridge.schedule(wait=1, warmup=1, active=1))
        with session:
            session.step()
        with pytest.raises(importers.ReportError):
            session.dump()
        assert path.read_text() == "as before"


def test_a_trace_that_cannot_be_written_is_a_warning_and_ready_is_called(tmp_path):
    (tmp_path / "a.json").mkdir()
    ready = []
    session = bridge.profile(path=tmp_path / "a.json", on_trace_ready=lambda _: ready.append(1))
    with pytest.warns(RuntimeWarning, match=r"^bridge: .*a.json: a folder; name a file$"), session:
        op("a")
    assert ready == [1]
    assert names(session) == ["a"]
    assert [file.name for file in tmp_path.iterdir()] == ["a.json"]


def test_nothing_recorded_is_a_warning_at_the_end(tmp_path):
    session = bridge.profile(path=tmp_path / "a.json")
    with pytest.warns(RuntimeWarning, match="the session has recorded nothing"), session:
        pass
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_dump_while_it_goes_on(tmp_path):
    with bridge.profile(path=tmp_path / "own.jsonl") as session:
        op("a")
        for name in ("b.jsonl", "b.json", "own.jsonl"):
            session.dump(tmp_path / name, finished=False)
        session.dump(finished=False)
        assert session.is_profiling
        for name in ("b.jsonl", "own.jsonl"):
            assert names(importers.load(tmp_path / name)) == ["a"]
        assert "a" in traced(tmp_path / "b.json")
        op("later")
        session.dump(tmp_path / "c.jsonl")
        assert not session.is_profiling
    for name in ("c.jsonl", "own.jsonl"):
        assert names(importers.load(tmp_path / name)) == ["a", "later"]


def test_a_file_is_where_it_was_said_wherever_the_program_goes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    sessions = [bridge.profile(path=f"a{suffix}") for suffix in (".jsonl", ".json")]
    monkeypatch.chdir(tmp_path / "elsewhere")
    for session in sessions:
        with session:
            op("a")
    assert {file.name for file in tmp_path.iterdir()} == {"a.jsonl", "a.json", "elsewhere"}


def test_a_recording_that_somebody_deleted(tmp_path):
    with bridge.profile(path=tmp_path / "a.jsonl") as session:
        op("a")
    (tmp_path / "a.jsonl").unlink()
    with (
        pytest.warns(RuntimeWarning, match="nothing more is recorded there"),
        pytest.raises(importers.ReportError, match=r"a.jsonl: No such file"),
    ):
        session.by("op")


def test_the_commands_read_a_recording(tmp_path):
    path = tmp_path / "a.jsonl"
    with bridge.profile(path=path) as session:
        op("of mine")
        session.step()
    assert "of mine" in printed_by("report", path, "--by", "op")
    trace = tmp_path / "trace.json"
    printed_by("trace", path, "-o", trace)
    assert {"of mine", "ProfilerStep#1"} <= traced(trace)
