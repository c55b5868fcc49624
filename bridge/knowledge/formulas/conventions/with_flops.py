"""What `torch.profiler.profile(with_flops=True)` counts: seven ops by their exact names, and nothing else.

Its own ways are kept: the first input stands for the result of ``add`` and ``mul``, whatever they broadcast to, and
``conv2d`` needs a batch and lists as arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any

from bridge.knowledge.formulas.call import Call, Shape, need, tensor

AXES = 2
FEATURES = 4  # dimensions of an input and a weight
CONV2D = ("stride", "padding", "dilation", "groups")
FIRST = 3  # where these begin


def count(call: Call) -> int | None:
    """Return its FLOPs, None for an op that it does not count."""
    counted = COUNTED.get(call.name)
    return None if counted is None else counted(call)


def _product(first: int, batch: int) -> Any:
    def counted(call: Call) -> int:
        a, b = tensor(call, first), tensor(call, first + 1)
        need(len(a) == len(b) == AXES + batch and a[-1] > 0)
        each = prod(a) // a[-1] // (a[0] if batch else 1) if prod(a) else 0
        return 2 * each * prod(b)

    return counted


def _conv2d(call: Call) -> int:
    x, weight = tensor(call, 0), tensor(call, 1)
    need(len(x) == len(weight) == FEATURES)
    known = call.outputs[0] if call.outputs else None
    out = _slid(call, x[2:], weight[2:]) if known is None else known[2:]
    groups = x[1] // weight[1] if known is not None else index(_said(call, "groups", 1))
    need(groups > 0)
    return 2 * x[0] * prod(out) * prod(weight[2:]) * x[1] * weight[0] // groups


def _slid(call: Call, lengths: Shape, kernel: Shape) -> Shape:
    stride, padding, dilation = (_listed(call, name) for name in CONV2D[:3])
    need(min(stride) > 0)
    sides = zip(lengths, kernel, stride, padding, dilation, strict=True)
    return tuple(
        (side + 2 * pad - wide * (one - 1) - 1) // step + 1 for side, one, step, pad, wide in sides
    )


def _listed(call: Call, name: str) -> Sequence[int]:
    value = _said(call, name, 0 if name == "padding" else 1)
    need(not isinstance(value, str))
    listed = list(value) if isinstance(value, Sequence) else [value]
    return [*map(index, listed)] * (AXES if len(listed) == 1 else 1)


def _said(call: Call, name: str, default: int) -> Any:
    """Return an argument by its name or position; raise KeyError for one that was given and not recorded."""
    place = FIRST + CONV2D.index(name)
    for key in (name, str(place)):
        if key in call.arguments:
            return call.arguments[key]
    if place < len(call.shapes):
        raise KeyError(name)
    return default


def _first(call: Call) -> int:
    return prod(tensor(call, 0))


COUNTED = {
    "aten::mm": _product(0, 0),
    "aten::addmm": _product(1, 0),
    "aten::bmm": _product(0, 1),
    "aten::baddbmm": _product(1, 1),
    "aten::conv2d": _conv2d,
    "aten::mul": _first,
    "aten::add": _first,
}
