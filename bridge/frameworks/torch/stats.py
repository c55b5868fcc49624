"""Statistics of a PyTorch model: parameters, buffers, outputs, and FLOPs of a forward pass.

An op counts once for every module that is running. Sums of parameters and buffers count each tensor
once, even if several modules hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from bridge.frameworks.torch.receptive import ReceptiveFields, text
from bridge.knowledge.formulas import Call, flops
from bridge.knowledge.formulas.conventions import NAMES, OURS
from bridge.knowledge.suggestions import unknown_name

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    "module",
    "type",
    "calls",
    "params",
    "buffers",
    "param_bytes",
    "input",
    "output",
    "activations",
    "activation_bytes",
    "flops",
    "receptive_field",
    "stride",
    "no_formula",
)
NONE = -1


@dataclass
class Module:
    """A module: its own parameters and buffers (elements), outputs, and FLOPs of all ops in it.

    ``flops`` is -1 if ops ran and none of them has a formula. ``no_formula`` holds the ops without
    a formula and how often they ran. ``receptive_field`` and ``stride`` of the output are in
    elements of the model's input along each dimension, as ``7x7``; '' if unknown.
    """

    module: str
    type: str
    calls: int = 0
    params: int = 0
    buffers: int = 0
    param_bytes: int = 0
    input: str = ""
    output: str = ""
    activations: int = 0
    activation_bytes: int = 0
    flops: int = 0
    receptive_field: str = ""
    stride: str = ""
    no_formula: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Stats:
    """The modules of a model, outer before inner.

    The first is the model itself, with the name ''.
    """

    modules: tuple[Module, ...]
    params: int
    buffers: int
    bytes: int

    @property
    def flops(self) -> int:
        """FLOPs of the whole forward pass."""
        return self.modules[0].flops

    def to_frame(self) -> pd.DataFrame:
        """Return a frame with a row per module; ``no_formula`` is text."""
        import pandas as pd  # loaded on demand

        rows = [
            {**vars(module), "no_formula": _listed(module.no_formula)} for module in self.modules
        ]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def table(self) -> str:
        """Return the modules as aligned text, and a line of totals."""
        head = ("module", "type", "params", "output", "activations", "FLOPs")
        rows = [head, *map(_cells, self.modules)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
        rule = "  ".join("-" * width for width in widths)
        whole = (
            f"{self.params:,} parameters, {self.buffers:,} in buffers, {self.bytes:,} bytes,"
            f" {_number(self.flops)} FLOPs"
        )
        return "\n".join([lines[0], rule, *lines[1:], rule, whole]) + "\n"

    __str__ = table


def model_stats(model: nn.Module, *inputs: Any, convention: str = OURS, **keywords: Any) -> Stats:
    """Run one forward pass without gradients and return the statistics of each module.

    The mode of the model, its buffers and the state of the random number generators do not change.
    FLOPs are those of the ops that ran, by a ``convention`` of bridge.knowledge.formulas. Raises
    ValueError for an unknown convention.
    """
    if convention not in NAMES:
        raise ValueError(unknown_name("convention", convention, NAMES))
    result = {name: _module_stats(name, module) for name, module in model.named_modules()}
    saved_buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    counter = _OpCounter(
        {id(module): name for name, module in model.named_modules()}, result, convention
    )
    counter.fields.begin(_tensors((inputs, keywords)))
    hooks = [hook for module in model.modules() for hook in counter.register(module)]
    try:
        with torch.random.fork_rng(), torch.no_grad(), counter:
            model(*inputs, **keywords)
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in saved_buffers and buffer.shape == saved_buffers[name].shape:
                    buffer.copy_(saved_buffers[name])
    return Stats(tuple(result.values()), *_totals(model))


class _OpCounter(TorchDispatchMode):  # type: ignore[misc]
    """Counts FLOPs of the ops of one forward pass for every running module."""

    def __init__(
        self, names: Mapping[int, str], result: Mapping[str, Module], convention: str
    ) -> None:
        super().__init__()
        self.names, self.modules, self.convention = names, result, convention
        self.running: list[str] = []
        self.has_formula: dict[str, bool] = {}
        self.fields = ReceptiveFields()

    def register(self, module: nn.Module) -> Iterable[Any]:
        """Register hooks for the calls of a module; yields their handles."""
        name = self.names[id(module)]
        yield module.register_forward_pre_hook(lambda *_: self.running.append(name), prepend=True)
        yield module.register_forward_hook(
            lambda _module, inputs, output: self._ended(name, inputs, output), always_call=True
        )

    def _ended(self, name: str, inputs: Any, output: Any) -> None:
        if self.running and self.running[-1] == name:
            self.running.pop()
        module = self.modules[name]
        tensors = list(_tensors(output))
        module.calls += 1
        module.input = _shapes_text(_tensors(inputs))
        module.output = _shapes_text(tensors)
        fields = [self.fields.of(tensor) for tensor in tensors[:1]]
        lengths, strides = next(iter(fields), None) or (None, None)
        module.receptive_field, module.stride = text(lengths), text(strides)
        module.activations += sum(tensor.numel() for tensor in tensors)
        module.activation_bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.fields.note(func.name(), args, out if isinstance(out, list | tuple) else (out,))
        call = _call(func.name(), args, kwargs or {}, out)
        count = flops(call, self.convention)
        for name in dict.fromkeys(self.running):
            module = self.modules[name]
            if count is None:
                op = call.name.partition(".")[0]
                module.no_formula[op] = module.no_formula.get(op, 0) + 1
                module.flops = (
                    NONE if module.flops <= 0 and not self.has_formula.get(name) else module.flops
                )
            else:
                module.flops = max(module.flops, 0) + count
                self.has_formula[name] = True
        return out


def _call(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Call:
    inputs = list(_flat(args))
    outputs = out if isinstance(out, list | tuple) else (out,)
    positional = {
        str(place): value for place, value in enumerate(args) if not isinstance(value, torch.Tensor)
    }
    return Call(
        name.partition(".")[0] if "::" in name else name,
        tuple(map(_shape, inputs)),
        tuple(map(_dtype, inputs)),
        {**positional, **kwargs},
        tuple(map(_shape, outputs)),
        tuple(map(_dtype, outputs)),
    )


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        is_list = isinstance(value, list | tuple)
        if is_list and any(isinstance(item, torch.Tensor) for item in value):
            yield from value
        else:
            yield value


def _shape(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _dtype(value: Any) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else ""


def _shapes_text(tensors: Iterable[torch.Tensor]) -> str:
    return ", ".join(str(list(tensor.shape)) for tensor in tensors)


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _module_stats(name: str, module: nn.Module) -> Module:
    parameters = list(module.parameters(recurse=False))
    return Module(
        module=name,
        type=type(module).__name__,
        params=sum(tensor.numel() for tensor in parameters),
        buffers=sum(tensor.numel() for tensor in module.buffers(recurse=False)),
        param_bytes=sum(tensor.numel() * tensor.element_size() for tensor in parameters),
    )


def _totals(model: nn.Module) -> tuple[int, int, int]:
    """Return elements of parameters, elements of buffers, and bytes of both.

    Each tensor counts once.
    """
    params, buffers = list(model.parameters()), list(model.buffers())
    size = sum(tensor.numel() * tensor.element_size() for tensor in (*params, *buffers))
    return sum(tensor.numel() for tensor in params), sum(tensor.numel() for tensor in buffers), size


def _cells(module: Module) -> tuple[str, ...]:
    indent = "  " * (module.module.count(".") + bool(module.module))
    name = indent + (module.module.rpartition(".")[2] or "(model)")
    return (
        name,
        module.type,
        _number(module.params),
        module.output,
        _number(module.activations),
        _number(module.flops),
    )


def _number(value: int) -> str:
    return "no formula" if value == NONE else f"{value:,}"


def _aligned(row: Iterable[str], widths: Iterable[int]) -> Iterable[str]:
    texts = (0, 1, 3)
    for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.ljust(width) if place in texts else cell.rjust(width)


def _listed(ops: Mapping[str, int]) -> str:
    return ", ".join(f"{op} ({count})" if count > 1 else op for op, count in ops.items())
