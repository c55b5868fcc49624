"""Samples of the CPU by function, and those that were taken while a GPU was idle."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from advice.rules import gap
from made_reports import thread

from bridge.report import load

MS = 1_000_000


def report(folder: Path):
    """Return a report with 5 ms of idle time before its last launches, and samples of two threads."""
    story = gap(5_000)
    [end] = [
        a["start"] for b, a in pairwise(story.tables["launches"]) if a["start"] - b["end"] > 4 * MS
    ]
    stacks = {  # the innermost frame first: function and module
        1: [("read", "/lib/libc.so.6"), ("decode", "/home/me/loader.so")],
        2: [("_PyEval_EvalFrameDefault", "/usr/lib/libpython3.11.so.1.0")],
    }
    for chain, stack in stacks.items():
        for depth, (symbol, module) in enumerate(stack):
            row = {"chain": chain, "depth": depth, "symbol": story.string(symbol)}
            story.tables["sample_chains"].append({**row, "module": story.string(module)})
    samples = [  # ms before the end of the gap, thread, chain
        *((at, 0, 1) for at in (4, 3, 2)),
        (1, 0, 2),
        (2, 1, 1),  # another thread, which launches nothing
        (-2, 0, 2),  # while the GPU works
        (3, 0, 9),  # without a stack
    ]
    for at, number, chain in samples:
        of = {"time": end - at * MS, "thread": thread(story.pid) + number, "chain": chain}
        story.tables["samples"].append(of)
    return load(story.written(folder / "sampled.sqlite"))


def test_samples_count_for_the_function_of_the_program(tmp_path: Path) -> None:
    table = report(tmp_path).by("sample")
    columns = ["function", "source", "of", "threads", "samples", "idle_samples"]
    assert table[columns].to_numpy().tolist() == [
        ["decode", "/home/me/loader.so", "program", 2, 4, 3],
        ["_PyEval_EvalFrameDefault", "/usr/lib/libpython3.11.so.1.0", "library", 1, 2, 1],
        ["", "(no call stack)", "library", 1, 1, 1],
    ]
    assert table["share"].sum() == pytest.approx(1)
    assert table["idle_share"].tolist() == [0.6, 0.2, 0.2]


def test_samples_are_of_the_whole_report(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="counted over the whole report: leave out --from"):
        report(tmp_path).within(first_ns=0).by("sample")
