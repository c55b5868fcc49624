"""What a PyTorch model is made of: parameters, buffers, what each module gives out, and the FLOPs of one forward pass.

The invariant: a call of an op counts for the innermost module around it, and so once; sums of parameters and buffers
take each tensor once, however many modules hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from bridge.knowledge.formulas import Call, flops
from bridge.knowledge.formulas.conventions import NAMES, OURS

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("module", "type", "calls", "params", "buffers", "param_bytes", "output", "activations", "activation_bytes", "flops", "no_formula")  # fmt: skip
NONE = -1


@dataclass
class Module:
    """A module: its own parameters and buffers (elements), what its calls gave out, and the FLOPs of all within it.

    ``flops`` is -1 where ops ran and none of them has a formula; ``no_formula`` are those that have none and how often
    they ran.
    """

    module: str
    type: str
    calls: int = 0
    params: int = 0
    buffers: int = 0
    param_bytes: int = 0
    output: str = ""
    activations: int = 0
    activation_bytes: int = 0
    flops: int = 0
    no_formula: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Stats:
    """The modules of a model, outer before inner; the first is the model itself, as module ''."""

    modules: tuple[Module, ...]
    params: int
    buffers: int
    bytes: int

    @property
    def flops(self) -> int:
        """FLOPs of the whole forward pass."""
        return self.modules[0].flops

    def to_frame(self) -> pd.DataFrame:
        """Return a row per module; ``no_formula`` as a text."""
        import pandas as pd  # only who asks for it needs it

        rows = [{**vars(one), "no_formula": _listed(one.no_formula)} for one in self.modules]
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def table(self) -> str:
        """Return the modules as aligned text, and a line of totals."""
        head = ("module", "type", "params", "output", "activations", "FLOPs")
        rows = [head, *map(_cells, self.modules)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(_aligned(row, widths)).rstrip() for row in rows]
        rule = "  ".join("-" * width for width in widths)
        whole = f"{self.params:,} parameters, {self.buffers:,} in buffers, {self.bytes:,} bytes, {_number(self.flops)} FLOPs"
        return "\n".join([lines[0], rule, *lines[1:], rule, whole]) + "\n"

    __str__ = table


def model_stats(model: nn.Module, *inputs: Any, convention: str = OURS, **keywords: Any) -> Stats:
    """Run one forward pass without gradients and say what each module holds, gives out and computes.

    The model's mode, its buffers and the state of the random numbers are as before afterwards. FLOPs are of the ops
    that ran, by a ``convention`` of bridge.knowledge.formulas. Raises ValueError for another word.
    """
    if convention not in NAMES:
        raise ValueError(f"no convention {convention!r}: one of {', '.join(NAMES)}")
    found = {name: _described(name, module) for name, module in model.named_modules()}
    kept = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
    watch = _Watch({id(module): name for name, module in model.named_modules()}, found, convention)
    hooks = [hook for module in model.modules() for hook in watch.hooked(module)]
    try:
        with torch.random.fork_rng(), torch.no_grad(), watch:
            model(*inputs, **keywords)
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for name, buffer in model.named_buffers():
                if name in kept and buffer.shape == kept[name].shape:
                    buffer.copy_(kept[name])
    return Stats(tuple(found.values()), *_totals(model))


class _Watch(TorchDispatchMode):  # type: ignore[misc]
    """Counts the ops of one forward pass for every module that is running."""

    def __init__(
        self, names: Mapping[int, str], found: Mapping[str, Module], convention: str
    ) -> None:
        super().__init__()
        self.names, self.found, self.convention = names, found, convention
        self.running: list[str] = []
        self.known: dict[str, bool] = {}

    def hooked(self, module: nn.Module) -> Iterable[Any]:
        """Hook into the calls of a module; gives what removes the hooks."""
        name = self.names[id(module)]
        yield module.register_forward_pre_hook(lambda *_: self.running.append(name), prepend=True)
        yield module.register_forward_hook(
            lambda _module, _inputs, output: self._ended(name, output), always_call=True
        )

    def _ended(self, name: str, output: Any) -> None:
        if self.running and self.running[-1] == name:
            self.running.pop()
        module = self.found[name]
        tensors = list(_tensors(output))
        module.calls += 1
        module.output = ", ".join(str(list(one.shape)) for one in tensors)
        module.activations += sum(one.numel() for one in tensors)
        module.activation_bytes += sum(one.numel() * one.element_size() for one in tensors)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        call = _call(func.name(), args, kwargs or {}, out)
        count = flops(call, self.convention)
        for name in dict.fromkeys(self.running):
            module = self.found[name]
            if count is None:
                op = call.name.partition(".")[0]
                module.no_formula[op] = module.no_formula.get(op, 0) + 1
                module.flops = (
                    NONE if module.flops <= 0 and not self.known.get(name) else module.flops
                )
            else:
                module.flops = max(module.flops, 0) + count
                self.known[name] = True
        return out


def _call(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> Call:
    given = list(_flat(args))
    made = out if isinstance(out, list | tuple) else (out,)
    said = {str(place): one for place, one in enumerate(args) if not isinstance(one, torch.Tensor)}
    return Call(
        name.partition(".")[0] if "::" in name else name,
        tuple(map(_shape, given)),
        tuple(map(_dtype, given)),
        {**said, **kwargs},
        tuple(map(_shape, made)),
        tuple(map(_dtype, made)),
    )


def _flat(values: Iterable[Any]) -> Iterable[Any]:
    for value in values:
        several = isinstance(value, list | tuple)
        if several and any(isinstance(one, torch.Tensor) for one in value):
            yield from value
        else:
            yield value


def _shape(value: Any) -> tuple[int, ...] | None:
    return tuple(value.shape) if isinstance(value, torch.Tensor) else None


def _dtype(value: Any) -> str:
    return str(value.dtype) if isinstance(value, torch.Tensor) else ""


def _tensors(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _tensors(one)


def _described(name: str, module: nn.Module) -> Module:
    own = list(module.parameters(recurse=False))
    return Module(
        module=name,
        type=type(module).__name__,
        params=sum(one.numel() for one in own),
        buffers=sum(one.numel() for one in module.buffers(recurse=False)),
        param_bytes=sum(one.numel() * one.element_size() for one in own),
    )


def _totals(model: nn.Module) -> tuple[int, int, int]:
    """Return elements of parameters and of buffers, and the bytes of both, each tensor once."""
    params, buffers = list(model.parameters()), list(model.buffers())
    size = sum(one.numel() * one.element_size() for one in (*params, *buffers))
    return sum(one.numel() for one in params), sum(one.numel() for one in buffers), size


def _cells(one: Module) -> tuple[str, ...]:
    indent = "  " * (one.module.count(".") + bool(one.module))
    name = indent + (one.module.rpartition(".")[2] or "(model)")
    return name, one.type, _number(one.params), one.output, _number(one.activations), _number(one.flops)  # fmt: skip


def _number(value: int) -> str:
    return "no formula" if value == NONE else f"{value:,}"


def _aligned(row: Iterable[str], widths: Iterable[int]) -> Iterable[str]:
    texts = (0, 1, 3)
    for place, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.ljust(width) if place in texts else cell.rjust(width)


def _listed(ops: Mapping[str, int]) -> str:
    return ", ".join(f"{op} ({count})" if count > 1 else op for op, count in ops.items())
