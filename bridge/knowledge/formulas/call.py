"""A call of an op as a formula sees it, formulas, and the bytes that a call moves.

What is read from a call is right, or ValueError or LookupError is raised; no formula guesses a
shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from operator import index
from types import MappingProxyType
from typing import Any, NamedTuple

# -- Names of ops: `aten::mm`, `torch.mm` and `aten.mm.default` are the same op


LIBRARIES = ("aten", "prims")  # followed by the op, and perhaps an overload
SPARSE_NAMESPACES = {"sparse"}  # namespaces with the names of dense ops, but less work


def keys(name: str) -> Iterator[str]:
    """Yield possible names of an op's formula, the likeliest first: ``add_`` means ``add``."""
    parts = name.replace("::", ".").split(".")
    if SPARSE_NAMESPACES.isdisjoint(parts[:-1]):
        op = _op_part(parts)
        yield from dict.fromkeys((op, op.rstrip("_"), op.strip("_") if op[:2] == "__" else op))


def _op_part(parts: list[str]) -> str:
    """Return the part that names the op: the last one, except for overloads."""
    if parts[:2] == ["torch", "ops"] and len(parts) > 3:  # noqa: PLR2004 - torch.ops.aten.mm
        return parts[3]
    for library in LIBRARIES:
        if library in parts[:-1]:
            return parts[parts.index(library) + 1]
    return parts[-1]


# -- Calls


Shape = tuple[int, ...]
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Call(NamedTuple):
    """A call: the name of the op, and shape and dtype of each positional input.

    A shape is None for an input that is no tensor; lists of tensors are flattened. A dtype is a
    text such as "float32", '' if unknown. ``arguments`` are scalars, by name or by position ("3").
    ``outputs`` may be unknown: ().
    """

    name: str
    shapes: tuple[Shape | None, ...] = ()
    dtypes: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = NOTHING
    outputs: tuple[Shape | None, ...] = ()
    output_dtypes: tuple[str, ...] = ()


Count = Callable[[Call], int | None]
Outputs = Callable[[Call], Sequence[Shape]]
Counting = tuple[Count, Outputs]  # FLOPs, and the shapes of the outputs


def checked_call(call: Call) -> Call:
    """Return the call with shapes of plain integers; raises ValueError or TypeError for others."""
    return call._replace(shapes=_shapes(call.shapes), outputs=_shapes(call.outputs))


def _shapes(shapes: Iterable[Iterable[int] | None]) -> tuple[Shape | None, ...]:
    return tuple(None if shape is None else tuple(map(_length, shape)) for shape in shapes)


def _length(value: int) -> int:
    length = index(value)
    need(length >= 0)  # symbolic lengths are recorded as -1
    return length


def need(condition: bool) -> None:
    """Raise ValueError unless a condition of the op holds."""
    if not condition:
        raise ValueError("not a call of this op")


def tensor(call: Call, place: int) -> Shape:
    """Return the shape of an input; raises ValueError or IndexError if it is no tensor."""
    shape = call.shapes[place]
    if shape is None:
        raise ValueError(f"input {place} is no tensor")
    return shape


def tensors(call: Call) -> list[Shape]:
    """Return the shapes of all inputs that are tensors."""
    return [shape for shape in call.shapes if shape is not None]


def argument(call: Call, name: str, place: int | None, default: Any) -> Any:
    """Return an argument's value, the default if it was not passed.

    ``place`` is its position, None without one. Raises KeyError if it was passed by position and
    its value was not recorded.
    """
    for key in (name, str(place)):
        if key in call.arguments:
            return call.arguments[key]
    if place is not None and place < len(call.shapes):
        raise KeyError(name)
    return default


def per_axis(value: Any, axes: int) -> Shape:
    """Return one integer per axis; a single value applies to all axes."""
    numbers = tuple(map(index, value)) if isinstance(value, Sequence) else (index(value),)
    numbers = numbers * axes if len(numbers) == 1 else numbers
    need(len(numbers) == axes)
    return numbers


def broadcast(*shapes: Shape) -> Shape:
    """Return the broadcast shape; raises ValueError if the shapes do not fit."""
    rank = max(map(len, shapes), default=0)
    aligned = ((1,) * (rank - len(shape)) + shape for shape in shapes)
    return tuple(map(_common, zip(*aligned, strict=True)))


def _common(lengths: Sequence[int]) -> int:
    others = set(lengths) - {1}
    need(len(others) <= 1)
    return others.pop() if others else 1


def unknown(call: Call) -> Sequence[Shape]:
    """Raise ValueError: the shapes of the outputs do not follow from the inputs."""
    raise ValueError(f"{call.name}: no outputs recorded")


def counting(count_and_shape: Callable[[Call], tuple[int, Shape]]) -> Counting:
    """Return FLOPs and output shape as two functions, from one that returns both."""
    return lambda call: count_and_shape(call)[0], lambda call: (count_and_shape(call)[1],)


def scaled(weight: int, shape_of: Callable[[Call], Shape]) -> Counting:
    """Count ``weight`` FLOPs per element of a shape, which is also that of the output."""
    return counting(lambda call: (weight * prod(shape := shape_of(call)), shape))


# -- Formulas


VIEW = "view"  # the kind of ops that access no data

Reads = Callable[[Call], Iterable[int]]  # the positions of the inputs that are read


class Formula(NamedTuple):
    """How FLOPs and bytes of an op follow from its arguments.

    It is not ``exact`` if the weight of an element is a convention, or if parts are left out.
    """

    kind: str
    text: str
    source: str
    exact: bool
    flops: Count
    outputs: Outputs = unknown  # their shapes
    dtype: str = ""  # of the outputs; '': that of the floating inputs
    reads: Reads | None = None  # None: all inputs


Row = tuple[str, Formula]  # names of ops, separated by spaces


def rows(
    kind: str,
    source: str,
    *formulas: tuple[str, str, Counting],
    exact: bool = True,
    dtype: str = "",
    reads: Reads | None = None,
) -> tuple[Row, ...]:
    """Return rows of one kind from names, text and counting functions."""
    return tuple(
        (names, Formula(kind, text, source, exact, *counting, dtype=dtype, reads=reads))
        for names, text, counting in formulas
    )


# -- Bytes


# Names of PyTorch, NumPy and C++, by bytes.
FLOAT_TYPES = {
    8: "float64 double complex64 cfloat",
    4: "float32 float",
    2: "float16 half Half bfloat16 BFloat16",
    1: "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu",
    16: "complex128 cdouble",
}
INTEGER_TYPES = {
    8: "int64 uint64 long",
    4: "int32 uint32 int",
    2: "int16 uint16 short",
    1: "int8 uint8 bool bool_ char byte",
}
WIDTHS = {
    name: size
    for sizes in (FLOAT_TYPES, INTEGER_TYPES)
    for size, names in sizes.items()
    for name in names.split()
}
FLOATS = {name for names in FLOAT_TYPES.values() for name in names.split()}


def integer_inputs(call: Call) -> Iterator[int]:
    """Yield the positions of the integer inputs: indices into the others."""
    for place, dtype in enumerate(call.dtypes):
        if plain_dtype(dtype) in WIDTHS and plain_dtype(dtype) not in FLOATS:
            yield place


def plain_dtype(dtype: str) -> str:
    """Return a dtype without its library, as in ``torch.float32`` and ``c10::Half``."""
    return dtype.replace("::", ".").rpartition(".")[2]


def count_bytes(call: Call, formula: Formula | None) -> int:
    """Return the bytes that a call must move: all inputs read once, all outputs written once.

    This is a lower bound; caches only add to it. Raises ValueError or LookupError if a size is
    unknown.
    """
    if formula is not None and formula.kind == VIEW:
        return 0
    return _bytes_read(call, formula) + _bytes_written(call, formula)


def _bytes_read(call: Call, formula: Formula | None) -> int:
    positions = None if formula is None or formula.reads is None else set(formula.reads(call))
    dtypes = (*call.dtypes, *("" for _ in call.shapes[len(call.dtypes) :]))
    inputs = zip(call.shapes, dtypes, strict=True)
    return _sum_bytes(
        shape_and_dtype
        for place, shape_and_dtype in enumerate(inputs)
        if positions is None or place in positions
    )


def _bytes_written(call: Call, formula: Formula | None) -> int:
    shapes = call.outputs
    if not shapes:
        need(formula is not None)
        shapes = tuple(formula.outputs(call)) if formula else ()
    dtypes = call.output_dtypes or (_output_dtype(call, formula),) * len(shapes)
    return _sum_bytes(zip(shapes, dtypes, strict=True))


def _output_dtype(call: Call, formula: Formula | None) -> str:
    """Return the dtype of the outputs: the op's own, or that of all floating-point inputs."""
    if formula is None or formula.dtype:
        return formula.dtype if formula else ""
    dtypes = {plain_dtype(dtype) for dtype in call.dtypes} & FLOATS
    need(len(dtypes) == 1)
    return dtypes.pop()


def _sum_bytes(tensors: Iterable[tuple[Shape | None, str]]) -> int:
    """Return the bytes of tensors; PyTorch writes () without a dtype for other values."""
    return sum(
        prod(shape) * WIDTHS[plain_dtype(dtype)]
        for shape, dtype in tensors
        if shape is not None and (shape or dtype)
    )
