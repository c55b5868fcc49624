"""What Nsight Compute measured of kernels, as arguments of their slices: the metrics with short names."""

from __future__ import annotations

import numpy as np

from bridge.analyze.groups import Floats
from bridge.analyze.metrics.measured import HEADLINES, MATCH, SURE, wanted
from bridge.analyze.timeline.parts import Column, Json, Named
from bridge.join.attributed import Attributed
from bridge.join.order import NONE

DIGITS = 6  # that tell


def args(joined: Attributed) -> dict[str, Column]:
    """Return a column per metric that any kernel has, called ``occupancy (%)``, and how sure they are its own."""
    metrics = joined.report.metrics
    if not len(metrics):
        return {}
    found: dict[str, Column] = {}
    for name, one in zip(HEADLINES, wanted(joined.report, tuple(HEADLINES)), strict=True):
        there = ~np.isnan(one.numbers)
        if there.any():
            codes = np.append(np.where(there, np.arange(len(there)), NONE), NONE)
            called = f"{name} ({one.unit})" if one.unit else name
            found[called] = Json(codes[metrics.of], _written(one.numbers), numbers=True)
    if found and len(metrics.sure):
        found[MATCH] = Named(metrics.sure, list(SURE))
    return found


def _written(numbers: Floats) -> list[str]:
    """Write counts whole, others with the digits that tell."""
    return [
        str(int(n)) if n == int(n) else f"{float(f'{n:.{DIGITS}g}')!r}"
        for n in np.nan_to_num(numbers).tolist()
    ]
