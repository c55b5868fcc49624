"""The work, the ranges and the device times in a trace of PyTorch, by loops over its JSON."""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path

import numpy as np
from real_parts import NIGHT

NAMES = (
    "alexnet", "gpu-user-annotation", "llm-ns-resolution", "resnet50-workers0", "resnet50-workers4", "sampled-rank0",
)  # fmt: skip
SOME = NAMES if NIGHT else ("alexnet", "gpu-user-annotation", "sampled-rank0")
WITH_IDS = ("llm-ns-resolution", "resnet50-workers0", "resnet50-workers4")  # where they are an op's
RANGES = ("cpu_op", "user_annotation", "Operator")
ENGINE = re.compile(r"Backward\d*$|AccumulateGrad|CopySlices|evaluate_function")
CALLS = ("cuda_runtime", "cuda_driver", "Runtime")
KERNELS, COPIES, FILLS = ("kernel", "Kernel"), ("gpu_memcpy", "Memcpy"), ("gpu_memset", "Memset")


def path(corpus: Path, name: str) -> Path:
    return corpus / "kineto" / f"{name}.pt.trace.json.gz"


def events(file: Path) -> list[dict]:
    data = file.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    return json.loads(text, parse_float=Decimal)["traceEvents"]


def of(found: list[dict], categories: tuple[str, ...]) -> list[dict]:
    return [e for e in found if e.get("ph") == "X" and e.get("cat") in categories]


def ns(value: int | Decimal | str) -> int:
    exact = Decimal(value) * 1000
    assert exact == int(exact)
    return int(exact)


def totals(found: list[dict]) -> dict[str, tuple[int, int, int, int]]:
    """Count, sum, min and max of the lengths per name, in ns."""
    lengths = defaultdict(list)
    for event in found:
        lengths[event["name"]].append(ns(event["dur"]))
    return {name: (len(all_), sum(all_), min(all_), max(all_)) for name, all_ in lengths.items()}


def external(event: dict) -> int:
    args = event["args"]
    return args.get("External id", args.get("external id", 0))


def stacks(found: list[dict]) -> dict[int, list[dict]]:
    """Return the ranges around each call, outermost first, by the call's correlation id."""
    threads = defaultdict(list)
    for event in of(found, RANGES):
        threads[int(event["tid"])].append(
            (ns(event["ts"]), ns(event["ts"]) + ns(event["dur"]), event)
        )
    spans = {tid: np.array([one[:2] for one in every]).T for tid, every in threads.items()}
    around = {}
    for call in sorted(of(found, CALLS), key=lambda e: ns(e["ts"]), reverse=True):
        at, tid = ns(call["ts"]), int(call["tid"])
        start, end = spans.get(tid, np.empty((2, 0)))
        rows = np.flatnonzero((start <= at) & (at < end)).tolist()
        rows.sort(key=lambda row: (start[row], -end[row], row))
        stack = [threads[tid][row] for row in rows]
        others = [every for other, every in threads.items() if other != tid]
        around[call["args"]["correlation"]] = [e for _, _, e in (*caller(stack, others), *stack)]
    return around


def is_of_library(event: dict) -> bool:
    return event["cat"] != "user_annotation" and not event["name"].startswith("ProfilerStep#")


def caller(stack: list[tuple], others: list[list[tuple]]) -> list[tuple]:
    """Return the ranges around a node of autograd on the one thread that waits for it."""
    if not stack or not ENGINE.search(stack[0][2]["name"]):
        return []
    start, end, node = stack[0]
    offers = []
    for every in others:
        around = [r for r in every if r[0] <= start and r[1] >= end and r[:2] != (start, end)]
        around = [r for r in around if r[2]["pid"] == node["pid"]]
        if around and not any(is_of_library(r[2]) for r in around):
            offers.append(sorted(around, key=lambda r: (r[0], -r[1])))
    if len(offers) > 1:
        offers = [o for o in offers if any("backward" in r[2]["name"].lower() for r in o)]
    return offers[0] if len(offers) == 1 else []


def device_times(found: list[dict]) -> tuple[Counter, Counter, Counter]:
    """Return the number of kernels, the self and the total device time of each op, in ns, by containment."""
    around = stacks(found)
    kernels, own, total = Counter(), Counter(), Counter()
    for event in of(found, KERNELS + COPIES + FILLS):
        stack = around.get(event["args"]["correlation"], [])
        names = ["ProfilerStep" if e["name"].startswith("ProfilerStep#") else e["name"] for e in stack]  # fmt: skip
        if names:
            kernels[names[-1]] += event["cat"] in KERNELS
            own[names[-1]] += ns(event["dur"])
            total.update(dict.fromkeys(names, ns(event["dur"])))
    return kernels, own, total
