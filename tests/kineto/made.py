"""Traces of our own making."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

PID, TID = 4242, 4243
AS_WRITTEN = ("event_id", "cuda_sync_kind", "autograd_phase")  # all else has blanks


def event(cat: str, name: str, ts: Any, dur: Any, /, **args: Any) -> dict[str, Any]:
    where = {"pid": args.pop("pid", PID), "tid": args.pop("tid", TID)}
    said = {key if key in AS_WRITTEN else key.replace("_", " "): v for key, v in args.items()}
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, **where, "args": said}


def op(name: str, ts: Any, dur: Any, **args: Any) -> dict[str, Any]:
    return event("cpu_op", name, ts, dur, **args)


def call(ts: Any, dur: Any, correlation: Any, **args: Any) -> dict[str, Any]:
    return event("cuda_runtime", "cudaLaunchKernel", ts, dur, correlation=correlation, **args)


def kernel(name: str, ts: Any, dur: Any, correlation: Any, /, **args: Any) -> dict[str, Any]:
    where = {"pid": 0, "tid": 7, "device": 0, "context": 1, "stream": 7}
    return event("kernel", name, ts, dur, **{**where, "correlation": correlation, **args})


def small() -> list[dict[str, Any]]:
    """An op in an annotation, with one kernel."""
    return [
        event("user_annotation", "ProfilerStep#3", "10.500", "90.000"),
        op("aten::mm", "20.001", "50.000", External_id=5, Sequence_number=7, Input_Dims=[[2, 3], [3, 4]]),
        call("30.000", "5.000", 9),
        kernel("void ns::gemm<float>(float*)", "60.000", "12.345", 9, grid=[4, 2, 1], block=[128, 1, 1]),
    ]  # fmt: skip


def trace(events: list[Any], **head: Any) -> dict[str, Any]:
    return {"schemaVersion": 1, **head, "traceEvents": events}


def write(path: Path, content: Any) -> Path:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path
