"""What is timed: a call without arguments, what it is called, and what is known of its inputs and its result.

The invariant: the call does what the user's would, with the same inputs each time.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from bridge.annotate.details import ARGUMENTS
from bridge.annotate.plain_values import Tensor, plain, plain_tensors, tensors
from bridge.annotate.wrap import own_name
from bridge.bench.devices.protocol import Call
from bridge.bench.errors import BenchError
from bridge.knowledge.formulas import Call as Costing
from bridge.knowledge.formulas import bytes_moved, flops

UNKNOWN = -1
BACKWARD = "{} backward"


@dataclass(frozen=True)
class Subject:
    """A function and its inputs, under a name; ``flops`` is "auto" (a formula by the name), a number, or None."""

    function: Any
    inputs: tuple[Any, ...] = ()
    named: Mapping[str, Any] | None = None
    name: str = ""
    flops: str | int | None = "auto"

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"a callable is timed, not {self.function!r}")
        if not (self.flops is None or self.flops == "auto" or isinstance(self.flops, int | float)):
            raise BenchError(f"flops are 'auto', a number or None, not {self.flops!r}")

    @property
    def title(self) -> str:
        """Its name, as short as it is clear."""
        return self.name or own_name(self.function)

    @property
    def call(self) -> Call:
        """The call, bound to its inputs."""
        if not self.inputs and not self.named:
            bare: Call = self.function
            return bare
        return partial(self.function, *self.inputs, **(self.named or {}))

    @property
    def given(self) -> tuple[Any, ...]:
        """All inputs, those by name last."""
        return (*self.inputs, *(self.named or {}).values())

    @property
    def shapes(self) -> tuple[Tensor, ...]:
        """Shape and dtype of each input that is a tensor; of a list its tensors' one by one."""
        return plain_tensors(tensors(self.given))

    def costs(self, result: Any) -> tuple[int, int]:
        """Return the FLOPs and the fewest bytes of a call, -1 where no formula knows them."""
        made = plain_tensors(tensors((result,))) if result is not None else ()
        call = Costing(
            self.title,
            tuple(shape for shape, _ in self.shapes),
            tuple(dtype for _, dtype in self.shapes),
            self._arguments(),
            tuple(shape for shape, _ in made),
            tuple(dtype for _, dtype in made),
        )
        counted = flops(call) if self.flops == "auto" else self.flops
        known = flops(call) is not None
        moved = bytes_moved(call) if known else None
        return _or_unknown(counted), _or_unknown(moved)

    def _arguments(self) -> dict[str, Any]:
        """Return the arguments that formulas ask for, by name or by position."""
        placed = {str(n): plain(v) for n, v in enumerate(self.inputs) if not hasattr(v, "shape")}
        return placed | {k: plain(v) for k, v in (self.named or {}).items() if k in ARGUMENTS}


def _or_unknown(number: Any) -> int:
    return UNKNOWN if number is None else int(number)


def backward(subject: Subject) -> Subject:
    """Return the backward pass of a call, by PyTorch: the gradients of its result for its inputs and parameters.

    Inputs that want a gradient get one; where none does, all floating-point ones. The forward pass has run and is kept.
    Raises ValueError for what PyTorch has no gradient of.
    """
    torch = sys.modules.get("torch")
    if torch is None or not any(isinstance(one, torch.Tensor) for one in subject.given):
        raise BenchError("backward=True is of PyTorch's tensors, and none is among the inputs")
    inputs = _wanting(torch, subject.inputs)
    made = subject.function(*inputs, **(subject.named or {}))
    outputs = [one for one in _flat(made) if isinstance(one, torch.Tensor) and one.requires_grad]
    if not outputs:
        raise BenchError(f"{subject.title}: its result has no gradient: no backward pass to time")
    parameters = (
        list(subject.function.parameters()) if hasattr(subject.function, "parameters") else []
    )
    leaves = [one for one in (*_flat(inputs), *parameters) if getattr(one, "requires_grad", False)]
    seeds = [torch.ones_like(one) for one in outputs]
    again = partial(
        torch.autograd.grad, outputs, leaves, seeds, retain_graph=True, allow_unused=True
    )
    known = subject.flops if isinstance(subject.flops, int | float) else None
    return Subject(again, (), None, BACKWARD.format(subject.title), known)


def _wanting(torch: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """Return the inputs, with gradients wanted if none was: leaves of their own, so that the user's stay as they are."""
    if any(getattr(one, "requires_grad", False) for one in _flat(inputs)):
        return tuple(inputs)
    return tuple(
        one.detach().clone().requires_grad_()
        if isinstance(one, torch.Tensor) and one.is_floating_point()
        else one
        for one in inputs
    )


def _flat(values: Any) -> list[Any]:
    if isinstance(values, list | tuple):
        return [inner for one in values for inner in _flat(one)]
    return [values]


def finished(call: Call, result: Any) -> Call:
    """Return a call that waits for its own result where a library hands out what is not computed yet, as JAX does."""
    if not any(hasattr(one, "block_until_ready") for one in _flat(result)):
        return call

    def waiting() -> Any:
        found = call()
        for one in _flat(found):
            one.block_until_ready()
        return found

    return waiting
