"""What ops reach against what they compute and move: of calls whose FLOPs and bytes are known, and whose work ran."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bridge.analyze.calltree import subtree_sums
from bridge.analyze.flops import Costs, Known, Limits
from bridge.analyze.flops.throughput import kernels_of
from bridge.analyze.groups import Floats, counts, sums
from bridge.analyze.metrics.flop_counters import LEVELS, Counted, gb_per_s, tflops
from bridge.analyze.overview.axis import Names
from bridge.join.arrays import NONE, Flags, Ints
from bridge.join.attributed import Attributed
from bridge.knowledge.formulas.conventions import OURS as COUNTED
from bridge.knowledge.hardware import DTYPES, Peaks
from importers import frames

# -- What kernels reached against what they computed and moved at each level of memory, as Nsight Compute counted it


def measured(joined: Attributed, names: Names, costs: Costs) -> dict[str, Any] | None:
    """Return a row per kernel and level of memory: as `roofline` has per op, and ``level``; None without any.

    ``calls`` are launches of which FLOPs and bytes are known, ``left`` the kernel's others.
    """
    if not len(joined.report.metrics):
        return None
    counted, kernel = Counted(joined.report.metrics), kernels_of(joined)
    flops = np.append(counted.flops, np.nan)[kernel]
    listed = joined.counted & frames.is_kind(joined.report.activities, frames.KERNEL)
    parts = [
        _of_level(joined, flops, np.append(counted.bytes_of(level), np.nan)[kernel], listed, level)
        for level in LEVELS
    ]
    table = pd.concat(parts, ignore_index=True)
    if not len(table):
        return None
    most = table.groupby("code")["gpu_ns"].transform("max")
    order = np.lexsort((np.arange(len(table)), table["code"], -most))
    table = table.iloc[order]
    distinct = joined.report.activities["name"].cat.categories
    return {
        "op": names.of(str(distinct[code]) for code in table["code"].tolist()),
        **{c: table[c].tolist() for c in ("level", "flops", "bytes", "gpu_ns", "calls", "left")},
        "roofs": _measured_roofline_roofs(joined, counted, kernel[listed], costs),
    }


def _of_level(
    joined: Attributed, flops: Floats, moved: Floats, listed: np.ndarray, level: str
) -> pd.DataFrame:
    """Return a row per kernel name that computes and moves something at a level."""
    code, time = frames.codes(joined.report.activities["name"]), joined.duration
    rows = np.flatnonzero(listed & (flops > 0) & (moved > 0) & (time > 0))
    size = len(joined.report.activities["name"].cat.categories)
    many, every = counts(code[rows], size), counts(code[listed], size)
    found = np.flatnonzero(many)
    return pd.DataFrame(
        {
            "code": found,
            "level": level,
            "flops": np.bincount(code[rows], flops[rows], size)[found],
            "bytes": np.bincount(code[rows], moved[rows], size)[found],
            "gpu_ns": sums(code[rows], time[rows], size)[found],
            "calls": many[found],
            "left": (every - many)[found],
        }
    )


def _measured_roofline_roofs(
    joined: Attributed, counted: Counted, kernel: Ints, costs: Costs
) -> list[dict[str, Any]]:
    """Return the limits: of the dtypes computed in over DRAM, then of the caches under the highest of them.

    As collected with the metrics, else as known of the GPUs; what someone asks for comes before both.
    """
    known = next(iter(Limits.of(joined, costs).by_process.values()), costs.peaks("", {}))
    compute, speeds = tflops(counted), gb_per_s(counted)
    codes = np.unique(counted.dtype[kernel[kernel != NONE]])
    used = [DTYPES[code] for code in codes.tolist() if code != NONE]
    peaks = {dtype: compute.get(dtype) or known.of(dtype) or 0.0 for dtype in used}
    if costs.peak_tflops is not None:
        peaks = {"": costs.peak_tflops}
    memory = costs.peak_gbs or speeds.get("DRAM") or known.gb_per_s or 0.0
    found = [_roof(name, tflops, memory) for name, tflops in peaks.items() if tflops or memory]
    highest = max(peaks.values(), default=0.0)
    found += [_roof(level, highest, speeds[level]) for level in ("L2", "L1") if level in speeds]
    return sorted(found, key=lambda roof: (roof["gb_per_s"], roof["tflops"]))


def _roof(name: str, tflops: float, gb_per_s: float) -> dict[str, Any]:
    return {"name": name, "tflops": tflops, "gb_per_s": gb_per_s}


# -- What ops reach against what they compute and move: of calls whose FLOPs and bytes are known, and whose work ran


ROOFS = 6  # lines that are drawn at most
OURS = Costs()


def roofline(joined: Attributed, names: Names, costs: Costs = OURS) -> dict[str, Any] | None:
    """Return what kernels were measured to reach (see `measured`), else what the formulas of calls say."""
    found = measured(joined, names, costs) if costs.convention == COUNTED else None
    return found or _computed(joined, names, costs)


def _computed(joined: Attributed, names: Names, costs: Costs) -> dict[str, Any] | None:
    """Return a row per op: FLOPs, bytes and time on the GPU (ns) of the calls of which both are known and that ran.

    ``calls`` are those counted, ``left`` the op's other calls. A call's time is of all work under it, as its FLOPs are.
    ``roofs`` are the limits of the GPUs, the lowest first.
    """
    known = Known.of(joined, costs.convention, costs.dtype)
    call, flops, moved = _said(joined, known)
    time = _times(joined)[call]
    counted = (flops > 0) & (moved > 0) & (time > 0)
    if not counted.any():
        return None
    op_of_call = _ops(joined)
    size = len(joined.ops)
    op = op_of_call[call[counted]]
    calls, many = counts(op_of_call, size), counts(op, size)
    columns = [_floats(op, column[counted], size) for column in (flops, moved)]
    spent = sums(op, time[counted], size)
    rows = np.flatnonzero(many)
    rows = rows[np.argsort(-spent[rows], kind="stable")]
    return {
        "op": names.of(joined.ops[row] for row in rows.tolist()),
        "flops": columns[0][rows].tolist(),
        "bytes": columns[1][rows].tolist(),
        "gpu_ns": spent[rows].tolist(),
        "calls": many[rows].tolist(),
        "left": (calls - many)[rows].tolist(),
        "roofs": _roofs(joined, known, costs),
    }


def _said(joined: Attributed, known: Known) -> tuple[Ints, Floats, Floats]:
    """Return the calls that compute anything, once each, with their FLOPs and bytes (0 if unknown)."""
    rows = np.flatnonzero((known.flops > 0) & (joined.call != NONE))
    call, first = np.unique(joined.call[rows], return_index=True)
    return call, known.flops[rows[first]], np.maximum(known.bytes[rows[first]], 0)


def _roofs(joined: Attributed, known: Known, costs: Costs) -> list[dict[str, Any]]:
    """Return what the GPUs can do: a name (of dtypes), TFLOP/s and GB/s of each, 0 where one is not known.

    Of the dtypes that calls say, else of all; those with one peak are one.
    """
    limits = Limits.of(joined, costs)
    used = {DTYPES[code] for code in np.unique(limits.dtypes(known.dtype)).tolist() if code != NONE}
    found: dict[tuple[float, float], list[str]] = {}
    for peaks in limits.by_process.values():  # a turn per process
        for dtype, peak in _peaks(peaks, costs, used):
            names = found.setdefault((peak, peaks.gb_per_s), [])
            names += [dtype] if dtype not in names else []
    roofs = [
        {"name": ", ".join(names), "tflops": tflops, "gb_per_s": speed}
        for (tflops, speed), names in sorted(found.items())
    ]
    return roofs[-ROOFS:]


def _peaks(peaks: Peaks, costs: Costs, used: set[str]) -> list[tuple[str, float]]:
    if costs.peak_tflops is not None:
        return [("", costs.peak_tflops)]
    listed = [
        (dtype, peaks.of(dtype) or 0.0) for dtype in DTYPES if dtype in (used or peaks.tflops)
    ]
    return [one for one in listed if one[1]] or ([("", 0.0)] if peaks.gb_per_s else [])


def _times(joined: Attributed) -> Ints:
    """Return the time on the GPU of each call, with everything under it."""
    node, nesting = joined.attribution.node, joined.attribution.nesting
    has: Flags = node != NONE
    total = subtree_sums(nesting, sums(node[has], joined.duration[has], len(nesting)))
    call = joined.call[nesting.range]
    is_call = call != NONE
    return sums(call[is_call], total[is_call], int(joined.call.max(initial=NONE)) + 1)


def _ops(joined: Attributed) -> Ints:
    """Return the op of each call."""
    rows = np.flatnonzero(joined.call != NONE)
    op = np.full(int(joined.call.max(initial=NONE)) + 1, NONE)
    op[joined.call[rows]] = joined.op[rows]
    return op


def _floats(group: Ints, values: Floats, groups: int) -> Floats:
    """Return each group's sum: FLOPs of a long run are beyond 64 bits."""
    total = np.zeros(groups)
    np.add.at(total, group, values)
    return total
