"""Compute roofline plots: FLOPs, bytes and time of ops or kernels, and the GPUs' peaks."""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.analyze.core.calltree import subtree_sums
from bridge.analyze.core.groups import Floats, counts, highest, sums
from bridge.analyze.core.table import Table
from bridge.analyze.cost.flops import Costs, Limits, RangeCosts
from bridge.analyze.cost.flops.throughput import measured_kernels
from bridge.analyze.cost.metrics.flop_counters import LEVELS, FlopCounts, peak_gb_per_s, peak_tflops
from bridge.analyze.draw.overview.axis import Names
from bridge.importers import frames
from bridge.join.arrays import NONE, Flags, Ints, number_groups
from bridge.join.attributed import AttributedCapture
from bridge.knowledge.formulas.conventions import OURS as COUNTED
from bridge.knowledge.hardware import DTYPES, Peaks

# -- Kernels as measured by Nsight Compute


def measured_roofline(
    attributed: AttributedCapture, names: Names, costs: Costs
) -> dict[str, Any] | None:
    """Return a row per kernel and level of memory as measured by Nsight Compute; None without any.

    The columns are those of `roofline`, with ``level``. ``calls`` are launches with known FLOPs and
    bytes, ``left`` the other launches of the kernel.
    """
    if not len(attributed.capture.metrics):
        return None
    flop_counts = FlopCounts(attributed.capture.metrics)
    kernel = measured_kernels(attributed)
    flops = np.append(flop_counts.flops, np.nan)[kernel]
    listed = attributed.counted & attributed.capture.activities.kind.among(frames.KERNEL)
    parts = [
        _kernels_of_level(
            attributed,
            flops,
            moved_bytes=np.append(flop_counts.bytes_of(level), np.nan)[kernel],
            listed=listed,
            level=level,
        )
        for level in LEVELS
    ]
    table = Table.concat(parts)
    if not len(table):
        return None
    group, _ = number_groups(table["code"])
    longest = highest(group, table["gpu_ns"], len(table))[group]
    order = np.lexsort((np.arange(len(table)), table["code"], -longest))
    table = table[order]
    distinct = attributed.activity_name.texts
    return {
        "op": names.of(str(distinct[code]) for code in table["code"].tolist()),
        **{c: table[c].tolist() for c in ("level", "flops", "bytes", "gpu_ns", "calls", "left")},
        "roofs": _measured_roofs(attributed, flop_counts, kernel[listed], costs),
    }


def _kernels_of_level(
    attributed: AttributedCapture,
    flops: Floats,
    moved_bytes: Floats,
    listed: np.ndarray,
    level: str,
) -> Table:
    """Return a row per kernel name with FLOPs and with bytes at a level."""
    code, time = attributed.activity_name.codes, attributed.duration
    rows = np.flatnonzero(listed & (flops > 0) & (moved_bytes > 0) & (time > 0))
    size = len(attributed.activity_name.texts)
    group_count, all_counts = counts(code[rows], size), counts(code[listed], size)
    result = np.flatnonzero(group_count)
    return Table(
        {
            "code": result,
            "level": level,
            "flops": np.bincount(code[rows], flops[rows], size)[result],
            "bytes": np.bincount(code[rows], moved_bytes[rows], size)[result],
            "gpu_ns": sums(code[rows], time[rows], size)[result],
            "calls": group_count[result],
            "left": (all_counts - group_count)[result],
        }
    )


def _measured_roofs(
    attributed: AttributedCapture, flop_counts: FlopCounts, kernel: Ints, costs: Costs
) -> list[dict[str, Any]]:
    """Return the roofs: of the used dtypes over DRAM, then of caches under the highest peak.

    Requested peaks have precedence over collected ones, and these over known ones of the GPUs.
    """
    limits = next(iter(Limits.of(attributed, costs).by_process.values()), costs.peaks("", {}))
    compute, speeds = peak_tflops(flop_counts), peak_gb_per_s(flop_counts)
    codes = np.unique(flop_counts.dtype[kernel[kernel != NONE]])
    used = [DTYPES[code] for code in codes.tolist() if code != NONE]
    peaks = {dtype: compute.get(dtype) or limits.of(dtype) or 0.0 for dtype in used}
    if costs.peak_tflops is not None:
        peaks = {"": costs.peak_tflops}
    memory = costs.peak_gbs or speeds.get("DRAM") or limits.gb_per_s or 0.0
    result = [_roof(name, tflops, memory) for name, tflops in peaks.items() if tflops or memory]
    highest = max(peaks.values(), default=0.0)
    result += [_roof(level, highest, speeds[level]) for level in ("L2", "L1") if level in speeds]
    return sorted(result, key=lambda roof: (roof["gb_per_s"], roof["tflops"]))


def _roof(name: str, peak: float, speed: float) -> dict[str, Any]:
    return {"name": name, "tflops": peak, "gb_per_s": speed}


# -- Ops by formulas


MAX_ROOFS = 6  # maximum of drawn lines
DEFAULT_COSTS = Costs()


def roofline(
    attributed: AttributedCapture, names: Names, costs: Costs = DEFAULT_COSTS
) -> dict[str, Any] | None:
    """Return the measured roofline of kernels if there is one, else the computed one of ops."""
    result = measured_roofline(attributed, names, costs) if costs.convention == COUNTED else None
    return result or _computed_roofline(attributed, names, costs)


def _computed_roofline(
    attributed: AttributedCapture, names: Names, costs: Costs
) -> dict[str, Any] | None:
    """Return a row per op: FLOPs, bytes and GPU time (ns) of its calls with both and with work.

    ``calls`` are those counted, ``left`` the other calls. The time of a call is that of all work
    under it, like its FLOPs. ``roofs`` are the peaks of the GPUs, lowest first.
    """
    range_costs = RangeCosts.of(attributed, costs.convention, costs.dtype)
    call, flops, moved_bytes = _calls_with_costs(attributed, range_costs)
    time = _call_times(attributed)[call]
    is_counted = (flops > 0) & (moved_bytes > 0) & (time > 0)
    if not is_counted.any():
        return None
    op_of_call = _ops(attributed)
    size = len(attributed.ops)
    op = op_of_call[call[is_counted]]
    calls, group_count = counts(op_of_call, size), counts(op, size)
    columns = [_float_sums(op, column[is_counted], size) for column in (flops, moved_bytes)]
    gpu_time = sums(op, time[is_counted], size)
    rows = np.flatnonzero(group_count)
    rows = rows[np.argsort(-gpu_time[rows], kind="stable")]
    return {
        "op": names.of(attributed.ops[row] for row in rows.tolist()),
        "flops": columns[0][rows].tolist(),
        "bytes": columns[1][rows].tolist(),
        "gpu_ns": gpu_time[rows].tolist(),
        "calls": group_count[rows].tolist(),
        "left": (calls - group_count)[rows].tolist(),
        "roofs": _roofs(attributed, range_costs, costs),
    }


def _calls_with_costs(
    attributed: AttributedCapture, costs: RangeCosts
) -> tuple[Ints, Floats, Floats]:
    """Return the calls with FLOPs, and their FLOPs and bytes (0 if unknown)."""
    rows = np.flatnonzero((costs.flops > 0) & (attributed.call != NONE))
    call, first = np.unique(attributed.call[rows], return_index=True)
    return call, costs.flops[rows[first]], np.maximum(costs.bytes[rows[first]], 0)


def _roofs(
    attributed: AttributedCapture, range_costs: RangeCosts, costs: Costs
) -> list[dict[str, Any]]:
    """Return the peaks of the GPUs: names of dtypes, TFLOP/s and GB/s, 0 if unknown.

    They are those of the dtypes of calls, or of all dtypes; dtypes with the same peak share a roof.
    """
    limits = Limits.of(attributed, costs)
    used = {
        DTYPES[code]
        for code in np.unique(limits.dtypes(range_costs.dtype)).tolist()
        if code != NONE
    }
    values: dict[tuple[float, float], list[str]] = {}
    for peaks in limits.by_process.values():  # one iteration per process
        for dtype, peak in _peaks(peaks, costs, used):
            names = values.setdefault((peak, peaks.gb_per_s), [])
            names += [dtype] if dtype not in names else []
    roofs = [
        {"name": ", ".join(names), "tflops": tflops, "gb_per_s": speed}
        for (tflops, speed), names in sorted(values.items())
    ]
    return roofs[-MAX_ROOFS:]


def _peaks(peaks: Peaks, costs: Costs, used: set[str]) -> list[tuple[str, float]]:
    if costs.peak_tflops is not None:
        return [("", costs.peak_tflops)]
    listed = [
        (dtype, peaks.of(dtype) or 0.0) for dtype in DTYPES if dtype in (used or peaks.tflops)
    ]
    return [entry for entry in listed if entry[1]] or ([("", 0.0)] if peaks.gb_per_s else [])


def _call_times(attributed: AttributedCapture) -> Ints:
    """Return the GPU time of each call, including everything under it."""
    node, nesting = attributed.attribution.node, attributed.attribution.nesting
    has_node: Flags = node != NONE
    total = subtree_sums(nesting, sums(node[has_node], attributed.duration[has_node], len(nesting)))
    call = attributed.call[nesting.range]
    is_call = call != NONE
    return sums(call[is_call], total[is_call], int(attributed.call.max(initial=NONE)) + 1)


def _ops(attributed: AttributedCapture) -> Ints:
    """Return the op of each call."""
    rows = np.flatnonzero(attributed.call != NONE)
    op = np.full(int(attributed.call.max(initial=NONE)) + 1, NONE)
    op[attributed.call[rows]] = attributed.op[rows]
    return op


def _float_sums(group: Ints, values: Floats, groups: int) -> Floats:
    """Return the sum of each group as float, as FLOPs may exceed 64 bits."""
    total = np.zeros(groups)
    np.add.at(total, group, values)
    return total
