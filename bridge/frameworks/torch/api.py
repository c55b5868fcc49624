"""Annotate the calls of PyTorch's Python API: `torch.add`, `torch.Tensor.backward`, `torch.nn.functional.linear`.

They are the level above the ops: a call checks its arguments and dispatches ops, which are ranges
inside of it. Reading and setting attributes of tensors, such as `shape`, is no call.
"""

from __future__ import annotations

from threading import local
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode, resolve_name

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push
from bridge.frameworks.torch.ops import Switch

CATEGORY = "api"  # NVTX category of the range of a call
ATTRIBUTES = (".__get__", ".__set__", ".__delete__")
PREFIX = "torch."  # others are of the profiler, or have no name


class Mode(TorchFunctionMode):  # type: ignore[misc]  # torch may be absent where types are checked
    """The mode that puts a range around every call."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: dict[Any, Label | None] = {}  # by function; None for what is no call
        self.over = False  # ended on another thread, which cannot exit it on this one

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one call in its range."""
        kwargs = kwargs or {}
        if state.idle or self.over or torch.compiler.is_compiling():
            return func(*args, **kwargs)
        if func not in self.labels:
            self.labels[func] = _label(func)
        label = self.labels[func]
        if label is None:
            return func(*args, **kwargs)
        entry = Entry(label, stack.new_call_id())
        push(entry)
        try:
            return func(*args, **kwargs)
        finally:
            close(entry)


class Here(local):
    """The mode of this thread; at most one, so that no call has two ranges."""

    owner: ApiCalls | None = None
    mode: Any = None


_here = Here()


class ApiCalls(Switch):
    """Ranges around every call of PyTorch's Python API on the threads that enable it."""

    def __init__(self) -> None:
        self._modes: list[Mode] = []  # one per thread

    def enable(self) -> None:
        """Start on this thread; does nothing if calls already have ranges."""
        if _here.mode is not None and _here.mode.over:
            _leave()
        if _here.mode is None:
            mode = Mode()
            mode.__enter__()
            self._modes.append(mode)
            _here.owner, _here.mode = self, mode

    def disable(self) -> None:
        """Stop on this thread, or on all other threads if it was not enabled on this one."""
        for mode in self._modes:
            mode.over = True
        self._modes.clear()
        if _here.owner is self:
            _leave()


def api_calls() -> ApiCalls:
    """Record the calls of PyTorch's Python API as ranges, in a block or until disabled.

    Such a call is `torch.nn.functional.linear` or `torch.Tensor.item`.
    """
    return ApiCalls()


def _leave() -> None:
    """Exit the mode if it is the innermost one; otherwise it stays, and only forwards calls."""
    if _get_current_function_mode() is _here.mode:
        _here.mode.__exit__(None, None, None)
    _here.owner = _here.mode = None


def _label(function: Any) -> Label | None:
    name = resolve_name(function) or ""
    is_call = name.startswith(PREFIX) and not name.endswith(ATTRIBUTES)
    return Label(name, None, CATEGORY) if is_call else None
