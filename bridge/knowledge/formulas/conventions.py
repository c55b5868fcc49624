"""Conventions of other tools for counting FLOPs, to reconcile their numbers with ours.

A convention gives the number that its tool gives, errors included; None for ops that the tool does
not count.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from operator import index
from typing import Any, NamedTuple

from bridge.knowledge.formulas import contraction, convolution
from bridge.knowledge.formulas.call import Call, Count, Shape, keys, need, tensor
from bridge.knowledge.formulas.contraction import INNER, product
from bridge.knowledge.formulas.table import formula

# -- `torch.profiler.profile(with_flops=True)`: seven ops by their exact names


AXES = 2
FEATURES = 4  # dimensions of input and weight
CONV2D = ("stride", "padding", "dilation", "groups")
FIRST_PLACE = 3  # position of the first of CONV2D


def count_with_flops(call: Call) -> int | None:
    """Return the FLOPs by PyTorch's with_flops, None for ops that it does not count."""
    count = WITH_FLOPS.get(call.name)
    return None if count is None else count(call)


def _matrix_product(first: int, batch: int) -> Any:
    def count(call: Call) -> int:
        a, b = tensor(call, first), tensor(call, first + 1)
        need(len(a) == len(b) == AXES + batch and a[-1] > 0)
        rows = prod(a) // a[-1] // (a[0] if batch else 1) if prod(a) else 0
        return 2 * rows * prod(b)

    return count


def _conv2d(call: Call) -> int:
    x, weight = tensor(call, 0), tensor(call, 1)
    need(len(x) == len(weight) == FEATURES)
    output = call.outputs[0] if call.outputs else None
    out = _output_lengths(call, x[2:], weight[2:]) if output is None else output[2:]
    groups = x[1] // weight[1] if output is not None else index(_argument(call, "groups", 1))
    need(groups > 0)
    return 2 * x[0] * prod(out) * prod(weight[2:]) * x[1] * weight[0] // groups


def _output_lengths(call: Call, lengths: Shape, kernel: Shape) -> Shape:
    stride, padding, dilation = (_per_axis(call, name) for name in CONV2D[:3])
    need(min(stride) > 0)
    sides = zip(lengths, kernel, stride, padding, dilation, strict=True)
    return tuple(
        (side + 2 * pad - dilate * (width - 1) - 1) // step + 1
        for side, width, step, pad, dilate in sides
    )


def _per_axis(call: Call, name: str) -> Sequence[int]:
    value = _argument(call, name, 0 if name == "padding" else 1)
    need(not isinstance(value, str))
    numbers = list(value) if isinstance(value, Sequence) else [value]
    return [*map(index, numbers)] * (AXES if len(numbers) == 1 else 1)


def _argument(call: Call, name: str, default: int) -> Any:
    """Return an argument by name or position; raises KeyError if its value was not recorded."""
    place = FIRST_PLACE + CONV2D.index(name)
    for key in (name, str(place)):
        if key in call.arguments:
            return call.arguments[key]
    if place < len(call.shapes):
        raise KeyError(name)
    return default


def _input_elements(call: Call) -> int:
    return prod(tensor(call, 0))


WITH_FLOPS = {
    "aten::mm": _matrix_product(0, 0),
    "aten::addmm": _matrix_product(1, 0),
    "aten::bmm": _matrix_product(0, 1),
    "aten::baddbmm": _matrix_product(1, 1),
    "aten::conv2d": _conv2d,
    "aten::mul": _input_elements,
    "aten::add": _input_elements,
}


# -- PyTorch's FlopCounterMode: products, convolutions and attention, by the ops below autograd


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
    """Return the FLOPs by FlopCounterMode, None for ops that it does not count."""
    count = next((FLOPCOUNTER[key] for key in keys(call.name) if key in FLOPCOUNTER), None)
    return None if count is None else count(call)


# -- MegEngine's profiler: the C++ footprint of operators


MATRIX = 2  # dimensions
IMAGES = 4  # dimensions of a two-dimensional convolution's weight
THREE_INPUTS = {"addcmul", "addcdiv", "lerp", "where"}  # weight 2: the inputs less one
REDUCTIONS = {"sum", "mean", "prod", "max", "min", "amax", "amin"}
COPIES = {"cat", "concat", "concatenate", "permute", "transpose", "t"}
POOLING_BACKWARD = {"avg_pool2d_backward", "max_pool2d_with_indices_backward"}
ELEMENTWISE = ("elementwise", "activation")


def count_megengine(call: Call) -> int | None:
    """Return the computation by MegEngine's profiler, None for ops without a footprint."""
    names = set(keys(call.name))
    if names & COPIES:
        return sum(prod(shape) for shape in call.shapes if shape)
    if names & REDUCTIONS:
        return prod(tensor(call, 0))
    if names & POOLING_BACKWARD:
        return prod(tensor(call, 1)) * _window(call)
    match = formula(call.name)
    if match is None:
        return None
    if match.kind in ELEMENTWISE:
        return (2 if names & THREE_INPUTS else 1) * prod(match.outputs(call)[0])
    return match.flops(call) if _has_footprint(call, match.kind) else None


def _has_footprint(call: Call, kind: str) -> bool:
    """Return whether ops of this kind have the same footprint in MegEngine."""
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


# -- MegEngine's `module_stats`: layers, one per multiply-add, half of the profiler's number


BIAS = 2  # position of a layer's bias
NORM = 7  # per element
FLOP_PER_MULTIPLY_ADD = 2  # in our formulas


def count_module_stats(call: Call) -> int | None:
    """Return the count of MegEngine's module_stats, None for other ops than its layers."""
    match = formula(call.name)
    if match is None:
        return None
    if match.kind == "norm" and "backward" not in call.name:
        return NORM * prod(call.shapes[0] or ())
    if match.kind == "pooling" and "backward" not in call.name:
        return match.flops(call)
    if match.kind not in ("matmul", "convolution") or "backward" in call.name:
        return None
    products = match.flops(call)
    return (
        None
        if products is None
        else products // FLOP_PER_MULTIPLY_ADD + _bias(call, match.outputs(call)[0])
    )


def _bias(call: Call, output: Shape) -> int:
    name = next(keys(call.name))
    bias = call.shapes[BIAS] if len(call.shapes) > BIAS else None
    if name == "linear":
        return prod(bias) if bias else 0
    return prod(output) if bias and name.startswith(("conv", "_conv")) else 0


# -- PyProf: ops of the forward pass; products and convolutions as ours


SAME_KINDS = ("matmul", "convolution")
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
ELEMENTS_PLUS_ONE = {"mean": 1, "norm": 2}  # weight of an element; one is added


def count_pyprof(call: Call) -> int | None:
    """Return the FLOPs by PyProf, None for ops without a class."""
    names = list(keys(call.name))
    for name in names:
        if name in ELEMENTS_PLUS_ONE:
            return ELEMENTS_PLUS_ONE[name] * prod(tensor(call, 0)) + 1
        if name in WEIGHTS:
            return WEIGHTS[name] * prod(tensor(call, 0))
    match = formula(call.name)
    if match is None or "backward" in call.name or match.kind not in (*SAME_KINDS, "elementwise"):
        return None
    count = match.flops(call)
    return count if count is None or "linear" not in names else count + _pyprof_bias(call)


def _pyprof_bias(call: Call) -> int:
    """Return one FLOP per output of a linear layer with a bias."""
    bias = call.shapes[2] if len(call.shapes) > 2 else None  # noqa: PLR2004 - input, weight, bias
    return prod(tensor(call, 0)[:-1]) * prod(bias) if bias else 0


# -- Conventions


OURS = "bridge"


class Convention(NamedTuple):
    """A convention; ``flops`` returns the FLOPs of a call or None, and raises as formulas do."""

    name: str
    about: str
    flops: Callable[[Call], int | None]


CONVENTIONS: Mapping[str, Convention] = {
    convention.name: convention
    for convention in (
        Convention("torch", "PyTorch's with_flops", count_with_flops),
        Convention("flopcounter", "PyTorch's FlopCounterMode", count_flopcounter),
        Convention("megengine", "MegEngine's profiler", count_megengine),
        Convention("module_stats", "MegEngine's module_stats", count_module_stats),
        Convention("pyprof", "PyProf", count_pyprof),
    )
}
NAMES = (OURS, *CONVENTIONS)
