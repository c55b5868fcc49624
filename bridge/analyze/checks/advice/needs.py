"""Data that checks need, how to detect and record it; and rules about the capture itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from bridge.analyze.checks.advice import rule
from bridge.analyze.checks.advice.facts import Evidence
from bridge.analyze.checks.advice.rule import NSIGHT_BRIDGE, Finding
from bridge.analyze.checks.check import Check
from bridge.analyze.core import no_timeline
from bridge.analyze.core.call_details import input_shapes
from bridge.importers import frames
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints
from bridge.join.attribution import NO_RANGE


@record
class Need:
    """Data that a check reads.

    ``missing`` is its name where it is missing, ``record`` what records it, ``is_met`` whether it
    is there.
    """

    missing: str
    record: str
    is_met: Callable[[Evidence], bool]


GPU_DESCRIPTION = "an export that describes its GPUs, as that of nsys itself does"
TRACE = "nsys profile --trace=cuda,nvtx"
ANNOTATE = f"{TRACE}, and @nvtx_op or bridge.torch.annotate(model) in the program"


def _work(evidence: Evidence) -> bool:
    return bool(evidence.counted.any())


def _kernels(evidence: Evidence) -> bool:
    return bool(evidence.kernels.any())


def _calls(evidence: Evidence) -> bool:
    return len(evidence.capture.launches) > 0


def _results(evidence: Evidence) -> bool:
    return bool((evidence.capture.launches.result != NONE).any())


def _ops(evidence: Evidence) -> bool:
    return bool((evidence.attributed.op != NONE).any())


def _pytorch(evidence: Evidence) -> bool:
    return any(name.startswith("aten::") for name in evidence.attributed.ops)


def _steps(evidence: Evidence) -> bool:
    return len(evidence.attributed.iterations) > 0


def _geometry(evidence: Evidence) -> bool:
    grids = (evidence.capture.activities.grid_x > 0).any()
    return bool(grids and (evidence.capture.devices.sm_count > 0).any())


def _capability(evidence: Evidence) -> bool:
    return bool((evidence.capture.devices.compute_major > 0).any())


def _memory_kinds(evidence: Evidence) -> bool:
    copies = evidence.is_kind(frames.MEMCPY)
    is_known = evidence.capture.activities.source_kind[copies] != NONE
    return bool(is_known.any()) or not copies.any()


def _shapes(evidence: Evidence) -> bool:
    code, names = input_shapes(evidence.attributed)
    has_shapes = np.array([*(name != "" for name in names), False], bool)
    return bool(has_shapes[code].any())


def _memory(evidence: Evidence) -> bool:
    return bool(len(evidence.memory_samples))


def _counters(evidence: Evidence) -> bool:
    return len(evidence.capture.metrics.rules) > 0


def _device_memory(evidence: Evidence) -> bool:
    return bool((evidence.capture.devices.memory_bytes > 0).any())


WORK = "work"
ON_GPU = frozenset(
    [WORK, "kernels", "calls", "geometry", "capability", "device memory"]
)  # needs that fail where nothing ran on a GPU
TIMELINE = Need("a timeline", f"{TRACE}, and this report beside it with --ncu", lambda _: True)
NEEDS: Mapping[str, Need] = {
    WORK: Need("work on a GPU", f"{TRACE} of a program that uses a GPU", _work),
    "kernels": Need("kernels", TRACE, _kernels),
    "calls": Need("CUDA API calls", TRACE, _calls),
    "results": Need("what CUDA API calls returned", TRACE, _results),
    "ops": Need("ops", ANNOTATE, _ops),
    "pytorch": Need(
        "ops of PyTorch",
        f"{TRACE}, and torch.autograd.profiler.emit_nvtx() or bridge.torch.ops() in the program",
        _pytorch,
    ),
    "steps": Need(
        "steps",
        "bridge.profile(…).step() or ranges called step N in the program",
        _steps,
    ),
    "geometry": Need(
        "grids of kernels and the number of multiprocessors", GPU_DESCRIPTION, _geometry
    ),
    "capability": Need("the GPU's compute capability", GPU_DESCRIPTION, _capability),
    "memory kinds": Need(
        "kinds of the memory copied", f"{TRACE} of nsys 2021 or newer", _memory_kinds
    ),
    "shapes": Need(
        "input shapes",
        "emit_nvtx(record_shapes=True), bridge.torch.ops(shapes=True) or @nvtx_op(shapes=True)"
        " in the program",
        _shapes,
    ),
    "memory": Need(
        "samples of GPU memory",
        "bridge.profile(profile_memory=True) in the program",
        _memory,
    ),
    "counters": Need(
        "rules of Nsight Compute",
        "ncu --set full, of the same program, given with --ncu",
        _counters,
    ),
    "graph": Need(
        "clocks that can be compared",
        "ask for one report at a time",
        lambda evidence: evidence.has_graph,
    ),
    "device memory": Need("the size of the GPU's memory", GPU_DESCRIPTION, _device_memory),
}


class Recorded:
    """Which of the needs of checks a capture meets, each found out once."""

    def __init__(self, evidence: Evidence) -> None:
        self.has = cache(lambda name: NEEDS[name].is_met(evidence))
        self.timeline = no_timeline.has_timeline(evidence.capture)

    def lacks(self, check: Check[Any, Any]) -> Need | None:
        """Return the first need of a check that is not met; without work on a GPU that is the reason for all of them."""
        if check.timeline and not self.timeline:
            return TIMELINE
        unmet = [name for name in check.needs if not self.has(name)]
        if not ON_GPU.isdisjoint(unmet) and not self.has(WORK):
            return NEEDS[WORK]
        return NEEDS[unmet[0]] if unmet else None


# -- Rules about the capture


MIN_OUTSIDE = 0.1  # of the time of all activities


def opaque_graph_rows(evidence: Evidence) -> Ints:
    """Return the CUDA graphs that were recorded as a whole."""
    return np.flatnonzero(evidence.is_kind(frames.GRAPH))


def rows_outside_ops(evidence: Evidence) -> Ints:
    """Return the activities that were launched while no range was open."""
    return np.flatnonzero(evidence.counted & (evidence.attributed.attribution.reason == NO_RANGE))


def time_share(evidence: Evidence, rows: Ints) -> float:
    """Return the fraction of the time of all activities that these take."""
    return int(evidence.time[rows].sum()) / max(1, int(evidence.time[evidence.counted].sum()))


def opaque_graphs(evidence: Evidence) -> Finding | None:
    """Find CUDA graphs that were recorded as a whole."""
    rows = opaque_graph_rows(evidence)
    if not len(rows):
        return None
    share = time_share(evidence, rows)
    figures = {"graphs": len(rows), "work_share": share}
    return Finding(figures, rule.activity_table(evidence, rows), hidden_share=share)


def outside_ops(evidence: Evidence) -> Finding | None:
    """Find work launched while no range was open."""
    rows = rows_outside_ops(evidence)
    work_share = time_share(evidence, rows)
    if work_share <= MIN_OUTSIDE:
        return None
    figures = {"activities": len(rows), "work_share": work_share}
    return Finding(figures, rule.activity_table(evidence, rows))


RULES = (
    Check(
        name="opaque-graphs",
        title="CUDA graphs hide their kernels",
        when="a CUDA graph is recorded as a whole",
        text="CUDA graphs recorded as a whole: {graphs}, {work_share} of GPU time; their kernels are unknown",
        remedy="record the kernels of graphs: nsys profile --cuda-graph-trace=node",
        source=NSIGHT_BRIDGE,
        needs=("work",),
        find=opaque_graphs,
    ),
    Check(
        name="outside-ops",
        title="Much work is outside of ops",
        when=f"more than {MIN_OUTSIDE:.0%} of the time of all work was launched outside ops",
        text="{work_share} of GPU time was launched outside of ops",
        remedy="annotate it: @nvtx_op, bridge.torch.annotate(model); the command why explains an example",
        source=NSIGHT_BRIDGE,
        needs=("work", "calls", "ops"),
        find=outside_ops,
        remedy_elsewhere="annotate it: @nvtx_op in Python, NVTX ranges elsewhere; the command why explains an example",
    ),
)
