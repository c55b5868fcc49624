"""What kernels reached against what they computed and moved at each level of memory, as Nsight Compute counted it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from bridge.analyze.flops import Costs, Limits
from bridge.analyze.flops.measured import kernels_of
from bridge.analyze.groups import Floats, counts, sums
from bridge.analyze.metrics import roofs
from bridge.analyze.metrics.counted import LEVELS, Counted
from bridge.analyze.overview.names import Names
from bridge.join.attributed import Attributed
from bridge.join.order import NONE, Ints
from bridge.knowledge.hardware import DTYPES
from importers import frames


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
        "roofs": _roofs(joined, counted, kernel[listed], costs),
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


def _roofs(
    joined: Attributed, counted: Counted, kernel: Ints, costs: Costs
) -> list[dict[str, Any]]:
    """Return the limits: of the dtypes computed in over DRAM, then of the caches under the highest of them.

    As collected with the metrics, else as known of the GPUs; what someone asks for comes before both.
    """
    known = next(iter(Limits.of(joined, costs).by_process.values()), costs.peaks("", {}))
    compute, speeds = roofs.tflops(counted), roofs.gb_per_s(counted)
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
