"""Annotate custom operators of PyTorch: the subclasses of `torch.autograd.Function`.

A call of ``MyOp.apply`` is the range `MyOp`, its backward pass `MyOpBackward`, both of the category
`custom_op`. The ops that run in it are ranges inside of it.
"""

from __future__ import annotations

from typing import Any

from torch.autograd import Function
from torch.autograd.function import BackwardCFunction

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push
from bridge.frameworks.torch.blocks import SharedSwitch

CATEGORY = "custom_op"  # NVTX category of the range of a custom operator
APPLY = "apply"

_requests = 0
_forward: Any = Function.__dict__[APPLY]  # the class method itself
_backward: Any = BackwardCFunction.__dict__[APPLY]


class CustomOps(SharedSwitch):
    """Ranges around custom operators, on all threads."""

    def request(self, by: int) -> None:
        """Replace the two methods for the first who requests it, and restore them after the last."""
        _request(by)


def custom_ops() -> CustomOps:
    """Record every `torch.autograd.Function` as a range, in a block or until disabled."""
    return CustomOps()


def _request(by: int) -> None:
    """Replace the two methods at the first request, and restore them after the last."""
    global _requests, _forward, _backward
    before, _requests = _requests, _requests + by
    if _requests and not before:
        _forward, _backward = Function.__dict__[APPLY], BackwardCFunction.__dict__[APPLY]
        setattr(Function, APPLY, classmethod(_apply))
        setattr(BackwardCFunction, APPLY, _apply_backward)
    elif before and not _requests:
        setattr(Function, APPLY, _forward)
        setattr(BackwardCFunction, APPLY, _backward)


def _apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Run the forward pass of a custom operator in its range."""
    return _in_range(cls.__name__, _forward.__get__(None, cls), args, kwargs)


def _apply_backward(node: Any, *args: Any) -> Any:
    """Run the backward pass of a custom operator in its range."""
    return _in_range(type(node).__name__, _backward.__get__(node), args, {})


def _in_range(name: str, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    if state.idle:
        return function(*args, **kwargs)
    entry = Entry(Label(name, None, CATEGORY), stack.new_call_id())
    push(entry)  # neither this nor `close` raises an error of ours
    try:
        return function(*args, **kwargs)
    finally:
        close(entry)
