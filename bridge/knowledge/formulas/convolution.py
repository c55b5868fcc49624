"""Convolutions (one to three axes, transposed, grouped, forward and backward) and pooling.

Each weight is multiplied once per position at which it is applied, whatever the groups: per
position of the output, or of the input of a transposed convolution.
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

# -- Windows over the last axes of a tensor, and pooling


class Window(NamedTuple):
    """A window: its length along each axis, and how it slides."""

    kernel: Shape
    stride: Shape
    padding: Shape  # at each end
    dilation: Shape

    def positions(self, lengths: Shape, *, up: bool = False) -> Shape:
        """Return the number of positions along each axis; ``up`` rounds up."""
        return tuple(_positions(*axis, up=up) for axis in zip(lengths, *self, strict=True))


def _positions(*axis: int, up: bool) -> int:
    length, kernel, stride, padding, dilation = axis
    room = length + 2 * padding - dilation * (kernel - 1) - 1
    need(stride > 0)
    count = (room + (stride - 1 if up else 0)) // stride + 1
    # A window that begins in the padding at the end does not count.
    count -= up and (count - 1) * stride >= length + padding
    need(count > 0)
    return count


def leading(shape: Shape, axes: int) -> Shape:
    """Return the lengths before the axes: channels, or batch and channels."""
    need(len(shape) in (axes + 1, axes + 2))
    return shape[:-axes]


def pooling(axes: int, rest: str) -> Counting:
    """Count pooling; ``rest`` names the arguments after kernel_size and stride."""
    places = {name: place for place, name in enumerate(rest.split(), 3)}

    def count_and_shape(call: Call) -> tuple[int, Shape]:
        shape, kernel = tensor(call, 0), per_axis(argument(call, "kernel_size", 1, None), axes)
        known = call.outputs[0] if call.outputs else None
        out = known or leading(shape, axes) + _pooled_lengths(call, shape[-axes:], kernel, places)
        need(leading(out, axes) == leading(shape, axes))
        return prod(out) * prod(kernel), out

    return counting(count_and_shape)


def _pooled_lengths(call: Call, lengths: Shape, kernel: Shape, places: dict[str, int]) -> Shape:
    def value_of(name: str, place: int | None, default: Any) -> Shape:
        value = argument(call, name, place, default)
        return per_axis(default if value in (None, [], ()) else value, len(kernel))

    padding = value_of("padding", places["padding"], 0)
    dilation = value_of("dilation", places.get("dilation"), 1)
    window = Window(kernel, value_of("stride", 2, kernel), padding, dilation)
    return window.positions(
        lengths, up=bool(argument(call, "ceil_mode", places["ceil_mode"], False))
    )


def pooling_backward(axes: int) -> Counting:
    """Count the backward pass of average pooling: one addition per gradient and window element."""

    def count_and_shape(call: Call) -> tuple[int, Shape]:
        gradient, shape = tensor(call, 0), tensor(call, 1)
        need(leading(gradient, axes) == leading(shape, axes))
        kernel = per_axis(argument(call, "kernel_size", 2, None), axes)
        return prod(gradient) * prod(kernel), shape

    return counting(count_and_shape)


# -- Convolutions


# The arguments after input and weight, in the order of the op's signature.
FUNCTION = "bias stride padding dilation groups"
TRANSPOSED = "bias stride padding output_padding groups dilation"
GENERAL = "bias stride padding dilation transposed output_padding groups"
CUDNN = "padding stride dilation groups"
CUDNN_TRANSPOSED = "padding output_padding stride dilation groups"
PADDING_FIRST = "bias padding stride dilation groups"
SLOW = "kernel_size bias stride padding dilation"
SLOW_TRANSPOSED = "kernel_size bias stride padding output_padding dilation"
BACKWARD = "bias_sizes stride padding dilation transposed output_padding groups output_mask"
OVERRIDDEN = "stride padding dilation transposed output_padding groups output_mask"

OLD_CUDNN = "padding stride dilation groups benchmark deterministic allow_tf32 output_mask"
GRADIENT_FIRST, INPUT_FIRST = (0, 1, 2), (1, 0, 2)  # positions of gradient, input and weight

DEFAULTS = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0, "groups": 1}


class Arguments(NamedTuple):
    """The arguments of a call, by the names in its op's signature."""

    call: Call
    places: dict[str, int]

    def value(self, name: str, default: Any) -> Any:
        """Return an argument's value; raises KeyError if it was not recorded."""
        return argument(self.call, name, self.places.get(name), default)

    def per_axis(self, name: str, axes: int) -> Shape:
        """Return an argument's value per axis."""
        return per_axis(self.value(name, DEFAULTS[name]), axes)

    def transposed(self) -> bool | None:
        """Return whether the convolution is transposed, None if unknown."""
        try:
            return bool(self.value("transposed", False))
        except KeyError:
            return None


def convolution(signature: str, axes: int | None = None, *, up: bool = False) -> Counting:
    """Count a convolution with this signature; ``up``: it is always transposed."""
    places = _places(signature, 2)

    def read(call: Call) -> tuple[Arguments, Shape, Shape, bool | None]:
        arguments, x, weight = Arguments(call, places), tensor(call, 0), tensor(call, 1)
        need(axes in (None, len(weight) - 2))
        return arguments, x, weight, up or arguments.transposed()

    def count(call: Call) -> int:
        passed, x, weight, transposed = read(call)
        out = None if transposed else _output(passed, x, weight, transposed)
        return 2 * prod(weight) * _positions_per_weight(x, weight, out, transposed)

    return count, lambda call: (_output(*read(call)),)


def backward(
    signature: str, order: Sequence[int] = GRADIENT_FIRST, *, by_groups: bool = False
) -> Counting:
    """Count the requested gradients of input and weight; each costs as much as the forward pass.

    ``order`` has the positions of gradient, input and weight. ``by_groups`` counts the weight's
    gradient once per group, as FlopCounterMode does.
    """
    places = _places(signature, 3)

    def count(call: Call) -> int:
        arguments = Arguments(call, places)
        out, x, weight = (tensor(call, place) for place in order)
        forward = 2 * prod(weight) * _positions_per_weight(x, weight, out, arguments.transposed())
        of_input, of_weight = _output_mask(arguments)[:2]
        return forward * (of_input + of_weight * (_groups(x, weight, out) if by_groups else 1))

    def outputs(call: Call) -> list[Shape]:
        out, x, weight = (tensor(call, place) for place in order)
        bias = (out[1 - len(weight)],)
        mask = _output_mask(Arguments(call, places))
        return [
            shape
            for shape, is_requested in zip((x, weight, bias), mask, strict=True)
            if is_requested
        ]

    return count, outputs


def _places(signature: str, first: int) -> dict[str, int]:
    return {name: place for place, name in enumerate(signature.split(), first)}


def _output_mask(arguments: Arguments) -> tuple[bool, ...]:
    """Return which gradients (input, weight, bias) are requested; by default the first two."""
    try:
        mask = arguments.value("output_mask", (True, True, False))
    except KeyError:
        outputs = arguments.call.outputs or ((), (), None)
        mask = [shape is not None for shape in outputs]
    need(isinstance(mask, Sequence) and len(mask) == 3)  # noqa: PLR2004 - input, weight, bias
    return tuple(map(bool, mask))


def _positions_per_weight(
    x: Shape, weight: Shape, out: Shape | None, transposed: bool | None
) -> int:
    """Return at how many positions, over the whole batch, each weight is applied.

    If it is unknown whether the convolution is transposed, the channels decide. If both are
    possible, the side with fewer positions counts: a transposed convolution has more positions in
    its output, another one fewer.
    """
    axes = len(weight) - 2
    batch, channels = leading(x, axes)[:-1], x[-axes - 1]
    if out is None:
        need(channels == weight[0])
        return prod(batch) * prod(x[-axes:])
    output_channels = out[-axes - 1]
    need(leading(out, axes)[:-1] == batch)
    is_forward, is_transposed = (
        _fits(channels, weight, output_channels),
        _fits(output_channels, weight, channels),
    )
    sides = [out] if is_forward and not transposed else []
    sides += [x] if is_transposed and transposed is not False else []
    return prod(batch) * min(prod(side[-axes:]) for side in sides)


def _fits(channels: int, weight: Shape, others: int) -> bool:
    """Return whether a weight connects ``channels``, in groups, to ``others``."""
    groups, rest = divmod(channels, weight[1])
    return others == weight[0] and groups > 0 and not rest and not weight[0] % groups


def _groups(x: Shape, weight: Shape, out: Shape) -> int:
    axes = len(weight) - 2
    inputs, outputs = x[-axes - 1], out[-axes - 1]
    return (inputs if _fits(inputs, weight, outputs) else outputs) // weight[1]


def _output(arguments: Arguments, x: Shape, weight: Shape, transposed: bool | None) -> Shape:
    """Return the shape of the output, as recorded, else computed."""
    output = arguments.call.outputs[0] if arguments.call.outputs else None
    if output is not None:
        return output
    need(transposed is not None)
    axes = len(weight) - 2
    channels = weight[1] * index(arguments.value("groups", 1)) if transposed else weight[0]
    lengths = (_transposed_lengths if transposed else _forward_lengths)(
        arguments, x[-axes:], weight[2:]
    )
    return (*leading(x, axes)[:-1], channels, *lengths)


def _forward_lengths(arguments: Arguments, lengths: Shape, kernel: Shape) -> Shape:
    axes, padding = len(kernel), arguments.value("padding", 0)
    stride, dilation = arguments.per_axis("stride", axes), arguments.per_axis("dilation", axes)
    if isinstance(padding, str):
        need(padding.lower() in ("same", "valid"))
        if padding.lower() == "same":
            return tuple(-(-length // step) for length, step in zip(lengths, stride, strict=True))
        padding = 0
    return Window(kernel, stride, per_axis(padding, axes), dilation).positions(lengths)


def _transposed_lengths(arguments: Arguments, lengths: Shape, kernel: Shape) -> Shape:
    names = ("stride", "padding", "dilation", "output_padding")
    values = (arguments.per_axis(name, len(kernel)) for name in names)
    return tuple(_transposed_length(*axis) for axis in zip(lengths, kernel, *values, strict=True))


def _transposed_length(*axis: int) -> int:
    length, kernel, stride, padding, dilation, output_padding = axis
    result = (length - 1) * stride - 2 * padding + dilation * (kernel - 1) + output_padding + 1
    need(result >= 0)
    return result
