"""Inputs of given shapes and dtypes, filled with random numbers, the same each time.

The invariant: floating-point numbers are of a standard normal distribution, integers from 0 to 9, and a seed decides which.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from bridge.bench.errors import BenchError
from bridge.bench.points import Shape

LIBRARIES = ("torch", "cupy", "numpy")
SEED = 0
BELOW = 10  # of integers


def library(text: str, function: Any) -> str:
    """Return which library a function (``FILE.py::name``, ``MODULE::name``) is of, or its file imports; NumPy without any."""
    own = text.partition(":")[0].partition(".")[0]
    if own in LIBRARIES:
        return own
    file = sys.modules.get(getattr(function, "__module__", None) or "")
    imported = {getattr(one, "__name__", "") for one in vars(file).values()} if file else set()
    roots = {name.partition(".")[0] for name in imported if isinstance(name, str)}
    return next((name for name in LIBRARIES if name in roots), "numpy")


def inputs(
    shapes: Sequence[Shape], dtypes: Sequence[str], name: str, device: str | None
) -> list[Any]:
    """Make a tensor for each shape; of one dtype for all, or of one each. Raises BenchError."""
    dtypes = list(dtypes) * (len(shapes) if len(dtypes) == 1 else 1)
    if len(dtypes) != len(shapes):
        raise BenchError(f"--dtype: {len(dtypes)} for {len(shapes)} shapes; give one, or one each")
    try:
        make = {"torch": _torch, "numpy": _numpy, "cupy": _cupy}[name](device)
    except ImportError as error:
        raise BenchError(f"--with {name}: {error}") from error
    return [_made(make, shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]


def _made(make: Any, shape: Shape, dtype: str) -> Any:
    try:
        return make(shape, dtype)
    except (TypeError, AttributeError) as error:
        raise BenchError(f"--dtype {dtype}: no dtype of this library") from error
    except (AssertionError, MemoryError, RuntimeError, ValueError) as error:
        first = str(error).partition("\n")[0]
        raise BenchError(f"{dtype} {'x'.join(map(str, shape))}: {first}") from error


def _numpy(device: str | None) -> Any:
    import numpy  # noqa: ICN001, PLC0415 - beside two others with the same face

    if device not in {None, "cpu"}:
        raise BenchError(f"--device {device}: NumPy's arrays are on the CPU; --with torch or cupy")
    return _of_arrays(numpy, numpy.random.default_rng(SEED))


def _cupy(_device: str | None) -> Any:
    import cupy  # noqa: PLC0415 - where it is asked for

    return _of_arrays(cupy, cupy.random.default_rng(SEED))


def _of_arrays(library: Any, random: Any) -> Any:
    def make(shape: Shape, dtype: str) -> Any:
        kind = library.dtype(dtype)
        if kind.kind in "fc":
            return random.standard_normal(shape).astype(kind)
        return random.integers(0, 2 if kind.kind == "b" else BELOW, shape).astype(kind)

    return make


def _torch(device: str | None) -> Any:
    import torch  # noqa: PLC0415 - where it is asked for, or loaded already

    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator().manual_seed(SEED)

    def make(shape: Shape, dtype: str) -> Any:
        kind = getattr(torch, dtype)
        if not isinstance(kind, torch.dtype):
            raise TypeError(dtype)
        if kind.is_floating_point or kind.is_complex:
            return torch.randn(shape, generator=generator).to(where, kind)
        below = 2 if kind is torch.bool else BELOW
        return torch.randint(0, below, shape, generator=generator).to(where, kind)

    return make
