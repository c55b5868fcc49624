"""One call of an op as a formula sees it, and how a formula reads it.

The invariant: what is read is right, or ValueError or LookupError is raised; no formula guesses a shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from operator import index
from types import MappingProxyType
from typing import Any, NamedTuple

# -- The names of ops: what `aten::mm`, `torch.mm` and `aten.mm.default` have in common


LIBRARIES = ("aten", "prims")  # after these comes the op, then maybe an overload
OTHERS = {"sparse"}  # namespaces whose ops have the names of dense ones, and do less


def keys(name: str) -> Iterator[str]:
    """Give what an op's formula may stand under, the likeliest first: ``add_`` is ``add`` in place."""
    parts = name.replace("::", ".").split(".")
    if OTHERS.isdisjoint(parts[:-1]):
        op = _op(parts)
        yield from dict.fromkeys((op, op.rstrip("_"), op.strip("_") if op[:2] == "__" else op))


def _op(parts: list[str]) -> str:
    """Return the part that names the op: the last one, but for overloads."""
    if parts[:2] == ["torch", "ops"] and len(parts) > 3:  # noqa: PLR2004 (torch.ops.aten.mm)
        return parts[3]
    at = next((parts.index(library) for library in LIBRARIES if library in parts[:-1]), -2)
    return parts[at + 1]


# -- One call of an op as a formula sees it, and how a formula reads it


Shape = tuple[int, ...]
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Call(NamedTuple):
    """A call: its op's name, and of each positional input, in order, the shape and the dtype.

    A shape is None for what is no tensor; a list of tensors stands flattened. A dtype is such as "float32", ''
    where unknown. ``arguments`` are the scalar ones, by name or by position ("3"). Outputs may be unknown.
    """

    name: str
    shapes: tuple[Shape | None, ...] = ()
    dtypes: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = NOTHING
    outputs: tuple[Shape | None, ...] = ()
    output_dtypes: tuple[str, ...] = ()


Count = Callable[[Call], int | None]
Outputs = Callable[[Call], Sequence[Shape]]
Counting = tuple[Count, Outputs]  # how many FLOPs, and what shapes come out


def lawful(call: Call) -> Call:
    """Return the call with tuples of plain integers as shapes; raise ValueError or TypeError for other shapes."""
    return call._replace(shapes=_lawful(call.shapes), outputs=_lawful(call.outputs))


def _lawful(shapes: Iterable[Iterable[int] | None]) -> tuple[Shape | None, ...]:
    return tuple(None if shape is None else tuple(map(_length, shape)) for shape in shapes)


def _length(value: int) -> int:
    length = index(value)
    need(length >= 0)  # a symbol is recorded as -1
    return length


def need(condition: bool) -> None:
    """Raise ValueError unless the call is as its op wants it."""
    if not condition:
        raise ValueError("not a call of this op")


def tensor(call: Call, place: int) -> Shape:
    """Return the shape of the input at this position; raise ValueError or IndexError where there is no tensor."""
    shape = call.shapes[place]
    if shape is None:
        raise ValueError(f"input {place} is no tensor")
    return shape


def tensors(call: Call) -> list[Shape]:
    """Return the shapes of all inputs that are tensors."""
    return [shape for shape in call.shapes if shape is not None]


def argument(call: Call, name: str, place: int | None, default: Any) -> Any:
    """Return an argument's value, its default if it was not given; it has a position, unless that is None.

    Raise KeyError if it was given at its position and nobody recorded what.
    """
    for key in (name, str(place)):
        if key in call.arguments:
            return call.arguments[key]
    if place is not None and place < len(call.shapes):
        raise KeyError(name)
    return default


def per_axis(value: Any, axes: int) -> Shape:
    """Return one integer for each of the axes; a single one is for all."""
    numbers = tuple(map(index, value)) if isinstance(value, Sequence) else (index(value),)
    numbers = numbers * axes if len(numbers) == 1 else numbers
    need(len(numbers) == axes)
    return numbers


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape of what is computed element by element; raise ValueError if the shapes do not fit."""
    rank = max(map(len, shapes), default=0)
    aligned = ((1,) * (rank - len(shape)) + shape for shape in shapes)
    return tuple(map(_common, zip(*aligned, strict=True)))


def _common(lengths: Sequence[int]) -> int:
    different = set(lengths) - {1}
    need(len(different) <= 1)
    return different.pop() if different else 1


def unknown(call: Call) -> Sequence[Shape]:
    """Raise ValueError: inputs do not say what comes out of this op."""
    raise ValueError(f"{call.name}: no outputs recorded")


def counting(made: Callable[[Call], tuple[int, Shape]]) -> Counting:
    """Split what gives an op's FLOPs and its output's shape in one."""
    return lambda call: made(call)[0], lambda call: (made(call)[1],)


def scaled(weight: int, shape_of: Callable[[Call], Shape]) -> Counting:
    """Count so many FLOPs for each element of a shape, which is that of the output."""
    return counting(lambda call: (weight * prod(shape := shape_of(call)), shape))


# -- A formula: how an op's FLOPs and bytes follow from its arguments, in words and as functions


VIEW = "view"  # the kind of ops that touch no data

Reads = Callable[[Call], Iterable[int]]  # the positions of the inputs that are read


class Formula(NamedTuple):
    """What is used for an op; not ``exact`` where a weight per element is a convention, or parts are left out."""

    kind: str
    text: str
    source: str
    exact: bool
    flops: Count
    outputs: Outputs = unknown  # the shapes that come out
    dtype: str = ""  # of the outputs; '': that of the floating inputs
    reads: Reads | None = None  # None: all inputs


Row = tuple[str, Formula]  # the names of ops, a space between them


def rows(
    kind: str,
    source: str,
    *listed: tuple[str, str, Counting],
    exact: bool = True,
    dtype: str = "",
    reads: Reads | None = None,
) -> tuple[Row, ...]:
    """Make rows of one kind: names, text and what counts, each."""
    return tuple(
        (names, Formula(kind, text, source, exact, *counting, dtype, reads))
        for names, text, counting in listed
    )
