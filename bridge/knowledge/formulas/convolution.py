"""Convolutions: of one to three axes, transposed, grouped, forward and backward.

The invariant: every weight is multiplied once for each position that it is applied at, whatever the groups:
at the positions of the output, or of the input where the convolution is transposed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any, NamedTuple

from bridge.knowledge.formulas.call import (
    Call,
    Counting,
    Shape,
    argument,
    counting,
    need,
    per_axis,
    tensor,
)

# -- Windows that slide over the last axes of a tensor: how many positions they have, and pooling


class Window(NamedTuple):
    """A window: its length along each axis, and how it slides."""

    kernel: Shape
    stride: Shape
    padding: Shape  # at either end
    dilation: Shape

    def slid(self, lengths: Shape, *, up: bool = False) -> Shape:
        """Return how many positions it has along each axis; ``up`` rounds up."""
        return tuple(_windows_slid(*axis, up=up) for axis in zip(lengths, *self, strict=True))


def _windows_slid(*axis: int, up: bool) -> int:
    length, kernel, stride, padding, dilation = axis
    room = length + 2 * padding - dilation * (kernel - 1) - 1
    need(stride > 0)
    count = (room + (stride - 1 if up else 0)) // stride + 1
    # A window that begins in the padding at the end is left out.
    count -= up and (count - 1) * stride >= length + padding
    need(count > 0)
    return count


def leading(shape: Shape, axes: int) -> Shape:
    """Return what stands before the axes: channels, or the batch and channels."""
    need(len(shape) in (axes + 1, axes + 2))
    return shape[:-axes]


def pooling(axes: int, rest: str) -> Counting:
    """Count pooling over so many axes; ``rest`` names the arguments after kernel_size and stride."""
    places = {name: place for place, name in enumerate(rest.split(), 3)}

    def made(call: Call) -> tuple[int, Shape]:
        shape, kernel = tensor(call, 0), per_axis(argument(call, "kernel_size", 1, None), axes)
        known = call.outputs[0] if call.outputs else None
        out = known or leading(shape, axes) + _pooled(call, shape[-axes:], kernel, places)
        need(leading(out, axes) == leading(shape, axes))
        return prod(out) * prod(kernel), out

    return counting(made)


def _pooled(call: Call, lengths: Shape, kernel: Shape, places: dict[str, int]) -> Shape:
    def said(name: str, place: int | None, default: Any) -> Shape:
        value = argument(call, name, place, default)
        return per_axis(default if value in (None, [], ()) else value, len(kernel))

    padding = said("padding", places["padding"], 0)
    dilation = said("dilation", places.get("dilation"), 1)
    window = Window(kernel, said("stride", 2, kernel), padding, dilation)
    return window.slid(lengths, up=bool(argument(call, "ceil_mode", places["ceil_mode"], False)))


def unpooled(axes: int) -> Counting:
    """Count the backward pass of average pooling: each gradient is added to all that its window saw."""

    def made(call: Call) -> tuple[int, Shape]:
        gradient, shape = tensor(call, 0), tensor(call, 1)
        need(leading(gradient, axes) == leading(shape, axes))
        kernel = per_axis(argument(call, "kernel_size", 2, None), axes)
        return prod(gradient) * prod(kernel), shape

    return counting(made)


# -- Convolutions: of one to three axes, transposed, grouped, forward and backward


# The arguments after input and weight, in the order of the op's signature.
FUNCTION = "bias stride padding dilation groups"
UP = "bias stride padding output_padding groups dilation"
GENERAL = "bias stride padding dilation transposed output_padding groups"
CUDNN = "padding stride dilation groups"
CUDNN_UP = "padding output_padding stride dilation groups"
PADDING_FIRST = "bias padding stride dilation groups"
SLOW = "kernel_size bias stride padding dilation"
SLOW_UP = "kernel_size bias stride padding output_padding dilation"
BACKWARD = "bias_sizes stride padding dilation transposed output_padding groups output_mask"
OVERRIDDEN = "stride padding dilation transposed output_padding groups output_mask"

OLD_CUDNN = "padding stride dilation groups benchmark deterministic allow_tf32 output_mask"
GRADIENT_FIRST, INPUT_FIRST = (0, 1, 2), (1, 0, 2)  # where gradient, input and weight stand

DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0, "groups": 1}


class Given(NamedTuple):
    """The arguments of a call, by the names in its op's signature."""

    call: Call
    places: dict[str, int]

    def said(self, name: str, default: Any) -> Any:
        """Return an argument's value; raise KeyError if it was given and is not known."""
        return argument(self.call, name, self.places.get(name), default)

    def each(self, name: str, axes: int) -> Shape:
        """Return an argument's value for each axis."""
        return per_axis(self.said(name, DEFAULTS[name]), axes)

    def transposed(self) -> bool | None:
        """Tell whether the convolution is transposed, None where that is not known."""
        try:
            return bool(self.said("transposed", False))
        except KeyError:
            return None


def convolution(signature: str, axes: int | None = None, *, up: bool = False) -> Counting:
    """Count a convolution whose arguments have this order; ``up``: it is always transposed."""
    places = _places(signature, 2)

    def read(call: Call) -> tuple[Given, Shape, Shape, bool | None]:
        given, x, weight = Given(call, places), tensor(call, 0), tensor(call, 1)
        need(axes in (None, len(weight) - 2))
        return given, x, weight, up or given.transposed()

    def count(call: Call) -> int:
        given, x, weight, transposed = read(call)
        out = None if transposed else _output(given, x, weight, transposed)
        return 2 * prod(weight) * _applied(x, weight, out, transposed)

    return count, lambda call: (_output(*read(call)),)


def backward(
    signature: str, order: Sequence[int] = GRADIENT_FIRST, *, by_groups: bool = False
) -> Counting:
    """Count the gradients of input and weight that are asked for: each costs what the forward pass did.

    ``order`` says where gradient, input and weight stand. ``by_groups`` counts the weight's once for each group, as FlopCounterMode does.
    """
    places = _places(signature, 3)

    def count(call: Call) -> int:
        given = Given(call, places)
        out, x, weight = (tensor(call, place) for place in order)
        forward = 2 * prod(weight) * _applied(x, weight, out, given.transposed())
        of_input, of_weight = _asked(given)[:2]
        return forward * (of_input + of_weight * (_groups(x, weight, out) if by_groups else 1))

    def outputs(call: Call) -> list[Shape]:
        out, x, weight = (tensor(call, place) for place in order)
        bias = (out[1 - len(weight)],)
        asked = _asked(Given(call, places))
        return [shape for shape, one in zip((x, weight, bias), asked, strict=True) if one]

    return count, outputs


def _places(signature: str, first: int) -> dict[str, int]:
    return {name: place for place, name in enumerate(signature.split(), first)}


def _asked(given: Given) -> tuple[bool, ...]:
    """Tell which gradients are asked for: of input, weight and bias; those of the first two if nobody says."""
    try:
        mask = given.said("output_mask", (True, True, False))
    except KeyError:
        known = given.call.outputs or ((), (), None)
        mask = [shape is not None for shape in known]
    need(isinstance(mask, Sequence) and len(mask) == 3)  # noqa: PLR2004 (input, weight, bias)
    return tuple(map(bool, mask))


def _applied(x: Shape, weight: Shape, out: Shape | None, transposed: bool | None) -> int:
    """Return at how many positions, over the whole batch, each weight is applied.

    Where nobody says whether it is transposed, channels tell; if they could be either, the side with the
    fewer positions is taken, as a transposed convolution makes more of them and another one fewer.
    """
    axes = len(weight) - 2
    batch, channels = leading(x, axes)[:-1], x[-axes - 1]
    if out is None:
        need(channels == weight[0])
        return prod(batch) * prod(x[-axes:])
    made = out[-axes - 1]
    need(leading(out, axes)[:-1] == batch)
    down, up = _fits(channels, weight, made), _fits(made, weight, channels)
    sides = [out] if down and not transposed else []
    sides += [x] if up and transposed is not False else []
    return prod(batch) * min(prod(side[-axes:]) for side in sides)


def _fits(many: int, weight: Shape, one: int) -> bool:
    """Tell whether a weight joins ``many`` channels, in groups, to ``one`` of its own first length."""
    groups, rest = divmod(many, weight[1])
    return one == weight[0] and groups > 0 and not rest and not weight[0] % groups


def _groups(x: Shape, weight: Shape, out: Shape) -> int:
    axes = len(weight) - 2
    one, other = x[-axes - 1], out[-axes - 1]
    return (one if _fits(one, weight, other) else other) // weight[1]


def _output(given: Given, x: Shape, weight: Shape, transposed: bool | None) -> Shape:
    """Return the shape that comes out, as recorded, else computed."""
    known = given.call.outputs[0] if given.call.outputs else None
    if known is not None:
        return known
    need(transposed is not None)
    axes = len(weight) - 2
    channels = weight[1] * index(given.said("groups", 1)) if transposed else weight[0]
    lengths = (_spread if transposed else _slid)(given, x[-axes:], weight[2:])
    return (*leading(x, axes)[:-1], channels, *lengths)


def _slid(given: Given, lengths: Shape, kernel: Shape) -> Shape:
    axes, padding = len(kernel), given.said("padding", 0)
    stride, dilation = given.each("stride", axes), given.each("dilation", axes)
    if isinstance(padding, str):
        need(padding.lower() in ("same", "valid"))
        if padding.lower() == "same":
            return tuple(-(-length // step) for length, step in zip(lengths, stride, strict=True))
        padding = 0
    return Window(kernel, stride, per_axis(padding, axes), dilation).slid(lengths)


def _spread(given: Given, lengths: Shape, kernel: Shape) -> Shape:
    names = ("stride", "padding", "dilation", "output_padding")
    said = (given.each(name, len(kernel)) for name in names)
    return tuple(_spread_out(*axis) for axis in zip(lengths, kernel, *said, strict=True))


def _spread_out(*axis: int) -> int:
    length, kernel, stride, padding, dilation, more = axis
    made = (length - 1) * stride - 2 * padding + dilation * (kernel - 1) + more + 1
    need(made >= 0)
    return made
