"""What a GPU could do while Nsight Compute looked: peaks per cycle, as collected, times the clock that there was."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from bridge.analyze.groups import Floats
from bridge.analyze.metrics.counted import (
    EXECUTED,
    INSTRUCTIONS,
    LEVELS,
    TENSOR,
    UNITS,
    Counted,
    Quantity,
    dtype_of,
)

CLOCKS = ("sm__cycles_elapsed.avg.per_second", "smsp__cycles_elapsed.avg.per_second")
PEAK = ".peak_sustained"
DENSE = re.compile(r"_sparsity_off\.sum")
TERA, GIGA = 1e12, 1e9


def tflops(counted: Counted) -> dict[str, float]:
    """Return the most TFLOP/s by dtype (dense, where Tensor Cores tell it apart), of the kernel with the fastest clock."""
    clock = counted.first(CLOCKS)
    found: dict[str, float] = {}
    for dtype, per_cycle in _per_cycle(counted):
        most = _most(per_cycle * clock) / TERA
        if most > 0:
            found[dtype] = max(most, found.get(dtype, 0.0))
    return found


def gb_per_s(counted: Counted) -> dict[str, float]:
    """Return the most GB/s by level of memory, of what its bytes are counted as."""
    found = {}
    for level, (clock_of, _) in LEVELS.items():
        clock = counted.numbers(f"{clock_of}__cycles_elapsed.avg.per_second")
        most = _most(_peak(counted, counted.quantity(level)) * clock) / GIGA
        if most > 0:
            found[level] = most
    return found


def _peak(counted: Counted, quantity: Quantity) -> Floats:
    """Return the bytes per cycle at most: what is read and what is written share one peak."""
    found = np.full(len(counted), np.nan)
    for ways in quantity:
        factor, name = ways[0]
        found = np.where(np.isnan(found), factor * counted.numbers(f"{name}.sum{PEAK}"), found)
    return found


def _per_cycle(counted: Counted) -> Iterator[tuple[str, Floats]]:
    for dtype, each in INSTRUCTIONS.items():
        fused, flops = list(each.items())[-1]
        names = [EXECUTED.format(unit, fused) + PEAK for unit in reversed(UNITS)]
        yield dtype, flops * counted.first(names)
    of_tensor = {
        name: name.removesuffix(PEAK) for name in sorted(counted.names) if name.endswith(PEAK)
    }
    told = {name: found for name, bare in of_tensor.items() if (found := TENSOR.fullmatch(bare))}
    dense = {name for name in told if DENSE.search(name)}
    for name in sorted(dense or told):
        yield dtype_of(told[name]["src"]), counted.numbers(name)


def _most(values: Floats) -> float:
    there = values[~np.isnan(values)]
    return float(there.max(initial=0.0))
