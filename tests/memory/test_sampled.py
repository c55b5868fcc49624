"""Samples of memory in a recording, against a plain loop over what the allocator was asked for."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path

import pytest
from command import assert_misused, assert_refused, bridge, done
from sampling.fakes import Torch, release

import bridge as nsight_bridge
from bridge.annotate import nvtx_op

STEPS = 3


@pytest.fixture
def recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list[tuple[str, int, int, int]]]:
    """Run a program on a fake GPU; return its recording, and (op, step, GPU 0, GPU 1) at the end of each op."""
    torch = Torch(devices=2)
    monkeypatch.setitem(sys.modules, "torch", torch)
    truth = []
    path = tmp_path / "run.jsonl"
    schedule = nsight_bridge.schedule(wait=0, warmup=0, active=STEPS)
    with nsight_bridge.profile(level=0, sample_rate=1, path=path, schedule=schedule) as session:
        for step in range(STEPS):
            held = []
            for op, size, gpu in (
                ("conv", 700 * (step + 1), 0),
                ("dense", 9000, 1),
                ("conv", 100, 0),
            ):
                with nvtx_op(op):
                    held.append(torch.allocate(size, gpu))
                truth.append((op, step, torch.allocated(0), torch.allocated(1)))
            for block in held[step % 2 :]:
                release(block)
            session.step()
    return path, truth


def rows(path: Path, by: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(
        done("memory", path, "--by", by, "--format", "json")
    )["rows"]
    return found


@pytest.mark.slow
def test_every_sample_has_its_op_and_step(
    recorded: tuple[Path, list[tuple[str, int, int, int]]],
) -> None:
    path, truth = recorded
    samples = rows(path, "trace")
    for gpu in (0, 1):
        own = [r for r in samples if r["device"] == f"cuda:{gpu}"]
        assert [r["trace"] for r in own] == list(range(len(own)))
        assert [r["time_ns"] for r in own] == sorted(r["time_ns"] for r in own)
        of_ops = [
            (r["op"], r["step"], r["used_bytes"]) for r in own if r["op"] in {"conv", "dense"}
        ]
        assert of_ops == [(op, step, used[gpu]) for op, step, *used in truth]
        assert {r["reserved_bytes"] for r in own} == {1 << 20}
    assert {r["reserved_bytes"] for r in samples if r["device"] == "host"} == {-1}


@pytest.mark.slow
def test_samples_of_several_threads_are_in_order_of_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = Torch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    path = tmp_path / "run.jsonl"
    turn = threading.Barrier(2)

    def work() -> None:
        for _ in range(20):
            turn.wait()
            with nvtx_op("a"):
                torch.allocate(1)

    with nsight_bridge.profile(level=0, sample_rate=1, path=path):
        threads = [threading.Thread(target=work) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    samples = [r for r in rows(path, "trace") if r["device"] == "cuda:0"]
    assert [r["trace"] for r in samples] == list(range(len(samples)))
    assert [r["time_ns"] for r in samples] == sorted(r["time_ns"] for r in samples)
    assert {r["reserved_bytes"] for r in samples} == {1 << 20}
    assert len(samples) >= 40


def test_peaks_are_the_greatest_samples(
    recorded: tuple[Path, list[tuple[str, int, int, int]]],
) -> None:
    path, truth = recorded
    peaks = {r["device"]: r for r in rows(path, "summary")}
    for gpu in (0, 1):
        most = max(row[2 + gpu] for row in truth)
        op, step = next(row[:2] for row in truth if row[2 + gpu] == most)
        found = peaks[f"cuda:{gpu}"]
        assert (found["peak_bytes"], found["peak_op"], found["peak_step"]) == (most, op, step)
        assert found["peak_reserved_bytes"] == 1 << 20
    by_op = {(r["op"], r["device"]): r for r in rows(path, "op")}
    for op in ("conv", "dense"):
        of_op = [row for row in truth if row[0] == op]
        for gpu in (0, 1):
            found = by_op[op, f"cuda:{gpu}"]
            assert found["samples"] == len(of_op)
            assert found["peak_bytes"] == max(row[2 + gpu] for row in of_op)


@pytest.mark.slow
def test_it_is_said_in_a_line_and_a_table(
    recorded: tuple[Path, list[tuple[str, int, int, int]]],
) -> None:
    path, _ = recorded
    shown = done("memory", path, "--by", "summary")
    assert "cuda:0: peak at least" in shown
    assert "reserved at most 1.0 MiB" in shown
    assert "| dense | cuda:1 |" in done("memory", path, "--format", "md")
    assert done("memory", path, "--format", "csv").startswith("op,pid,device,samples,peak_bytes")


@pytest.mark.slow
@pytest.mark.parametrize("by", ["alive", "allocation", "step", "category", "scope"])
def test_what_only_allocations_tell_is_refused(
    recorded: tuple[Path, list[tuple[str, int, int, int]]], by: str
) -> None:
    assert_refused(bridge("memory", recorded[0], "--by", by), by, "samples of memory")


@pytest.mark.slow
def test_a_drawing_and_a_part_of_the_time_are_refused(
    recorded: tuple[Path, list[tuple[str, int, int, int]]], tmp_path: Path
) -> None:
    path, _ = recorded
    assert_refused(bridge("memory", path, "-o", tmp_path / "x.svg"), "no drawing")
    assert_refused(bridge("memory", path, "--step", "1"), "no part of the time")
    assert not (tmp_path / "x.svg").exists()


def test_without_either_it_says_how_to_record(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    with nsight_bridge.profile(level=0, path=path), nvtx_op("a"):
        pass
    assert_refused(bridge("memory", path), "no allocations", "sample_rate=1")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--later", "7"], "--later goes with --by step"),
        (["--color", "lifetime"], "--color goes with --flow"),
        (["--flow", "x.svg", "--timeline", "x.svg"], "given twice"),
    ],
)
def test_options_that_nothing_comes_of_are_refused(
    words: list[str], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "none.jsonl"
    with nsight_bridge.profile(level=0, path=path), nvtx_op("a"):
        pass
    assert_misused(bridge("memory", path, *words), says)
