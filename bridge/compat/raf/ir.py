"""Expressions for RAF's op profiler: `var` and `op`, as RAF's guide writes them; PyTorch runs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

ALIASES = {  # RAF's names of what PyTorch calls otherwise
    "batch_matmul": "bmm",
    "dense": "linear",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
}


@dataclass(frozen=True)
class Var:
    """An input: a tensor of this shape and dtype, with random numbers."""

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"

    def tensor(self, device: str) -> Any:
        """Return a new tensor on a device."""
        torch: Any = import_module("torch")
        dtype = getattr(torch, self.dtype)
        made = torch.rand(self.shape, device=device) if dtype.is_floating_point else None
        return (
            torch.ones(self.shape, dtype=dtype, device=device) if made is None else made.to(dtype)
        )


@dataclass(frozen=True)
class Call:
    """A call of an operator with its inputs."""

    function: Callable[..., Any]
    inputs: tuple[Any, ...]

    @property
    def body(self) -> Call:
        """The call itself, as the body of RAF's function."""
        return self

    def arguments(self, device: str) -> tuple[Any, ...]:
        """Return the inputs, variables as tensors on a device."""
        return tuple(v.tensor(device) if isinstance(v, Var) else v for v in self.inputs)


def var(name: str, shape: Sequence[int] = (), dtype: str = "float32") -> Var:
    """Return a variable."""
    return Var(name, tuple(shape), dtype)


class _Operators:
    """PyTorch's functions by name, each of which returns a `Call`."""

    def __getattr__(self, name: str) -> Callable[..., Call]:
        torch: Any = import_module("torch")
        known = ALIASES.get(name, name)
        function = getattr(torch.nn.functional, known, None) or getattr(torch, known, None)
        if function is None:
            raise AttributeError(f"PyTorch has no operator {name!r}")

        def call(*inputs: Any, **attributes: Any) -> Call:
            return Call(partial(function, **attributes) if attributes else function, inputs)

        return call


op = _Operators()
