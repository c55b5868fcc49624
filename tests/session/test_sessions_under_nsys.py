"""A session under the real nsys: both record the active steps, and agree call by call."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import recorded_twice
from captures import exported, profiled, with_bridge

import bridge
from bridge import importers
from bridge.capture.session.control import DOMAIN, NAME
from bridge.importers.capture import Capture

ROOT = Path(bridge.__file__).parent.parent
CYCLES = 2
NEAR_NS = 1_000_000  # that two looks at one range may differ by, on a busy machine


@pytest.fixture(scope="module")
def cycles(nsys: str, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Capture, Capture]]:
    """Give what nsys and the session have recorded of each cycle that nsys was to capture."""
    folder = tmp_path_factory.mktemp("nsys")
    profile(nsys, folder)
    captured = [
        importers.load(exported(nsys, written)) for written in sorted(folder.glob("*.nsys-rep"))
    ]
    assert len(captured) == CYCLES
    own = [folder / name for name in ("own.jsonl", "own-2.jsonl", "own-3.jsonl")]
    return list(zip(captured, map(importers.load, own[:CYCLES]), strict=True))


def profile(nsys: str, folder: Path) -> None:
    options = ("-c", "nvtx", "-p", f"{NAME}@{DOMAIN}", f"--capture-range-end=repeat:{CYCLES}")
    program = (sys.executable, recorded_twice.__file__, folder / "own.jsonl")
    env = with_bridge(BRIDGE_NVTX="auto", BRIDGE_CAPTURE="")
    said = profiled(nsys, folder, *program, options=options, env=env)
    assert "to its end" in said
    assert len(list(folder.glob("own*.jsonl"))) == len(recorded_twice.ACTIVE)


def of_calls(report: Capture):
    """Give the ranges that are pushed and popped, in the order in which they began."""
    table = report.ranges.take(report.ranges.kind == "push_pop").to_pandas()
    return table.sort_values("start").reset_index(drop=True)


def parents(table) -> list[str | None]:
    """Give the name of the range around each."""
    found = []
    for one in table.itertuples():
        around = table[(table["start"] < one.start) & (table["end"] > one.end)]
        found.append(None if around.empty else around.loc[around["start"].idxmax(), "name"])
    return found


@pytest.mark.slow
def test_both_hold_exactly_the_active_steps(cycles):
    for active, reports in zip(recorded_twice.ACTIVE, cycles, strict=False):
        for report in reports:
            names = of_calls(report)["name"]
            steps = [name for name in names if name.startswith("ProfilerStep#")]
            assert steps == [f"ProfilerStep#{step}" for step in active]
            assert (names == "outer").sum() == len(active)
            assert report.marks["payload"].tolist() == active


@pytest.mark.slow
def test_they_agree_call_by_call(cycles):
    for profiler, own in cycles:
        theirs, ours = of_calls(profiler), of_calls(own)
        for column in ("name", "payload", "domain_name", "color", "open"):
            assert theirs[column].tolist() == ours[column].tolist(), column
        assert ours["payload"].is_unique
        assert parents(theirs) == parents(ours)
        assert {"outer", "block", "inner"} <= set(ours["name"])


def test_their_durations_and_distances_agree(cycles):
    for profiler, own in cycles:
        theirs, ours = of_calls(profiler), of_calls(own)
        durations = [np.asarray(table["end"] - table["start"]) for table in (theirs, ours)]
        assert np.abs(durations[0] - durations[1]).max() < NEAR_NS
        starts = [np.asarray(table["start"] - table["start"][0]) for table in (theirs, ours)]
        assert np.abs(starts[0] - starts[1]).max() < NEAR_NS
