"""Annotate custom operators of PyTorch: the subclasses of `torch.autograd.Function`.

A call of ``MyOp.apply`` is the range `MyOp`, its backward pass `MyOpBackward`, both of the category
`custom_op`. The ops that run in it are ranges inside of it. From PyTorch 2.14 on ``apply`` is written in C++, which
nothing can hook unseen: then `MyOpBackward` alone is recorded.
"""

from __future__ import annotations

from typing import Any

from torch.autograd import Function
from torch.autograd.function import BackwardCFunction

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.hooks import FunctionHook, Hooks
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push
from bridge.frameworks.torch.blocks import SharedSwitch, torch_hook

CATEGORY = "custom_op"  # NVTX category of the range of a custom operator


class CustomOps(SharedSwitch):
    """Ranges around custom operators, on all threads."""

    def request(self, by: int) -> None:
        """Count who requests them."""
        _hooks.request(by)


def custom_ops() -> CustomOps:
    """Record every `torch.autograd.Function` as a range, in a block or until disabled."""
    return CustomOps()


_name = type.__dict__["__name__"].__get__  # whatever a metaclass of the program defines


def _begin(name: str) -> Entry | None:
    if state.idle:
        return None
    entry = Entry(Label(name, None, CATEGORY), stack.new_call_id())
    push(entry)  # neither this nor `close` raises an error of ours
    return entry


def _end(entry: Entry | None, result: Any) -> Any:
    if entry is not None:
        close(entry)
    return result


def _apply_hooks() -> list[FunctionHook]:
    hooks = [torch_hook(BackwardCFunction.apply, lambda node, _: _begin(_name(type(node))), _end)]
    forward = getattr(Function.apply, "__func__", None)
    if forward is not None:  # else, from PyTorch 2.14 on, it is not written in Python
        hooks.append(torch_hook(forward, lambda cls, *_: _begin(_name(cls)), _end))
    return hooks


_hooks = Hooks("custom operators of PyTorch", _apply_hooks)
