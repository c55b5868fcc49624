"""`--by source` against plain loops over the stacks, and where else the line of a program is told."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from command import bridge as run
from command import done
from hypothesis import given
from hypothesis import strategies as st
from made_reports import PUSH_POP, Made, thread
from sarif_pydantic import Sarif

import bridge

LAUNCH = ("cudaLaunchKernel", "/lib/libcudart.so.12")
TORCH = ("at::native::launch", "/v/site-packages/torch/lib/libtorch_cuda.so")
LINEAR = ("[Python] /v/lib/python3.11/site-packages/torch/nn/modules/linear.py:116 forward", "")
STEP = ("[Python] /home/me/train.py:12 step", "")
MAIN = ("[Python] /home/me/train.py:40 main", "")
MINE, APP = ("mine", "/home/me/mine.so"), ("main", "/home/me/app")
STATIC = ("__cudart123", "/home/me/app")
UNKNOWN = ("0x12", "/home/me/app", 1)
BROKEN = ("[Broken backtraces]", "[Broken backtraces]")
# Of each frame the line that it stands for; None: it is of a library.
LINES = {
    LAUNCH: None, TORCH: None, LINEAR: None, STATIC: None, BROKEN: None,
    STEP: ("step", "/home/me/train.py:12", "python"), MAIN: ("main", "/home/me/train.py:40", "python"),
    MINE: ("mine", "/home/me/mine.so", "native"), APP: ("main", "/home/me/app", "native"),
    UNKNOWN: ("", "/home/me/app", "native"),
}  # fmt: skip
NO_CALL, NO_STACK, LIBRARIES = (
    ("", f"({text})", "") for text in ("no API call", "no call stack", "only library frames")
)


def line_of(stack: tuple[tuple[str, str], ...] | None) -> tuple[str, str, str]:
    """Look for the line of a stack, frame by frame."""
    if stack is None:
        return NO_STACK
    lines = [line for frame in stack if (line := LINES[frame])]
    of_python = [line for line in lines if line[2] == "python"]
    return next(iter([*of_python, *lines]), LIBRARIES)


def written(path: Path, calls: list[tuple[tuple[tuple[str, str], ...] | None, int, str]]) -> Path:
    """Write a report of calls: their stack, how many kernels of 10 ns each issues, and the op around them."""
    report, at = Made(), 1_000
    for number, (stack, kernels, op) in enumerate(calls, start=1):
        if stack:
            report.stack(number, *stack)
        if op:
            report.annotation(PUSH_POP, at, at + 50, text=op, thread=thread(100))
        report.kernel("k", at + 1, 100, at + 60, at + 70)
        report.tables["launches"][-1]["chain"] = number if stack else None
        if not kernels:
            report.tables["kernels"].pop()
        for more in range(1, kernels):
            row = {**report.tables["kernels"][-1], "start": at + 70 + more, "end": at + 80 + more}
            report.tables["kernels"].append(row)
        at += 100
    report.kernel("lost", -1, 100, at, at + 7)
    return report.written(path)


STACKS = st.lists(st.sampled_from(list(LINES)), min_size=1, max_size=4).map(tuple)
CALLS = st.tuples(st.none() | STACKS, st.integers(0, 2), st.sampled_from(["", "a", "b"]))


@pytest.mark.slow
@given(st.lists(CALLS, max_size=6))
def test_each_activity_and_each_call_is_in_one_row(tmp_path_factory, calls):
    path = written(tmp_path_factory.mktemp("made") / "a.sqlite", calls)
    truth: defaultdict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * 4)
    ops = defaultdict(set)
    for stack, kernels, op in calls:
        line = line_of(stack)
        for at, value in enumerate((kernels, 10 * kernels, 1, 5)):
            truth[line][at] += value
        ops[line] |= {op} if op and kernels else set()
    for at, value in enumerate((1, 7)):
        truth[NO_CALL][at] += value
    loaded = bridge.load(path)
    table = loaded.by("source")
    if all(not line[2] for line in truth):
        assert not len(table)
        assert "--cudabacktrace=all:1" in loaded.nothing("source")
        return
    figures = ["kernels", "gpu_ns", "api_calls", "api_ns"]
    told = table.set_index(["function", "source", "kind"])
    assert {
        key: list(row)
        for key, row in zip(told.index, told[figures].to_numpy().tolist(), strict=True)
    } == truth
    assert dict(zip(told.index, told["ops"], strict=True)) == {key: len(ops[key]) for key in truth}
    assert table["gpu_ns"].sum() == loaded.totals["gpu_ns"]
    by_both = loaded.by("stream,source").groupby(["function", "source"])["total_ns"].sum()
    assert by_both.sum() == loaded.totals["gpu_ns"]
    assert list(table["gpu_ns"]) == sorted(table["gpu_ns"], reverse=True)


@pytest.fixture
def sampled_stacks(tmp_path: Path) -> Path:
    calls = [
        ((LAUNCH, TORCH, LINEAR, STEP, MAIN), 2, "a"),
        ((LAUNCH, MINE, APP), 1, "a"),
        (None, 1, "b"),
    ]
    return written(tmp_path / "a.sqlite", calls)


def test_the_command_prints_it_with_names(sampled_stacks):
    document = json.loads(done("report", sampled_stacks, "--by", "source", "--format", "json"))
    first = document["rows"][0]
    assert (first["function"], first["source"], first["gpu_ns"]) == (
        "step",
        "/home/me/train.py:12",
        20,
    )
    assert sum(row["gpu_ns"] for row in document["rows"]) == document["totals"]["gpu_ns"]
    pairs = json.loads(done("report", sampled_stacks, "--by", "op,source", "--format", "json"))[
        "rows"
    ]
    assert (pairs[0]["op"], pairs[0]["source"], pairs[0]["count"]) == (
        "a",
        "/home/me/train.py:12",
        2,
    )


def test_without_stacks_one_line_says_what_to_record(tmp_path):
    path = written(tmp_path / "a.sqlite", [(None, 1, "a")])
    assert (
        "no call stacks of API calls in the report; record them"
        in run("report", path, "--by", "source").output
    )


def test_a_run_of_the_store_keeps_no_stacks(sampled_stacks, tmp_path):
    done("import", sampled_stacks, "--db", tmp_path / "a.db")
    told = run("report", "--db", tmp_path / "a.db", "--by", "source").output
    assert "a run of the store keeps no call stacks; give the file of the report" in told


def test_why_tells_the_line_and_the_stack(sampled_stacks):
    told = done("why", sampled_stacks, "#0")
    assert "  from step at /home/me/train.py:12\n  call stack, the innermost frame first:\n" in told
    assert "    forward at /v/lib/python3.11/site-packages/torch/nn/modules/linear.py:116\n" in told
    source = json.loads(done("why", sampled_stacks, "#0", "--format", "json"))["source"]
    assert (source["text"], source["kind"], len(source["stack"])) == (
        "/home/me/train.py:12",
        "python",
        5,
    )
    assert json.loads(done("why", sampled_stacks, "#3", "--format", "json"))["source"] is None


def test_traces_tell_the_line_of_calls_that_have_one(sampled_stacks, tmp_path):
    done("trace", sampled_stacks, "-o", tmp_path / "a.json")
    events = json.loads((tmp_path / "a.json").read_text())["traceEvents"]
    told = [event["args"].get("source") for event in events if event.get("cat") == "api"]
    assert told == ["/home/me/train.py:12 step", "/home/me/mine.so mine", None]


def test_findings_are_at_the_line_in_sarif(tmp_path, monkeypatch):
    stack = (LAUNCH, TORCH, LINEAR, STEP, MAIN)
    report = written(tmp_path / "a.sqlite", [(stack, 1, ""), (None, 1, "a")])
    monkeypatch.setenv("SRCROOT", "/home/me")
    text = done("advise", report, "--format", "sarif", "--over", "0%")
    [checked] = Sarif.model_validate_json(text).runs
    results = json.loads(text)["runs"][0]["results"]
    [place] = next(one for one in results if "relatedLocations" in one)["locations"]
    assert place["physicalLocation"] == {
        "artifactLocation": {"uri": "train.py", "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": 12},
    }
    assert len(checked.results) == len(results)
    assert "called from step at /home/me/train.py:12" in done("advise", report, "--over", "0%")
