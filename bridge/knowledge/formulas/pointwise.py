"""What is counted by elements: elementwise ops, norms, softmax, reductions, losses, and recurrent layers.

The invariant: an op counts the same whether its scalars stand as numbers or as tensors of shape ().
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod
from operator import index

from bridge.knowledge.formulas.call import (
    Call,
    Counting,
    Outputs,
    Shape,
    argument,
    broadcast,
    need,
    scaled,
    tensor,
    tensors,
    unknown,
)
from bridge.knowledge.formulas.traffic import integers

MATRIX = 2  # dimensions
PAIR = 2  # tensors


def _every(call: Call) -> Shape:
    shapes = tensors(call)
    need(bool(shapes))
    return broadcast(*shapes)


def every(weight: int) -> Counting:
    """Count so many FLOPs for each element of what all inputs are broadcast to."""
    return scaled(weight, _every)


def one(weight: int, place: int = 0) -> Counting:
    """Count so many FLOPs for each element of the input at this position."""
    return scaled(weight, partial(tensor, place=place))


def scattered(source: int, into: int) -> Counting:
    """Count one addition for each element of a source, into a tensor as the one at another position."""
    return one(1, source)[0], like(into)


def nothing(outputs: Outputs = unknown) -> Counting:
    """Count nothing, for what only moves data."""
    return lambda _: 0, outputs


def like(place: int) -> Outputs:
    """Say that what comes out has the shape of the input at this position."""
    return lambda call: (tensor(call, place),)


def looked_up(call: Call) -> tuple[Shape, ...]:
    """Return the shape of a look-up: that of the indices, and a row of the table, whichever comes first."""
    places = set(integers(call))
    need(len(places) == 1 and len(tensors(call)) == PAIR)
    place = places.pop()
    indices, table = tensor(call, place), tensor(call, 1 - place)
    return ((*indices, *table[1:]),)


def table_of(call: Call) -> tuple[Shape, ...]:
    """Return the shape of the table that gradients are added into."""
    return ((index(argument(call, "num_weights", 2, None)), tensor(call, 0)[-1]),)


def reduced(weight: int) -> Counting:
    """Count so many FLOPs for each element that goes in; what comes out is one for each place along ``dim``."""
    return one(weight)[0], lambda call: (_reduced(call),)


def _reduced(call: Call) -> Shape:
    """Return the lengths that are left; whether ones stand for the others makes no difference in bytes."""
    shape = tensor(call, 0)
    dims = call.arguments["axis"] if "axis" in call.arguments else argument(call, "dim", 1, None)
    dims = range(len(shape)) if dims in (None, [], ()) else dims
    gone = {range(len(shape))[dim] for dim in (dims if isinstance(dims, Sequence) else (dims,))}
    return tuple(length for axis, length in enumerate(shape) if axis not in gone)


def _layers(call: Call) -> int:
    x, *others = tensors(call)
    weights = [prod(shape) for shape in others if len(shape) == MATRIX]
    need(len(x) == MATRIX + 1 and bool(weights))
    return 2 * x[0] * x[1] * sum(weights)


layers: Counting = (_layers, unknown)  # every matrix is applied to each step of each sequence


def cell(first: int) -> Counting:
    """Count one step of a recurrent layer, whose two matrices stand from position ``first`` on."""

    def count(call: Call) -> int:
        x, *weights = (tensor(call, place) for place in (0, first, first + 1))
        need(all(len(weight) == MATRIX for weight in weights) and x[-1] == weights[0][1])
        return 2 * prod(x[:-1]) * sum(map(prod, weights))

    return count, unknown
