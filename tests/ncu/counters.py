"""A timeline and what Nsight Compute counted of it, both of our own making: ops of a step, kernels of two kinds."""

from __future__ import annotations

from pathlib import Path

from made_ncu import DURATION, details, kernel, raw
from made_reports import PUSH_POP, Made, thread

NS = 1_000
OPS = (("gemm", 8), ("add", 16), ("gemm", 8))  # a kernel each, and its blocks
RULE = (
    "Launch",
    "LaunchConfiguration",
    "OPT",
    "Too few blocks. Launch more of them.",
    "global",
    "50",
)
LOCAL = ("Scheduler", "IssueSlots", "OPT", "A unit is slow.", "local", "90")


def timeline(path: Path, steps: int = 2, *, waits: bool = False) -> Path:
    """A report of nsys: in each step an op per kernel, and a copy; ``waits``: the host waits for each kernel."""
    made = Made()
    made.names_of(100)
    for step in range(steps):
        begin = (step + 1) * 100 * NS
        made.annotation(PUSH_POP, begin, begin + 90 * NS, text=f"step {step}", thread=thread(100))
        for place, (name, blocks) in enumerate(OPS):
            at = begin + (place + 1) * 20 * NS
            made.annotation(PUSH_POP, at, at + 9 * NS, text=f"op_{name}", thread=thread(100))
            names = {"name": made.string(name), "full_name": made.string(f"void {name}(float *)")}
            extent = {"grid_x": blocks, "block_x": 128}
            extent |= {f"{what}_{axis}": 1 for what in ("grid", "block") for axis in "yz"}
            made.launched(
                "kernels", at + NS, 100, at + 2 * NS, at + (5 + place) * NS, **names, **extent
            )
            if waits:
                made.tables["launches"].append(
                    {
                        **made.tables["launches"][-1],
                        "start": at + NS + 10,
                        "end": at + (5 + place) * NS + 100,
                        "correlation": 1_000 + made.correlation,
                        "name": made.string("cudaDeviceSynchronize"),
                    }
                )
    return made.written(path)


def flops(nth: int) -> dict[str, tuple[str, str]]:
    """Instructions of the n-th kernel, which compute (nth + 1) * 40 FLOPs."""
    each = {"fadd": 10, "fmul": 10, "ffma": 10}
    return {
        f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum": (str(n * (nth + 1)), "inst")
        for op, n in each.items()
    }


def counted(nth: int) -> dict[str, tuple[str, str]]:
    """All that is counted of the n-th kernel."""
    return {
        DURATION: (str(1_000 * (nth + 1)), "ns"),
        "sm__warps_active.avg.pct_of_peak_sustained_active": (f"{10.25 + nth}", "%"),
        "launch__func_cache_config": ("CachePreferNone", ""),
        "big.sum": (str(2**60 + nth), "inst"),
        "dram__bytes.sum": (str(10 * (nth + 1)), "byte"),
        "lts__t_bytes.sum": (str(20 * (nth + 1)), "byte"),
        "l1tex__t_bytes.sum": (str(40 * (nth + 1)), "byte"),
        **flops(nth),
    }


def counters(path: Path, steps: int = 1, *, only: str = "") -> Path:
    """The raw page of ncu of the same kernels; those with ``only`` in the names of their metrics."""
    rows = []
    for step in range(steps):
        for place, (name, blocks) in enumerate(OPS):
            metrics = {n: v for n, v in counted(step * len(OPS) + place).items() if only in n}
            pushed = [f"step {step}", f"op_{name}"]
            rows.append(
                kernel(f"void {name}(float*)", pushed=pushed, grid=(blocks, 1, 1), metrics=metrics)
            )
    path.write_text(raw(rows), encoding="utf-8")
    return path


def advised(path: Path) -> Path:
    """The details page of the first step, with rules."""
    rows = [
        kernel(f"void {name}(float*)", pushed=["step 0", f"op_{name}"], grid=(blocks, 1, 1))
        | {"metrics": {("SOL", "Duration"): ("3", "usecond"), ("SOL", "Waves Per SM"): ("0.5", "")}}
        for name, blocks in OPS
    ]
    path.write_text(details(rows, rules=[RULE, LOCAL], nvtx=True), encoding="utf-8")
    return path
