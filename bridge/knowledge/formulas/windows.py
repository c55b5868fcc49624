"""Windows that slide over the last axes of a tensor: how many positions they have, and pooling.

The invariant: a shape that was recorded counts before one that is computed.
"""

from __future__ import annotations

from math import prod
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


class Window(NamedTuple):
    """A window: its length along each axis, and how it slides."""

    kernel: Shape
    stride: Shape
    padding: Shape  # at either end
    dilation: Shape

    def slid(self, lengths: Shape, *, up: bool = False) -> Shape:
        """Return how many positions it has along each axis; ``up`` rounds up."""
        return tuple(_slid(*axis, up=up) for axis in zip(lengths, *self, strict=True))


def _slid(*axis: int, up: bool) -> int:
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
