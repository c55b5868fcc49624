"""How others count FLOPs: the numbers that users of other tools know, to reconcile them with ours.

The invariant: a convention says what its tool says, its mistakes included; what that tool does not count has no number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from bridge.knowledge.formulas.call import Call
from bridge.knowledge.formulas.conventions import (
    flopcounter,
    megengine,
    module_stats,
    pyprof,
    with_flops,
)

OURS = "bridge"


class Convention(NamedTuple):
    """``flops`` says how many FLOPs a call has, None for none; it raises what formulas raise."""

    name: str
    about: str
    flops: Callable[[Call], int | None]


CONVENTIONS: Mapping[str, Convention] = {
    found.name: found
    for found in (
        Convention("torch", "PyTorch's with_flops", with_flops.count),
        Convention("flopcounter", "PyTorch's FlopCounterMode", flopcounter.count),
        Convention("megengine", "MegEngine's profiler", megengine.count),
        Convention("module_stats", "MegEngine's module_stats", module_stats.count),
        Convention("pyprof", "PyProf", pyprof.count),
    )
}
NAMES = (OURS, *CONVENTIONS)

__all__ = ["CONVENTIONS", "NAMES", "OURS", "Convention"]
