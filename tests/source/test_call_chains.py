"""Call stacks as a tree: against the stacks themselves, from made exports and from real ones."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_reports import PUSH_POP, Made, changed, process, thread

from bridge import importers
from bridge.importers.call_chains import (
    CallChains,
    Frame,
    concat,
    nodes_of,
    python_frame,
    recorded_frame,
    tree,
)
from bridge.importers.capture import Capture

STACKS = {"call_chains", "chain"}
LAUNCH = ("cudaLaunchKernel", "/lib/libcudart.so.12")
FRAMES = [Frame(name, f"/{name}.so") for name in "abcd"]


def stack_of(chains: CallChains, node: int) -> list[tuple[str, str, int]]:
    """Walk up from a node, the innermost frame first."""
    result = []
    while node != -1:
        nodes = chains.nodes
        result.append((nodes.function[node], nodes.file[node], int(nodes.line[node])))
        node = int(nodes.parent[node])
    return result


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), max_size=8), st.randoms())
def test_a_tree_holds_the_stacks_and_each_node_once(stacks, shuffled):
    rows = [(c, d, f) for c, stack in enumerate(stacks) for d, f in enumerate(stack)]
    shuffled.shuffle(rows)
    chain, depth, frame = np.array(rows, np.int64).reshape(-1, 3).T
    made = tree(chain, depth, frame, len(stacks))
    chains = CallChains(nodes_of(made.parent, made.frame, FRAMES))
    told = [stack_of(chains, int(leaf)) for leaf in made.leaf]
    assert told == [[(FRAMES[f].function, FRAMES[f].file, -1) for f in stack] for stack in stacks]
    callers = {tuple(stack[at:]) for stack in stacks for at in range(len(stack))}
    assert len(made.parent) == len(callers)
    assert (made.parent < np.arange(len(made.parent))).all()


@pytest.mark.parametrize(
    ("text", "function", "file", "line"),
    [
        ("/home/me/train.py(12): step", "step", "/home/me/train.py", 12),
        (
            "torch/nn/modules/module.py(1501): _call_impl",
            "_call_impl",
            "torch/nn/modules/module.py",
            1501,
        ),
        ("[Python] step at train.py:7", "step", "train.py", 7),
        ("step (train.py:7)", "step", "train.py", 7),
        ("<frozen runpy>(88): _run_code", "_run_code", "<frozen runpy>", 88),
    ],
)
def test_texts_that_name_a_frame_of_python(text, function, file, line):
    assert python_frame(text) == Frame(function, file, line, python=True)


def test_other_texts_name_none():
    for text in (
        "nn.Module: Linear_0",
        "<built-in method mm of type object at 0x7f>",
        "aten::mm",
        "",
    ):
        assert python_frame(text) is None


def test_symbols_are_written_as_in_html_and_addresses_are_no_names():
    assert recorded_frame("&lt;module&gt;", "/a/b.so") == Frame("<module>", "/a/b.so")
    assert recorded_frame("0x7f12", "/a/b.so", resolved=False) == Frame("", "/a/b.so")
    assert recorded_frame("[Python] step", "/a/train.py") == Frame(
        "step", "/a/train.py", -1, python=True
    )


def made(path: Path, **more: object) -> Capture:
    """Write and read two processes whose calls share one stack, and a call each of other sorts."""
    report = Made()
    report.stack(7, LAUNCH, ("f", "/app"), ("main", "/app"))
    report.stack(9, ("0x12", "/app", 1), ("main", "/app"))
    for pid, chain in ((100, 7), (101, 7), (100, 9), (100, 0), (100, None)):
        report.kernel("k", 10 * len(report.tables["launches"]), pid, 1_000, 1_010)
        report.tables["launches"][-1]["chain"] = chain  # type: ignore[index]
    report.written(path)
    return importers.load(path, details=STACKS)


def test_calls_of_two_processes_share_a_stack(tmp_path):
    chains = made(tmp_path / "a.sqlite").chains
    first = [(*LAUNCH, -1), ("f", "/app", -1), ("main", "/app", -1)]
    assert [stack_of(chains, int(node)) for node in chains.launch] == [
        first, first, [("", "/app", -1), ("main", "/app", -1)], [], [],
    ]  # fmt: skip
    assert len(chains.nodes) == 4


def test_stacks_are_read_only_on_request(tmp_path):
    made(tmp_path / "a.sqlite")
    for details in (True, False, {"waits"}):
        assert not importers.load(tmp_path / "a.sqlite", details=details).chains
    assert importers.load(tmp_path / "a.sqlite", details={importers.EVERY, *STACKS}).chains


def test_an_export_without_stacks_and_one_whose_table_is_another(tmp_path):
    Made().written(tmp_path / "no.sqlite")
    report = Made()
    report.kernel("k", 0, 100, 10, 20)
    report.written(tmp_path / "a.sqlite")
    changed(tmp_path / "a.sqlite", "CREATE TABLE CUDA_CALLCHAINS (id INTEGER, stackFrames TEXT)")
    assert not importers.load(tmp_path / "a.sqlite", details=STACKS).chains


def test_several_reports_keep_their_stacks_apart(tmp_path):
    one = made(tmp_path / "a.sqlite")
    (other := Made()).kernel("k", 0, 100, 10, 20)
    other.written(tmp_path / "b.sqlite")
    made(tmp_path / "c.sqlite")
    paths = [tmp_path / f"{name}.sqlite" for name in "abc"]
    chains = importers.load(*paths, details=STACKS).chains
    told = [stack_of(chains, int(node)) for node in chains.launch]
    of_one = [stack_of(one.chains, int(node)) for node in one.chains.launch]
    assert told == [*of_one, [], *of_one]
    assert not concat([CallChains(), CallChains()], [(1, 0, 0), (2, 0, 0)], [0, 1])


def with_payload(path: Path, *, columns: bool = True) -> Path:
    """Write calls on two threads with marks of `--python-backtrace=cuda` after them."""
    report, names = Made(), {}
    for name in ("leaf", "/home/me/train.py", "&lt;module&gt;"):
        names[name] = report.string(name)
    report.annotation(75, 1, None, text="Python Backtrace", domain=4, thread=thread(100))
    for number, at in enumerate((100, 200, 300)):
        report.kernel(f"k{number}", at, 100, at + 50, at + 60, by=1 + number % 2)
    frames = [
        (names["leaf"], names["/home/me/train.py"], 4),
        (names["&lt;module&gt;"], names["/home/me/train.py"], 9),
    ]
    payload = b"\1".ljust(16, b"\0") + b"".join(struct.pack("<qqq", *frame) for frame in frames)
    for at, by in ((104, 1), (106, 1), (50, 2), (310, 1)):
        report.annotation(34, at, None, domain=4, thread=thread(100, by))
    report.annotation(34, 205, None, domain=5, thread=thread(100, 2))  # of another domain
    report.annotation(PUSH_POP, 1, 900, text="op", thread=thread(100))
    report.written(path)
    with sqlite3.connect(path) as connection:
        if columns:
            connection.execute(
                "UPDATE NVTX_EVENTS SET binaryData = ? WHERE eventType = 34", (payload,)
            )
        else:
            connection.execute("ALTER TABLE NVTX_EVENTS DROP COLUMN binaryData")
    connection.close()
    return path


def test_python_stacks_belong_to_the_call_before_them_on_their_thread(tmp_path):
    chains = importers.load(with_payload(tmp_path / "a.sqlite"), details=STACKS).chains
    stack = [("leaf", "/home/me/train.py", 4), ("<module>", "/home/me/train.py", 9)]
    assert [stack_of(chains, int(node)) for node in chains.launch] == [stack, [], stack]
    assert chains.nodes["python"].all()
    assert not importers.load(
        with_payload(tmp_path / "b.sqlite", columns=False), details=STACKS
    ).chains


def test_samples_and_calls_of_the_system_have_stacks_of_their_own(tmp_path):
    report = Made()
    report.kernel("k", 0, 100, 10, 20)
    for table, name in (("system_call_chains", "__read"), ("sample_chains", "leaf")):
        row = {"chain": 3, "depth": 0, "symbol": report.string(name), "module": report.string("/m")}
        report.tables[table].append(row)
    call = {"start": 1, "end": 5, "thread": thread(100), "name": report.string("read")}
    report.tables["system_calls"] += [{**call, "chain": 3}, {**call, "chain": 0}]
    report.tables["samples"].append({"time": 7, "thread": thread(100, 2), "chain": 3})
    report.written(tmp_path / "a.sqlite")
    details = {"system_calls", "chain", "system_call_chains", "samples"}
    chains = importers.load(tmp_path / "a.sqlite", details=details).chains
    assert [stack_of(chains, int(node)) for node in chains.system_call] == [
        [("__read", "/m", -1)],
        [],
    ]
    [sample] = chains.samples.to_pandas().to_dict("records")
    assert (sample["time"], sample["thread"], sample["process"]) == (
        7,
        thread(100, 2),
        process(100),
    )
    assert stack_of(chains, sample["chain"]) == [("leaf", "/m", -1)]
