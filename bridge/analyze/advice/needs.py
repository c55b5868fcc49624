"""What rules read, how to tell whether a report has it, and which capture would have it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from bridge.analyze.advice import rule
from bridge.analyze.advice.facts import Seen
from bridge.analyze.advice.rule import HERE, NOT_ESTIMATED, Finding, Rule
from bridge.analyze.tables import input_shapes
from bridge.join.arrays import NONE, Ints
from bridge.join.attribution import NO_RANGE
from importers import frames


@dataclass(frozen=True)
class Need:
    """Something that a rule reads: how it is called where it is missing, what records it, whether it is there."""

    missing: str
    record: str
    there: Callable[[Seen], bool]


DESCRIBED = "an export that describes its GPUs, as that of nsys itself does"
TRACE = "nsys profile --trace=cuda,nvtx"
ANNOTATE = f"{TRACE}, and @nvtx_op or bridge.torch.annotate(model) in the program"


def _work(seen: Seen) -> bool:
    return bool(seen.counted.any())


def _kernels(seen: Seen) -> bool:
    return bool(seen.kernels.any())


def _calls(seen: Seen) -> bool:
    return len(seen.report.launches) > 0


def _ops(seen: Seen) -> bool:
    return bool((seen.joined.op != NONE).any())


def _pytorch(seen: Seen) -> bool:
    return any(name.startswith("aten::") for name in seen.joined.ops)


def _steps(seen: Seen) -> bool:
    return len(seen.joined.iterations) > 0


def _geometry(seen: Seen) -> bool:
    grids = (frames.ints(seen.report.activities, "grid_x") > 0).any()
    return bool(grids and (frames.ints(seen.report.devices, "sm_count") > 0).any())


def _capability(seen: Seen) -> bool:
    return bool((frames.ints(seen.report.devices, "compute_major") > 0).any())


def _memory_kinds(seen: Seen) -> bool:
    copies = seen.of_kind(frames.MEMCPY)
    known = frames.ints(seen.report.activities, "source_kind")[copies] != NONE
    return bool(known.any()) or not copies.any()


def _shapes(seen: Seen) -> bool:
    code, names = input_shapes.shapes(seen.joined)
    told = np.array([*(name != "" for name in names), False], bool)
    return bool(told[code].any())


def _memory(seen: Seen) -> bool:
    return bool(len(seen.allocated))


def _counters(seen: Seen) -> bool:
    return len(seen.report.metrics.rules) > 0


def _device_memory(seen: Seen) -> bool:
    return bool((frames.ints(seen.report.devices, "memory_bytes") > 0).any())


TIMELINE = Need("a timeline", f"{TRACE}, and this report beside it with --ncu", lambda _: True)
NEEDS: Mapping[str, Need] = {
    "work": Need("work on a GPU", TRACE, _work),
    "kernels": Need("kernels", TRACE, _kernels),
    "calls": Need("CUDA API calls", TRACE, _calls),
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
    "geometry": Need("grids of kernels and the number of multiprocessors", DESCRIBED, _geometry),
    "capability": Need("the GPU's compute capability", DESCRIBED, _capability),
    "memory kinds": Need(
        "kinds of the memory copied", f"{TRACE} of nsys 2021 or newer", _memory_kinds
    ),
    "shapes": Need(
        "shapes of inputs",
        "emit_nvtx(record_shapes=True), bridge.torch.ops(shapes=True) or @nvtx_op(shapes=True)"
        " in the program",
        _shapes,
    ),
    "memory": Need(
        "samples of allocated memory",
        "bridge.profile(profile_memory=True) in the program",
        _memory,
    ),
    "counters": Need(
        "rules of Nsight Compute",
        "ncu --set full, of the same program, given with --ncu",
        _counters,
    ),
    "device memory": Need("the size of the GPU's memory", DESCRIBED, _device_memory),
}


# -- Rules on the capture itself: what it does not tell, and so no other rule can judge


OUTSIDE = 0.1  # of the time of all work


def opaque(seen: Seen) -> Ints:
    """Return the graphs that were recorded as a whole."""
    return np.flatnonzero(seen.of_kind(frames.GRAPH))


def outside(seen: Seen) -> Ints:
    """Return the activities that were launched where no range was open."""
    return np.flatnonzero(seen.counted & (seen.joined.attribution.reason == NO_RANGE))


def share(seen: Seen, rows: Ints) -> float:
    """Return which part of the time of all work that of some activities is."""
    return int(seen.time[rows].sum()) / max(1, int(seen.time[seen.counted].sum()))


def opaque_graphs(seen: Seen) -> Finding | None:
    """CUDA graphs that were recorded as a whole."""
    rows = opaque(seen)
    if not len(rows):
        return None
    figures = {"graphs": len(rows), "work_share": share(seen, rows)}
    return Finding(figures, rule.of_activities(seen, rows))


def outside_ops(seen: Seen) -> Finding | None:
    """Work launched where no range was open."""
    rows = outside(seen)
    of_all = share(seen, rows)
    if of_all <= OUTSIDE:
        return None
    figures = {"activities": len(rows), "work_share": of_all}
    return Finding(figures, rule.of_activities(seen, rows))


RULES = (
    Rule(
        "opaque-graphs",
        "CUDA graphs hide their kernels",
        "a CUDA graph is recorded as a whole",
        "graphs recorded as a whole: {graphs}, {work_share} of all work: their kernels are not known",
        "nsys profile --cuda-graph-trace=node",
        NOT_ESTIMATED,
        HERE,
        ("work",),
        opaque_graphs,
    ),
    Rule(
        "outside-ops",
        "Much work belongs to no op",
        f"more than {OUTSIDE:.0%} of the time of all work was launched outside ops",
        "{work_share} of all work was launched outside any op",
        "annotate it: @nvtx_op, bridge.torch.annotate(model); bridge why names what is missing",
        NOT_ESTIMATED,
        HERE,
        ("work", "calls", "ops"),
        outside_ops,
    ),
)
