"""What MegEngine's `module_stats` counts: layers, one for a multiply-add, so half of what its profiler says.

A bias counts one for each output of a convolution, one for each feature of a linear layer.
"""

from __future__ import annotations

from math import prod

from bridge.knowledge.formulas.call import Call, Shape, keys
from bridge.knowledge.formulas.registry import formula

BIAS = 2  # the position of a layer's bias
NORM = 7  # for each element
FLOPS = 2  # of a multiply-add, as our formulas have it


def count(call: Call) -> int | None:
    """Return its count, None for what is no layer that it knows."""
    found = formula(call.name)
    if found is None:
        return None
    if found.kind == "norm" and "backward" not in call.name:
        return NORM * prod(call.shapes[0] or ())
    if found.kind == "pooling" and "backward" not in call.name:
        return found.flops(call)
    if found.kind not in ("matmul", "convolution") or "backward" in call.name:
        return None
    products = found.flops(call)
    return None if products is None else products // FLOPS + _bias(call, found.outputs(call)[0])


def _bias(call: Call, made: Shape) -> int:
    name = next(keys(call.name))
    given = call.shapes[BIAS] if len(call.shapes) > BIAS else None
    if name == "linear":
        return prod(given) if given else 0
    return prod(made) if given and name.startswith(("conv", "_conv")) else 0
