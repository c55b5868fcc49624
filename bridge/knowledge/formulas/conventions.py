"""How others count FLOPs: the numbers that users of other tools know, to reconcile them with ours.

The invariant: a convention says what its tool says, its mistakes included; what that tool does not count has no number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from operator import index
from typing import Any, NamedTuple

from bridge.knowledge.formulas import contraction, convolution
from bridge.knowledge.formulas.call import Call, Count, Shape, keys, need, tensor
from bridge.knowledge.formulas.contraction import INNER, product
from bridge.knowledge.formulas.registry import formula

# -- What `torch.profiler.profile(with_flops=True)` counts: seven ops by their exact names, and nothing else


AXES = 2
FEATURES = 4  # dimensions of an input and a weight
CONV2D = ("stride", "padding", "dilation", "groups")
FIRST = 3  # where these begin


def count_with_flops(call: Call) -> int | None:
    """Return its FLOPs, None for an op that it does not count."""
    counted = WITH_FLOPS.get(call.name)
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


WITH_FLOPS = {
    "aten::mm": _product(0, 0),
    "aten::addmm": _product(1, 0),
    "aten::bmm": _product(0, 1),
    "aten::baddbmm": _product(1, 1),
    "aten::conv2d": _conv2d,
    "aten::mul": _first,
    "aten::add": _first,
}


# -- What PyTorch's FlopCounterMode counts: products, convolutions and attention, by the ops below autograd


BATCH = ((0,), (0,))
SDPA = "_scaled_dot_product_{}_attention"
KINDS = ("efficient", "flash", "cudnn")

FLOPCOUNTER: dict[str, Count] = {
    "mm": product((2, 2), INNER)[0],
    "_scaled_mm": product((2, 2), INNER)[0],
    "addmm": product((2, 2), INNER, first=1)[0],
    "bmm": product((3, 3), INNER, BATCH)[0],
    "baddbmm": product((3, 3), INNER, BATCH, first=1)[0],
    **dict.fromkeys(
        ("convolution", "_convolution", "convolution_overrideable"),
        convolution.convolution(convolution.GENERAL)[0],
    ),
    "cudnn_convolution": convolution.convolution(convolution.CUDNN)[0],
    "_slow_conv2d_forward": convolution.convolution(convolution.SLOW)[0],
    "convolution_backward": convolution.backward(convolution.BACKWARD, by_groups=True)[0],
    **{SDPA.format(kind): contraction.attention()[0] for kind in KINDS},
    **{f"{SDPA.format(kind)}_backward": contraction.backward()[0] for kind in KINDS},
    "_flash_attention_forward": contraction.attention(packed=3)[0],
    "_efficient_attention_forward": contraction.attention(packed=4)[0],
    "_flash_attention_backward": contraction.backward(packed=6)[0],
    "_efficient_attention_backward": contraction.backward(packed=6)[0],
}


def count_flopcounter(call: Call) -> int | None:
    """Return its FLOPs, None for an op that it does not count."""
    counted = next((FLOPCOUNTER[key] for key in keys(call.name) if key in FLOPCOUNTER), None)
    return None if counted is None else counted(call)


# -- What MegEngine's profiler writes as an operator's computation: its C++ footprint, for the ops that have one


MATRIX = 2  # dimensions
IMAGES = 4  # dimensions of a two-dimensional convolution's weight
TERNARY = {"addcmul", "addcdiv", "lerp", "where"}  # weight 2: one less than the inputs
REDUCED = {"sum", "mean", "prod", "max", "min", "amax", "amin"}
MOVED = {"cat", "concat", "concatenate", "permute", "transpose", "t"}
POOLED_BACK = {"avg_pool2d_backward", "max_pool2d_with_indices_backward"}
ELEMENTWISE = ("elementwise", "activation")


def count_megengine(call: Call) -> int | None:
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


# -- What MegEngine's `module_stats` counts: layers, one for a multiply-add, so half of what its profiler says


BIAS = 2  # the position of a layer's bias
NORM = 7  # for each element
FLOPS_OF_MULTIPLY_ADD = 2  # of a multiply-add, as our formulas have it


def count_module_stats(call: Call) -> int | None:
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
    return (
        None
        if products is None
        else products // FLOPS_OF_MULTIPLY_ADD + _bias(call, found.outputs(call)[0])
    )


def _bias(call: Call, made: Shape) -> int:
    name = next(keys(call.name))
    given = call.shapes[BIAS] if len(call.shapes) > BIAS else None
    if name == "linear":
        return prod(given) if given else 0
    return prod(made) if given and name.startswith(("conv", "_conv")) else 0


# -- What PyProf counts for an op in the forward pass; products and convolutions as we do


SAME = ("matmul", "convolution")
WEIGHTS = {
    **dict.fromkeys("relu relu6 sigmoid tanh elu selu celu gelu silu softplus mish".split(), 1),
    **dict.fromkeys("leaky_relu hardtanh hardswish hardsigmoid threshold prelu".split(), 1),
    **dict.fromkeys("softmax _softmax".split(), 40),
    **dict.fromkeys("log_softmax _log_softmax".split(), 21),
    **dict.fromkeys("dropout native_dropout".split(), 5),
    **dict.fromkeys("batch_norm native_batch_norm cudnn_batch_norm".split(), 8),
    **dict.fromkeys("addcmul addcdiv".split(), 3),
    **dict.fromkeys("sum".split(), 1),
    **dict.fromkeys("embedding".split(), 0),
}
AND_ONE = {"mean": 1, "norm": 2}  # elements, and one more


def count_pyprof(call: Call) -> int | None:
    """Return its FLOPs, None for an op that it has no class for."""
    names = list(keys(call.name))
    for name in names:
        if name in AND_ONE:
            return AND_ONE[name] * prod(tensor(call, 0)) + 1
        if name in WEIGHTS:
            return WEIGHTS[name] * prod(tensor(call, 0))
    found = formula(call.name)
    if found is None or "backward" in call.name or found.kind not in (*SAME, "elementwise"):
        return None
    counted = found.flops(call)
    return counted if counted is None or "linear" not in names else counted + _pyprof_bias(call)


def _pyprof_bias(call: Call) -> int:
    """Return one for each output of a linear layer that has a bias."""
    given = call.shapes[2] if len(call.shapes) > 2 else None  # noqa: PLR2004 (input, weight, bias)
    return prod(tensor(call, 0)[:-1]) * prod(given) if given else 0


# -- How others count FLOPs: the numbers that users of other tools know, to reconcile them with ours


OURS = "bridge"


class Convention(NamedTuple):
    """``flops`` says how many FLOPs a call has, None for none; it raises what formulas raise."""

    name: str
    about: str
    flops: Callable[[Call], int | None]


CONVENTIONS: Mapping[str, Convention] = {
    found.name: found
    for found in (
        Convention("torch", "PyTorch's with_flops", count_with_flops),
        Convention("flopcounter", "PyTorch's FlopCounterMode", count_flopcounter),
        Convention("megengine", "MegEngine's profiler", count_megengine),
        Convention("module_stats", "MegEngine's module_stats", count_module_stats),
        Convention("pyprof", "PyProf", count_pyprof),
    )
}
NAMES = (OURS, *CONVENTIONS)
