"""Compute FLOPs and bytes of calls, and the fraction of the GPU's peak that they reach.

docs/flops.md defines every column.
"""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.calltree import subtree_sums
from bridge.analyze.core.groups import Floats, counts, texts
from bridge.analyze.cost.flops.calls import RangeCosts
from bridge.analyze.cost.flops.throughput import (
    BYTES,
    FLOPS,
    FORMULA,
    INTENSITY,
    NS,
    PEAK,
    TERA,
    Costs,
    GroupCosts,
    Limits,
)
from bridge.join.arrays import NONE, Ints, number_groups
from bridge.join.attributed import AttributedCapture
from bridge.knowledge.hardware import DTYPES

__all__ = [
    "BYTES",
    "FLOPS",
    "FORMULA",
    "INTENSITY",
    "PEAK",
    "Costs",
    "GroupCosts",
    "Limits",
    "RangeCosts",
    "step_costs",
]


# -- Costs of steps


Columns = dict[str, np.ndarray]


def step_costs(attributed: AttributedCapture, wall_ns: Ints, costs: Costs) -> Columns:
    """Return columns for all steps, in their order: FLOPs, rates and model FLOPs utilisation.

    The columns are ``flop``, ``uncounted``, ``tflop_per_s``, ``mfu``, ``peak_tflops`` and
    ``peak_dtype``. A call counts in the step in which it began. Unknown values are -1 and ''.
    """
    steps = attributed.iterations
    group_costs = _calls_as_groups(attributed, costs)
    node_step = _step_of_nodes(attributed)
    has_flops = group_costs.has(group_costs.known.flops)
    flop = np.where(
        group_costs.tree.outermost(has_flops), group_costs.values(group_costs.known.flops), 0.0
    )
    uncounted_calls = np.where(
        group_costs.tree.covered(has_flops), 0, group_costs.uncounted_calls(has_flops)
    )
    in_step = node_step != NONE
    total = np.zeros(len(steps))
    np.add.at(total, node_step[in_step], flop[in_step])
    is_known = counts(node_step[in_step & has_flops], len(steps)) > 0
    uncounted = counts(node_step[in_step & (uncounted_calls > 0)], len(steps))
    is_known &= (total > 0) | (uncounted == 0)
    dtype = _main_dtype(group_costs, flop) if not costs.dtype else costs.dtype
    peak = _peaks(attributed, costs, dtype)
    rate = np.where(is_known & (wall_ns > 0), total * (NS / TERA) / np.maximum(wall_ns, 1), NONE)
    has_share = (rate >= 0) & (peak > 0)
    return {
        "flop": np.where(is_known, total, NONE),
        "mfu": np.divide(rate, peak, out=np.full(len(steps), -1.0), where=has_share),
        "tflop_per_s": rate,
        "peak_tflops": peak,
        "uncounted": uncounted,
        "peak_dtype": texts(dtype if value > 0 else "" for value in peak.tolist()),
    }


def _calls_as_groups(attributed: AttributedCapture, costs: Costs) -> GroupCosts:
    """Return the costs with every call as a group."""
    nesting, call = attributed.hierarchy, attributed.call
    size = int(call.max(initial=NONE)) + 1
    node, has_node = attributed.node, attributed.node != NONE
    own_ns: Ints = np.zeros(len(nesting), np.int64)
    np.add.at(own_ns, node[has_node], attributed.duration[has_node])
    nodes = (
        call[nesting.range],
        np.arange(size),
        attributed.listed,
        subtree_sums(nesting, own_ns),
    )
    return GroupCosts(attributed, size, *nodes, costs)


def _step_of_nodes(attributed: AttributedCapture) -> Ints:
    nesting, ranges = attributed.attribution.nesting, attributed.capture.ranges
    report, process = ranges.report[nesting.range], ranges.process[nesting.range]
    return attributed.iterations.at(report, process, nesting.start)


def _main_dtype(group_costs: GroupCosts, flop: Floats) -> str:
    """Return the dtype with the most FLOPs, '' where no call has a dtype."""
    dtype = group_costs.known.dtype[group_costs.attributed.attribution.nesting.range]
    has_dtype = dtype != NONE
    total = np.zeros(len(DTYPES))
    np.add.at(total, dtype[has_dtype], flop[has_dtype])
    return DTYPES[int(total.argmax())] if total.any() else ""


def _peaks(attributed: AttributedCapture, costs: Costs, dtype: str) -> Floats:
    """Return the peak of all GPUs that each step used together, in TFLOP/s; -1 if unknown."""
    steps, step = attributed.iterations, attributed.activity_iteration
    limits = Limits.of(attributed, costs)
    peak = np.full(len(steps), -1.0)
    if not (dtype or costs.peak_tflops):
        return peak
    rows = np.flatnonzero((step != NONE) & attributed.counted)
    device = attributed.capture.activities.device[rows]
    _, firsts = number_groups(step[rows], device)
    gpu_count = counts(step[rows[firsts]], len(steps))
    keys = zip(steps.report.tolist(), steps.process.tolist(), strict=True)
    peaks_of_steps = [limits.by_process.get(home) for home in keys]
    tflops_of_gpu = np.array(
        [(peaks.of(dtype or DTYPES[0]) or 0.0) if peaks else 0.0 for peaks in peaks_of_steps]
    )
    result: Floats = np.where(
        (tflops_of_gpu > 0) & (gpu_count > 0), tflops_of_gpu * gpu_count, peak
    )
    return result
