"""Recomputed work: by the numbers of autograd, by modules and by MegEngine's commands, against plain loops."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_reports import PUSH_POP, Made, thread

import bridge
from bridge.join.grammar import parse

# name, depth: a checkpointed layer runs again in the backward pass of both kinds of checkpoint.
CHECKPOINT = (
    ("aten::linear, seq = 1", 0),
    ("aten::addmm, seq = 1", 1),
    ("autograd::engine::evaluate_function: CheckpointFunctionBackward, seq = 1", 0),
    ("CheckpointFunctionBackward, seq = 1", 1),
    ("aten::detach", 2),
    ("aten::linear, seq = 2", 2),
    ("aten::addmm, seq = 3", 3),
    ("aten::relu, seq = 4", 2),
    ("AddmmBackward0, seq = 3", 2),
    ("aten::mm", 3),
    ("backward:Net.0", 0),
    ("module:Net.0", 1),
    ("aten::mul", 2),
    ("ReGen", 0),
    ("MatrixMul", 1),
    ("AutoEvict", 0),
)  # fmt: skip


def made(texts, path):
    """Make a report: range i begins at 100 i, ends with the last range in it, and launches a kernel of i + 1 ns."""
    report = Made()
    report.names_of(100)
    depths = [depth for _, depth in texts]
    for i, (text, depth) in enumerate(texts):
        inner = next((j for j in range(i + 1, len(texts)) if depths[j] <= depth), len(texts))
        start, end = 10_000 + 1_000 * i, 10_000 + 1_000 * inner - 10 * depth - 10
        report.annotation(PUSH_POP, start, end, text=text, thread=thread(100))
        report.kernel("k", start + 1, 100, start + 20, start + 21 + i)
    return bridge.load(report.written(path))


def table(report):
    rows = report.by("recompute")
    return {
        (op, kind): (calls, kernels, gpu)
        for op, kind, calls, kernels, gpu in zip(
            rows["op"], rows["kind"], rows["calls"], rows["kernels"], rows["gpu_ns"], strict=True
        )
    }


def test_a_checkpoint_a_module_and_a_tensor(tmp_path):
    assert table(made(CHECKPOINT, tmp_path / "r.sqlite")) == {
        ("aten::linear", "recomputation"): (1, 2, 6 + 7),
        ("aten::relu", "recomputation"): (1, 1, 8),
        ("module:Net.0", "recomputation"): (1, 2, 12 + 13),
        ("ReGen", "recomputation"): (1, 2, 14 + 15),
        ("AutoEvict", "eviction"): (1, 1, 16),
    }


def brute(texts):
    """Walk the ranges with a stack: name, whether backward is around, and what computes again."""
    result: dict[tuple[str, str], list[int]] = {}
    stack: list[tuple[int, bool, tuple[str, str] | None]] = []
    for i, (text, depth) in enumerate(texts):
        stack = stack[:depth]
        in_backward = any(backward for _, backward, _ in stack)
        owner = stack[-1][2] if stack else None
        reading = parse(text)
        again = (
            in_backward
            and not reading.backward
            and (", seq = " in text or text.startswith("module:"))
        )
        if owner is None and (again or text == "ReGen"):
            owner = (reading.op, "recomputation")
            result.setdefault(owner, [0, 0, 0])[0] += 1
        stack.append((i, reading.backward, owner))
        if owner is not None:
            result[owner][1] += 1
            result[owner][2] += i + 1
    return {key: tuple(values) for key, values in result.items()}


NAMES = (
    "aten::mm, seq = 1",
    "aten::mm",
    "MmBackward0, seq = 1",
    "module:a",
    "backward:a",
    "ReGen",
    "other",
)


@pytest.mark.slow
@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), min_size=1, max_size=12))
def test_against_a_stack(tmp_path_factory, drawn):
    texts, depth = [], -1
    for name, wanted in drawn:
        depth = min(wanted, depth + 1)  # a range is at most one deeper than that before
        texts.append((name, depth))
    assert table(made(texts, tmp_path_factory.mktemp("r") / "r.sqlite")) == brute(texts)


def test_none_is_a_line_that_tells_how_to_see_it(tmp_path):
    report = made((("aten::mm, seq = 1", 0),), tmp_path / "r.sqlite")
    assert not len(report.by("recompute"))
    assert "sequence numbers" in report.nothing("recompute")
