"""Ranges around PyTorch's functions and the methods of tensors, as the program calls them.

A function mode of PyTorch sees the calls, so nothing is replaced and nothing is to be restored. It
sees the outermost calls: what a function of PyTorch calls itself has no range of its own.
"""

from __future__ import annotations

from threading import local
from typing import Any

from torch.compiler import is_compiling
from torch.overrides import TorchFunctionMode, resolve_name

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push
from bridge.frameworks.torch.ops import Switch

FUNCTIONAL, TENSOR_METHOD = "functional", "tensor_method"  # categories, and prefixes of names
TENSOR = "torch.Tensor."
MODULES = ("torch.nn.functional.", "torch.")  # the longer prefix first
ACCESS = (".__get__", ".__set__", ".__delete__")  # of attributes such as `shape`
# Texts of tensors and hooks of the interpreter: no work.
SKIPPED = frozenset(
    f"{TENSOR}{name}"
    for name in "__repr__ __format__ __hash__ __len__ __reduce_ex__ __dir__ __torch_function__".split()
)


class _Mode(TorchFunctionMode):  # type: ignore[misc]  # torch may be absent where types are checked
    """The function mode that puts a range around every call of the requested kinds."""

    def __init__(self, kinds: frozenset[str]) -> None:
        super().__init__()
        self.kinds = kinds
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
            self.labels[func] = label = self._new_label(func)
            return label
        except TypeError:  # not hashable
            return None

    def _new_label(self, func: Any) -> Label | None:
        name = resolve_name(func) or ""
        kind = TENSOR_METHOD if name.startswith(TENSOR) else FUNCTIONAL
        prefix = next((p for p in (TENSOR, *MODULES) if name.startswith(p)), None)
        if prefix is None or kind not in self.kinds or name in SKIPPED or name.endswith(ACCESS):
            return None
        return Label(f"{kind}:{name.removeprefix(prefix)}", None, kind)


class _Here(local):
    """The mode of this thread; at most one, so that no call has two ranges."""

    def __init__(self) -> None:
        self.mode: _Mode | None = None


_here = _Here()


class Functions(Switch):
    """Ranges around functions and tensor methods on the thread that enables it."""

    def __init__(self, kinds: frozenset[str]) -> None:
        self.kinds = kinds
        self._mode: _Mode | None = None

    def enable(self) -> None:
        """Start on this thread; does nothing if functions already have ranges."""
        if self._mode is None and (_here.mode is None or _here.mode.over):
            self._mode = _here.mode = _Mode(self.kinds)
            self._mode.__enter__()

    def disable(self) -> None:
        """Stop; a second call does nothing.

        The mode is left if it is the innermost one of this thread. Otherwise it stays, and only
        passes calls on.
        """
        mode, self._mode = self._mode, None
        if mode is None:
            return
        mode.over = True
        if _here.mode is mode:
            _here.mode = None
            if _innermost() is mode:
                mode.__exit__(None, None, None)


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
    return Functions(requested)


def _innermost() -> Any:
    from torch.overrides import _get_current_function_mode  # no public name

    return _get_current_function_mode()
