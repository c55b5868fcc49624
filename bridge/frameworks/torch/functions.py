"""Ranges around PyTorch's functions and the methods of tensors, as the program calls them.

A function mode of PyTorch sees the calls, so nothing is replaced and nothing is to be restored. It
sees the outermost calls: what a function of PyTorch calls itself has no range of its own. The ops
that a call dispatches are ranges inside of it.

`functions` names calls by their kind, as MegEngine does (`functional:relu`, `tensor_method:sum`);
`api_calls` by their full names (`torch.nn.functional.relu`), as one level above the ops.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import local
from typing import Any

from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode, _get_current_function_mode, resolve_name

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.guard import Guard
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push
from bridge.frameworks.torch.blocks import Switch

# -- The ranges of calls, by their names


API = "api"  # NVTX category
FUNCTIONAL, TENSOR_METHOD = "functional", "tensor_method"  # categories, and prefixes of names
TENSOR = "torch.Tensor."
MODULES = ("torch.nn.functional.", "torch.")  # the longer prefix first
ATTRIBUTES = (
    ".__get__",
    ".__set__",
    ".__delete__",
)  # access to an attribute such as `shape` is no call
# Texts of tensors and hooks of the interpreter: no work.
SKIPPED = frozenset(
    f"{TENSOR}{name}"
    for name in "__repr__ __format__ __hash__ __len__ __reduce_ex__ __dir__ __torch_function__".split()
)

CALLS = Guard("calls of PyTorch's functions")

Namer = Callable[[str], Label | None]  # from PyTorch's name of a function; None for no range


def api_label(name: str) -> Label | None:
    """Return the label of a call of the Python API; others are of the profiler, or have no name."""
    return Label(name, None, API) if name.startswith(MODULES[-1]) else None


def kind_label(kinds: frozenset[str], name: str) -> Label | None:
    """Return the label of a function or a tensor method, if its kind is requested."""
    kind = TENSOR_METHOD if name.startswith(TENSOR) else FUNCTIONAL
    prefix = next((p for p in (TENSOR, *MODULES) if name.startswith(p)), None)
    if prefix is None or kind not in kinds or name in SKIPPED:
        return None
    return Label(f"{kind}:{name.removeprefix(prefix)}", None, kind)


# -- The mode, one per thread and kind of ranges


class Mode(TorchFunctionMode):  # type: ignore[misc]  # torch may be absent where types are checked
    """The function mode that puts a range around every call that has a label."""

    def __init__(self, namer: Namer) -> None:
        super().__init__()
        self.namer = namer
        self.over = False  # ended on another thread, or below a mode that was entered later
        self.labels: dict[Any, Label | None] = {}  # by function; None for those without a range

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one function in its range."""
        kwargs = kwargs or {}
        if state.idle or self.over or is_compiling():
            return func(*args, **kwargs)
        label = self._label(func)
        if label is None:
            return func(*args, **kwargs)
        entry = Entry(label, stack.new_call_id())
        push(entry)
        try:
            return func(*args, **kwargs)
        finally:
            close(entry)

    def _label(self, func: Any) -> Label | None:
        try:
            return self.labels[func]
        except KeyError:
            return self._new_label(func)
        except TypeError:  # not hashable
            return None

    @CALLS.hook
    def _new_label(self, func: Any) -> Label | None:
        name = resolve_name(func) or ""
        label = None if name.endswith(ATTRIBUTES) else self.namer(name)
        self.labels[func] = label
        return label


class Here(local):
    """The modes of this thread by the kind of their switch; at most one each, so that no call has two ranges."""

    def __init__(self) -> None:
        self.modes: dict[type[CallRanges], Mode] = {}


_here = Here()


class CallRanges(Switch):
    """Ranges around calls on the threads that enable it."""

    def __init__(self, namer: Namer) -> None:
        self._namer = namer
        self._modes: list[Mode] = []  # one per thread

    def enable(self) -> None:
        """Start on this thread; does nothing if such calls already have ranges."""
        CALLS.broken = False
        before = _here.modes.get(type(self))
        if before is not None and not before.over:
            return
        if before is not None:
            _leave(before)
        mode = _here.modes[type(self)] = Mode(self._namer)
        mode.__enter__()
        self._modes.append(mode)

    def disable(self) -> None:
        """Stop on all threads; a second call does nothing.

        A mode is left if it is the innermost one of this thread. Otherwise it stays, and only passes calls on.
        """
        for mode in self._modes:
            mode.over = True
        own = _here.modes.get(type(self))
        if own in self._modes:
            del _here.modes[type(self)]
            _leave(own)
        self._modes.clear()


class Functions(CallRanges):
    """Ranges named by kind."""


class ApiCalls(CallRanges):
    """Ranges with full names."""


def functions(*, functional: bool = True, tensor_methods: bool = True) -> Functions:
    """Record calls of PyTorch's functions and tensor methods on this thread as ranges.

    ``functional`` are functions such as `torch.matmul` and `torch.nn.functional.relu`, recorded as
    `functional:relu`; ``tensor_methods`` are methods and operators of tensors, recorded as
    `tensor_method:sum`. Raises ValueError if neither is requested.
    """
    kinds = {FUNCTIONAL: functional, TENSOR_METHOD: tensor_methods}
    requested = frozenset(kind for kind, is_requested in kinds.items() if is_requested)
    if not requested:
        raise ValueError("functions: request functional, tensor_methods or both")
    return Functions(lambda name: kind_label(requested, name))


def api_calls() -> ApiCalls:
    """Record the calls of PyTorch's Python API as ranges, in a block or until disabled.

    Such a call is `torch.nn.functional.linear` or `torch.Tensor.item`.
    """
    return ApiCalls(api_label)


def _leave(mode: Mode | None) -> None:
    """Exit a mode if it is the innermost one of this thread."""
    if mode is not None and _get_current_function_mode() is mode:
        mode.__exit__(None, None, None)
