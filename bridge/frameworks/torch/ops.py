"""Annotate every op that PyTorch dispatches, optimizer steps, and waits of data loaders.

Ops have the names of PyTorch's profiler. The dispatch mode does not change results, and is not
entered if nothing is to be emitted. Optimizers and data loaders use `record_function`, whose name
becomes the name of the range; its methods are replaced only while ranges are requested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from importlib import import_module
from threading import Lock, local
from typing import Any, Self

from torch import Tensor
from torch.autograd.profiler import record_function
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from bridge.annotate import emit, stack
from bridge.annotate.details import DetailOptions, Observer, Place
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push


class Switch:
    """Base of annotations with `enable` and `disable`; also a context manager."""

    def enable(self) -> None:
        """Start annotating; a second call does nothing."""
        raise NotImplementedError

    def disable(self) -> None:
        """Stop annotating; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.enable()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.disable()


# -- Blocks of `record_function`: optimizer steps, waits for data


STEPS = ("Optimizer.step#", "Optimizer.zero_grad#")
WAITS = ("enumerate(DataLoader)#",)
ENTRY = "_bridge_entry"  # attribute of an open block that holds its range

_requests: Counter[str] = Counter()
_prefixes: tuple[str, ...] = ()  # prefixes of the requested names
_changing = Lock()

_original_enter: Callable[[Any], Any] = record_function.__enter__
_original_exit: Callable[..., None] = record_function.__exit__


class BlockRanges(Switch):
    """Ranges around the blocks whose names have one of the prefixes, on all threads."""

    def __init__(self, prefixes: tuple[str, ...]) -> None:
        self.prefixes = prefixes
        self.on = False

    def enable(self) -> None:
        """Start annotating; a second call does nothing."""
        self._change(+1, on=True)

    def disable(self) -> None:
        """Stop annotating; a second call does nothing."""
        self._change(-1, on=False)

    def _change(self, by: int, *, on: bool) -> None:
        with _changing:
            if self.on is not on:
                self.on = on
                _request(self.prefixes, by)


def optimizer_steps() -> BlockRanges:
    """Record every optimizer's `step` and `zero_grad` as a range, in a block or until disabled."""
    return BlockRanges(STEPS)


def dataloader_waits() -> BlockRanges:
    """Record waits for the next batch of a DataLoader as ranges, in a block or until disabled."""
    return BlockRanges(WAITS)


def _request(prefixes: tuple[str, ...], by: int) -> None:
    global _original_enter, _original_exit, _prefixes  # noqa: PLW0603 (one process has one record_function)
    before = _prefixes
    _requests.update(dict.fromkeys(prefixes, by))
    _prefixes = tuple(prefix for prefix, count in _requests.items() if count > 0)
    if _prefixes and not before:
        _original_enter, _original_exit = record_function.__enter__, record_function.__exit__
        record_function.__enter__, record_function.__exit__ = _enter_with_range, _exit_with_range
    elif before and not _prefixes:
        record_function.__enter__, record_function.__exit__ = _original_enter, _original_exit


def _enter_with_range(block: Any) -> Any:
    """Enter a block, with a range if its name is requested."""
    if state.idle or not block.name.startswith(_prefixes):
        return _original_enter(block)
    entry = Entry(Label(block.name), stack.new_call_id())
    push(entry)
    setattr(block, ENTRY, entry)
    try:
        return _original_enter(block)
    except BaseException:
        close(entry)
        raise


def _exit_with_range(block: Any, *error: Any) -> None:
    """Exit a block and close its range."""
    try:
        _original_exit(block, *error)
    finally:
        entry = block.__dict__.pop(ENTRY, None)
        if entry is not None:
            close(entry)


# -- Ops


MAX_BYTES = 1024  # of a text with sizes
SIZES = ", sizes = ["
TEXT = "text"
PROFILER = "profiler::"  # prefix of the ops that `record_function` calls


class Mode(TorchDispatchMode):  # type: ignore[misc]  # torch may be absent where types are checked
    """The dispatch mode that puts a range around every op."""

    supports_higher_order_operators = True

    def __init__(self, shapes: Any, flops: Any) -> None:
        super().__init__()
        self.in_text = shapes == TEXT
        self.details: DetailOptions | None = None
        if flops is not None or (shapes and not self.in_text):
            self.details = DetailOptions(shapes=True, flops=flops)
        self.labels: dict[Any, Label | None] = {}  # by op; None for ops without work
        self.observers: dict[Any, Observer] = {}
        self.over = False  # ended on another thread, which cannot exit it on this one

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True, so that torch.compile compiles.

        Ops called by compiled code are still recorded.
        """
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one op in its range."""
        kwargs = kwargs or {}
        if func not in self.labels:
            self.labels[func] = _label(op_name(func))
        label = self.labels[func]
        if label is None or state.idle or self.over:
            return func(*args, **kwargs)
        if self.details is not None:
            return self._observed(self.details, func, label, args, kwargs)
        if self.in_text:
            label = Label(with_sizes(label.name, [*args, *kwargs.values()]))
        entry = Entry(label, stack.new_call_id())
        push(entry)
        try:
            return func(*args, **kwargs)
        finally:
            close(entry)

    def _observed(
        self, details: DetailOptions, func: Any, label: Label, args: Any, kwargs: dict[str, Any]
    ) -> Any:
        """Run one op in its range, and record its details."""
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
    """The mode of this thread; at most one, so that no op has two ranges."""

    def __init__(self) -> None:
        self.owner: Ops | None = None
        self.mode: Any = None

    def leave(self) -> None:
        """Exit the mode if it is the innermost one; otherwise it stays, and only forwards ops."""
        if _get_current_dispatch_mode() is self.mode:
            self.mode.__exit__(None, None, None)
        self.owner = self.mode = None


_here = Here()


class Ops(Switch):
    """Ranges around every op of the threads that enable it, and of their backward passes."""

    def __init__(self, shapes: Any, flops: Any) -> None:
        self.shapes, self.flops = shapes, flops
        self._modes: list[Mode] = []  # one per thread

    def enable(self) -> None:
        """Start on this thread; does nothing if no tool is attached or ops already have ranges."""
        emit.current()
        if _here.mode is not None and _here.mode.over:
            _here.leave()
        if not state.idle and _here.mode is None:
            # The first op of a mode would load it, for a second, and count it as its own time.
            import_module("torch._dynamo")
            mode = Mode(self.shapes, self.flops)
            mode.__enter__()
            self._modes.append(mode)
            _here.owner, _here.mode = self, mode

    def disable(self) -> None:
        """Stop on this thread, or on all other threads if it was not enabled on this one.

        Raises RuntimeError if a mode that was entered later is still active.
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
    """Record every op of this thread, such as `aten::mm`, as a range, in a block or until disabled.

    With ``shapes`` the recording of the process contains shapes and dtypes of every call, with
    ``flops="auto"`` also FLOPs. ``shapes="text"`` writes sizes into the range's text, as PyTorch
    does: `aten::mm, sizes = [[2, 3], [3, 4]]`. Raises ValueError for another text.
    """
    if isinstance(shapes, str) and shapes != TEXT:
        raise ValueError(f"ops: shapes is True, False or {TEXT!r}, not {shapes!r}")
    return Ops(shapes, flops)


def _label(name: str) -> Label | None:
    return None if name.startswith(PROFILER) else Label(name)


def _observer(func: Any, name: str, details: DetailOptions) -> Observer:
    """Return the observer of an op, whose schema names its arguments."""
    arguments = getattr(getattr(func, "_schema", None), "arguments", ())
    named = enumerate((a.name, a.default_value, a.kwarg_only) for a in arguments)
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
    """Return the text of a call as PyTorch writes it, at most 1 KiB.

    The last inputs may be omitted.
    """
    room = MAX_BYTES - len(name.encode()) - len(SIZES) - len("]")
    sizes: list[str] = []
    for size in _sizes(inputs):
        room -= len(size) + (len(", ") if sizes else 0)
        if room < 0:
            break
        sizes.append(size)
    return f"{name}{SIZES}{', '.join(sizes)}]"


def _sizes(inputs: Any) -> list[str]:
    """Return the size of every input as text.

    Tensors in lists have their own, other values have `[]`.
    """
    sizes: list[str] = []
    for value in inputs:
        if isinstance(value, list | tuple) and any(isinstance(item, Tensor) for item in value):
            sizes += map(_size, value)
        else:
            sizes.append(_size(value))
    return sizes


def _size(value: Any) -> str:
    """Return the size of a value as text; a symbolic length, as in tracing, is -1."""
    if not isinstance(value, Tensor):
        return "[]"
    lengths = (length if isinstance(length, int) else -1 for length in _shape(value))
    return f"[{', '.join(map(str, lengths))}]"


def _shape(tensor: Any) -> Any:
    return () if tensor.is_nested else tensor.shape  # a nested tensor has no shape
