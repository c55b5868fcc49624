"""The bytes that a call must move: what it reads, once, and what it writes, once.

The invariant: a lower bound, or ValueError or LookupError where a size is not known; caches can only add to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from bridge.knowledge.formulas.call import VIEW, Call, Formula, Shape, need

# PyTorch's, NumPy's and C++'s names, by bytes.
FLOATING = {
    8: "float64 double complex64 cfloat",
    4: "float32 float",
    2: "float16 half Half bfloat16 BFloat16",
    1: "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu",
    16: "complex128 cdouble",
}
OTHERS = {
    8: "int64 uint64 long",
    4: "int32 uint32 int",
    2: "int16 uint16 short",
    1: "int8 uint8 bool bool_ char byte",
}
WIDTHS = {name: size for sizes in (FLOATING, OTHERS) for size, names in sizes.items() for name in names.split()}  # fmt: skip
FLOATS = {name for names in FLOATING.values() for name in names.split()}


def integers(call: Call) -> Iterator[int]:
    """Give the positions of the inputs that are whole numbers: indices into the others."""
    for place, dtype in enumerate(call.dtypes):
        if plain(dtype) in WIDTHS and plain(dtype) not in FLOATS:
            yield place


def plain(dtype: str) -> str:
    """Return a dtype without the library that it is of, as in ``torch.float32`` and ``c10::Half``."""
    return dtype.replace("::", ".").rpartition(".")[2]


def moved(call: Call, formula: Formula | None) -> int:
    """Return the bytes read and written."""
    if formula is not None and formula.kind == VIEW:
        return 0
    return _read(call, formula) + _written(call, formula)


def _read(call: Call, formula: Formula | None) -> int:
    some = None if formula is None or formula.reads is None else set(formula.reads(call))
    dtypes = (*call.dtypes, *("" for _ in call.shapes[len(call.dtypes) :]))
    inputs = zip(call.shapes, dtypes, strict=True)
    return _bytes(one for place, one in enumerate(inputs) if some is None or place in some)


def _written(call: Call, formula: Formula | None) -> int:
    shapes = call.outputs
    if not shapes:
        need(formula is not None)
        shapes = tuple(formula.outputs(call)) if formula else ()
    dtypes = call.output_dtypes or (_made(call, formula),) * len(shapes)
    return _bytes(zip(shapes, dtypes, strict=True))


def _made(call: Call, formula: Formula | None) -> str:
    """Return the dtype of the outputs: the one that all floating inputs have, unless the op has one of its own."""
    if formula is None or formula.dtype:
        return formula.dtype if formula else ""
    floating = {plain(dtype) for dtype in call.dtypes} & FLOATS
    need(len(floating) == 1)
    return floating.pop()


def _bytes(tensors: Iterable[tuple[Shape | None, str]]) -> int:
    """Add up tensors; () of no dtype is what PyTorch writes for what is no tensor."""
    return sum(
        prod(shape) * WIDTHS[plain(dtype)]
        for shape, dtype in tensors
        if shape is not None and (shape or dtype)
    )
