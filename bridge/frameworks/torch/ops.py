"""Annotate every op that PyTorch dispatches, as PyTorch's own profiler names them.

The invariant: the mode changes nothing of what is computed, and where nothing is to be emitted it is not there.
"""

from __future__ import annotations

from threading import local
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from bridge.annotate import emit, stack
from bridge.annotate.details import Observer, Place, Wanted
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push
from bridge.frameworks.torch.profiler_records import Switch

LONGEST = 1024  # of a text with sizes, in bytes
SIZES = ", sizes = ["
TEXT = "text"
PROFILER = "profiler::"  # what `record_function` itself calls


class Mode(TorchDispatchMode):  # type: ignore[misc]  # torch may be absent where types are checked
    """What PyTorch hands every op to."""

    supports_higher_order_operators = True

    def __init__(self, shapes: Any, flops: Any) -> None:
        super().__init__()
        self.in_text = shapes == TEXT
        self.details: Wanted | None = None
        if flops is not None or (shapes and not self.in_text):
            self.details = Wanted(shapes=True, flops=flops)
        self.labels: dict[Any, Label | None] = {}  # by op: none for what is no work
        self.observers: dict[Any, Observer] = {}
        self.over = False  # ended on another thread, which cannot take it from this one

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let torch.compile compile; the ops that the compiled code calls are seen."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one op in its range."""
        given = kwargs or {}
        if func not in self.labels:
            self.labels[func] = _label(op_name(func))
        label = self.labels[func]
        if label is None or state.idle or self.over:
            return func(*args, **given)
        if self.details is not None:
            return self._observed(self.details, func, label, args, given)
        if self.in_text:
            label = Label(with_sizes(label.name, [*args, *given.values()]))
        entry = Entry(label, stack.new_call_id())
        push(entry)
        try:
            return func(*args, **given)
        finally:
            close(entry)

    def _observed(
        self, details: Wanted, func: Any, label: Label, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Run one op in its range, and note its shapes."""
        observer = self.observers.get(func)
        if observer is None:
            observer = self.observers[func] = _observer(func, label.name, details)
        seen, result, number = observer.look(args, kwargs), None, stack.new_call_id()
        entry = Entry(label, number)
        push(entry)
        try:
            result = func(*args, **kwargs)
            return result
        finally:
            close(entry)
            observer.note(number, seen, result)


class Here(local):
    """The mode of this thread: one at most, so that no op has two ranges."""

    def __init__(self) -> None:
        self.owner: Ops | None = None
        self.mode: Any = None

    def leave(self) -> None:
        """Take the mode off, if nothing was entered above it; else it stays, and passes all on."""
        if _get_current_dispatch_mode() is self.mode:
            self.mode.__exit__(None, None, None)
        self.owner = self.mode = None


_here = Here()


class Ops(Switch):
    """Ranges around every op of the threads that enable it, and of their backward passes."""

    def __init__(self, shapes: Any, flops: Any) -> None:
        self.shapes, self.flops = shapes, flops
        self._modes: list[Mode] = []  # one of each thread

    def enable(self) -> None:
        """Begin on this thread; where no tool is attached, or ops have ranges already, do nothing."""
        emit.current()
        if _here.mode is not None and _here.mode.over:
            _here.leave()
        if not state.idle and _here.mode is None:
            mode = Mode(self.shapes, self.flops)
            mode.__enter__()
            self._modes.append(mode)
            _here.owner, _here.mode = self, mode

    def disable(self) -> None:
        """End on this thread, or if it began elsewhere, there.

        Raises RuntimeError while a mode that was entered later is active.
        """
        if _here.owner is not self:
            for mode in self._modes:
                mode.over = True
            return
        if _get_current_dispatch_mode() is not _here.mode:
            raise RuntimeError("leave the dispatch modes that were entered after ops() first")
        self._modes.remove(_here.mode)
        _here.leave()


def ops(*, shapes: bool | str = False, flops: str | None = None) -> Ops:
    """Make a range of every op of this thread, such as `aten::mm`, in a block or until disabled.

    With ``shapes`` the process's recording has the shapes and dtypes of every call, with ``flops="auto"``
    its FLOPs as well. ``shapes="text"`` writes them into the range itself, as PyTorch does:
    `aten::mm, sizes = [[2, 3], [3, 4]]`. Raises ValueError for another text.
    """
    if isinstance(shapes, str) and shapes != TEXT:
        raise ValueError(f"ops: shapes is True, False or {TEXT!r}, not {shapes!r}")
    return Ops(shapes, flops)


def _label(name: str) -> Label | None:
    return None if name.startswith(PROFILER) else Label(name)


def _observer(func: Any, name: str, details: Wanted) -> Observer:
    """Return who looks at the calls of an op, whose schema names its arguments."""
    given = getattr(getattr(func, "_schema", None), "arguments", ())
    named = enumerate((one.name, one.default_value, one.kwarg_only) for one in given)
    return Observer(
        name,
        details,
        [Place(n, -1 if by_name else at, default) for at, (n, default, by_name) in named],
    )


def op_name(func: Any) -> str:
    """Return an op's name without its overload."""
    schema = getattr(func, "_schema", None)
    return str(func.name() if schema is None else schema.name)


def with_sizes(name: str, inputs: list[Any]) -> str:
    """Return the text of a call as PyTorch writes it, at most 1 KiB: the last inputs are left out."""
    room = LONGEST - len(name.encode()) - len(SIZES) - len("]")
    kept: list[str] = []
    for size in _sizes(inputs):
        room -= len(size) + (len(", ") if kept else 0)
        if room < 0:
            break
        kept.append(size)
    return f"{name}{SIZES}{', '.join(kept)}]"


def _sizes(inputs: Any) -> list[str]:
    """Write the size of every input; of a list of tensors each has its own, what is no tensor has none."""
    sizes: list[str] = []
    for value in inputs:
        if isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in value):
            sizes += map(_size, value)
        else:
            sizes.append(_size(value))
    return sizes


def _size(value: Any) -> str:
    """Write a size; a length that is a symbol, as while tracing, is -1."""
    if not isinstance(value, Tensor):
        return "[]"
    lengths = (length if isinstance(length, int) else -1 for length in _shape(value))
    return f"[{', '.join(map(str, lengths))}]"


def _shape(tensor: Any) -> Any:
    return () if tensor.is_nested else tensor.shape  # a nested tensor has no one shape
