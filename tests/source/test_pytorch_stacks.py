"""Stacks of PyTorch's profiler: functions as events, and `Call stack` of older versions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bridge


def event(
    category: str, name: str, at: int, long: int, thread: int = 1, **args: Any
) -> dict[str, Any]:
    where = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 9, "tid": thread}
    return {"ph": "X", "cat": category, "name": name, "ts": at, "dur": long, **where, "args": args}


def launched(at: int, number: int, thread: int = 1) -> list[dict[str, Any]]:
    kernel = {"correlation": number, "device": 0, "stream": 7, "context": 1}
    return [
        event("cuda_runtime", "cudaLaunchKernel", at, 5, thread, correlation=number),
        event("kernel", "k", at + 100, 10 * number, **kernel),
    ]


def rows(path: Path, events: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    path.write_text(json.dumps({"schemaVersion": 1, "with_stack": 1, "traceEvents": events}))
    table = bridge.load(path).by("source")
    keys = zip(table["function"], table["source"], strict=True)
    return dict(zip(keys, table["gpu_ns"].tolist(), strict=True))


def test_the_innermost_function_of_the_program_counts(tmp_path):
    events = [
        event("python_function", "threading.py(1002): _bootstrap", 0, 10_000),
        event("python_function", "train.py(40): main", 1, 9_000),
        event("python_function", "/home/me/train.py(12): step", 10, 500),
        event("python_function", "nn.Module: Linear_0", 20, 300),
        event("python_function", "torch/nn/modules/linear.py(116): forward", 22, 290),
        event("python_function", "<built-in function linear>", 24, 280),
        event("cpu_op", "aten::linear", 30, 200),
        *launched(50, 1),
        *launched(1_000, 2),
        *launched(9_500, 3),
        *launched(60, 4, thread=2),
    ]
    assert rows(tmp_path / "a.json", events) == {
        ("step", "/home/me/train.py:12"): 10_000,
        ("main", "train.py:40"): 20_000,
        ("", "(only library frames)"): 30_000,
        ("", "(no call stack)"): 40_000,
    }


def test_the_call_stack_of_an_op_counts_for_what_it_calls(tmp_path):
    stack = "torch/functional.py(5): einsum;/home/me/old.py(77): loop;train.py(1): <module>;"
    events = [
        event("cpu_op", "aten::einsum", 0, 300, **{"Call stack": stack}),
        event("cpu_op", "aten::bmm", 10, 200),
        *launched(50, 1),
        event("cpu_op", "aten::add", 1_000, 100),
        *launched(1_050, 2),
    ]
    assert rows(tmp_path / "a.json", events) == {
        ("loop", "/home/me/old.py:77"): 10_000,
        ("", "(no call stack)"): 20_000,
    }
