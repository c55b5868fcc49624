"""What MegEngine's profiler writes as an operator's computation: its C++ footprint, for the ops that have one.

Ops go by what MegEngine would run for them. Batched products, softmax, norms and three-dimensional convolutions have none.
"""

from __future__ import annotations

from math import prod

from bridge.knowledge.formulas.call import Call, keys, tensor
from bridge.knowledge.formulas.registry import formula

MATRIX = 2  # dimensions
IMAGES = 4  # dimensions of a two-dimensional convolution's weight
TERNARY = {"addcmul", "addcdiv", "lerp", "where"}  # weight 2: one less than the inputs
REDUCED = {"sum", "mean", "prod", "max", "min", "amax", "amin"}
MOVED = {"cat", "concat", "concatenate", "permute", "transpose", "t"}
POOLED_BACK = {"avg_pool2d_backward", "max_pool2d_with_indices_backward"}
ELEMENTWISE = ("elementwise", "activation")


def count(call: Call) -> int | None:
    """Return its computation, None for an op without a footprint."""
    names = set(keys(call.name))
    if names & MOVED:
        return sum(prod(shape) for shape in call.shapes if shape)
    if names & REDUCED:
        return prod(tensor(call, 0))
    if names & POOLED_BACK:
        return prod(tensor(call, 1)) * _window(call)
    found = formula(call.name)
    if found is None:
        return None
    if found.kind in ELEMENTWISE:
        return (2 if names & TERNARY else 1) * prod(found.outputs(call)[0])
    return found.flops(call) if _has_one(call, found.kind) else None


def _has_one(call: Call, kind: str) -> bool:
    """Tell whether an op of ours of this kind has the same footprint there."""
    ranks = [len(shape) for shape in call.shapes if shape]
    if kind == "matmul":
        return max(ranks, default=0) <= MATRIX or next(keys(call.name)) == "linear"
    if kind == "convolution":
        return max(ranks, default=0) == IMAGES
    return kind == "pooling" and "adaptive" not in call.name


def _window(call: Call) -> int:
    kernel = call.arguments.get("kernel_size", call.arguments.get("2"))
    if kernel is None:
        raise KeyError("kernel_size")
    sides = list(kernel) if isinstance(kernel, list | tuple) else [kernel]
    return prod(int(side) for side in sides * (2 if len(sides) == 1 else 1))
