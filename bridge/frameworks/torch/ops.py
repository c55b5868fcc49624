"""Annotate every op that PyTorch dispatches, with the names of PyTorch's profiler.

A tool on a GPU gets the ranges that PyTorch itself emits (see `native`). Elsewhere, and for details, there are
modes: a dispatch mode records the ops that run, a function mode the composite ops around them (see
`composite`), autograd names the node of a backward op. Under a dispatch mode PyTorch runs some ops as others,
so modes are entered only on request, and not if nothing is to be emitted.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from threading import local
from typing import Any

from torch.overrides import _get_current_function_mode
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from bridge.annotate import emit, stack
from bridge.annotate.details import DetailOptions, Observer, Place, merged
from bridge.annotate.emit import state
from bridge.annotate.guard import Guard
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push
from bridge.frameworks.torch.blocks import Switch
from bridge.frameworks.torch.composite import (
    COMPOSITE_OPS,
    Compiler,
    CompositeMode,
    ModeOptions,
    node_entry,
)
from bridge.frameworks.torch.native import NATIVE_OPS, NativeRanges, has_gpu
from bridge.frameworks.torch.sizes import with_sizes

# -- Ops


OPS = Guard("ops of PyTorch")
TEXT = "text"
FRAMES = 8  # of a call stack
PROFILER = "profiler::"  # prefix of the ops that `record_function` calls


class Mode(TorchDispatchMode):  # type: ignore[misc]  # torch may be absent where types are checked
    """The dispatch mode that puts a range around every op."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.options = ModeOptions()
        self.labels: dict[Any, Label | None] = {}  # by op; None for ops without work
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
        try:
            if func not in self.labels:
                self.labels[func] = _label(op_name(func))
            label = self.labels[func]
            is_off = label is None or state.idle or self.over
            node = None if is_off else node_entry()
        except Exception as error:
            if not OPS.takes(error):
                raise
            is_off = self.over = True
        if is_off:
            return func(*args, **kwargs)
        if node is None:
            return self._run(func, label, args, kwargs)
        push(node)
        try:
            return self._run(func, label, args, kwargs)
        finally:
            close(node)

    def _run(self, func: Any, label: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one op in its range, and record its details."""
        observer, seen, result, number = None, None, None, stack.new_call_id()
        try:
            options = self.options
            if options.details is not None:
                observer = options.observers.get(func)
                if observer is None:
                    observer = options.observers[func] = _observer(
                        func, label.name, options.details
                    )
                seen = observer.look(args, kwargs)
            if options.in_text:
                label = Label(with_sizes(label.name, [*args, *kwargs.values()]))
        except Exception as error:
            if not OPS.takes(error):
                raise
            self.over = True
        entry = Entry(label, number)
        push(entry)
        try:
            result = func(*args, **kwargs)
            return result
        finally:
            close(entry)
            if observer is not None:
                observer.note(number, seen, result)


class Notice:
    """What the modes change, printed once in a process."""

    TEXT = (
        "bridge: a dispatch mode records PyTorch's ops: some run as others (add_ as add), fused paths are off,"
        " and each op takes some µs longer\n"
    )
    printed = False

    @classmethod
    def print(cls) -> None:
        """Print it to stderr, unless that has been done."""
        if not cls.printed:
            cls.printed = True
            with suppress(Exception):  # stderr may be None, or closed
                sys.stderr.write(cls.TEXT)


class Requests:
    """Who enabled ops on one thread, and what records what any of them asks for.

    That is at most one mode of each kind, or PyTorch's own ranges, so that no op has two ranges.
    """

    def __init__(self) -> None:
        # Whether something recorded when it was enabled. If not, it alone enters no modes.
        self.of: dict[Ops, bool] = {}
        self.mode: Any = None
        self.composite: Any = None
        self.native: NativeRanges | None = None  # in place of the modes
        self.over = False  # ended on another thread, which cannot end them on this one

    @property
    def records(self) -> bool:
        """Whether ops get ranges."""
        return self.mode is not None or self.native is not None

    def add(self, ops: Ops, *, active: bool) -> None:
        """Record also what ``ops`` asks for."""
        self.of[ops] = active
        if active and self.mode is None:
            self._start()
        self._update()

    def _start(self) -> None:
        """Begin to record: by PyTorch's ranges where they are enough, else by the modes if anyone wants these."""
        if self._can_be_native():
            if self.native is None:
                self.native = NativeRanges()
                self.native.begin()
        elif not all(request.native_only for request, active in self.of.items() if active):
            self._leave_native()
            self._enter_modes()

    def settle(self) -> None:
        """Record no more than the others ask for: by PyTorch's ranges again where they are enough.

        Modes are left only if they are the innermost ones.
        """
        if not any(self.of.values()):
            return
        if self.mode is None:
            self._start()
        elif self._can_be_native() and _get_current_dispatch_mode() is self.mode:
            self._leave_modes()
            self._start()

    def _can_be_native(self) -> bool:
        """Return whether PyTorch's ranges reach all who want them: they go to the tool only, without details."""
        return (
            state.attached
            and state.writer is None
            and not any(request.details for request in self.of)
            and has_gpu()
        )

    def _enter_modes(self) -> None:
        Notice.print()
        # The first op of a mode would load it, for a second, and count it as its own time.
        import_module("torch._dynamo")
        self.mode, self.composite = Mode(), CompositeMode()
        self.mode.__enter__()
        Compiler.watch()
        if not Compiler.has_run:
            self.composite.__enter__()

    def _leave_native(self) -> None:
        ranges, self.native, self.over = self.native, None, False
        if ranges is not None:
            ranges.end()

    def _leave_modes(self) -> None:
        """Exit the modes that are the innermost ones; others stay, and only forward ops."""
        self.mode.over = self.composite.over = True
        if _get_current_function_mode() is self.composite:
            self.composite.__exit__(None, None, None)
        if _get_current_dispatch_mode() is self.mode:
            self.mode.__exit__(None, None, None)
        self.mode = self.composite = None

    def leave_if_over(self) -> None:
        """Exit what another thread has ended."""
        if self.mode is not None and self.mode.over:
            self._leave_modes()
        if self.over:
            self._leave_native()

    def remove(self, ops: Ops) -> None:
        """Record what the others ask for; without others it is over."""
        self.of.pop(ops, None)
        self._update()
        if any(list(self.of.values())):
            return
        self.over = self.native is not None
        if self.mode is not None:
            self.mode.over = self.composite.over = True

    def is_last(self, ops: Ops) -> bool:
        """Return whether the modes are entered for ``ops`` alone."""
        return self.mode is not None and [o for o, active in self.of.items() if active] == [ops]

    def _update(self) -> None:
        if self.mode is None:
            return
        requests = list(self.of)
        details = merged(request.details for request in requests)
        in_text = any(request.in_text for request in requests)
        self.mode.options = ModeOptions(details, in_text=in_text)
        self.composite.options = ModeOptions(
            details and details._replace(flops=None, costs=False), in_text=in_text
        )


class Here(local):
    """The requests of this thread."""

    def __init__(self) -> None:
        self.requests = Requests()


_here = Here()


class Ops(Switch):
    """Ranges around every op of the threads that enable it, and of their backward passes."""

    def __init__(
        self,
        details: DetailOptions | None = None,
        *,
        in_text: bool = False,
        native_only: bool = False,
    ) -> None:
        self.details, self.in_text, self.native_only = details, in_text, native_only
        self._enabled: list[Requests] = []  # of each thread that enabled it

    def enable(self) -> None:
        """Start on this thread; if ops already have ranges, only its details are added to theirs.

        If nothing records, only its details are added to the ops of a session that starts later.
        """
        OPS.broken = COMPOSITE_OPS.broken = NATIVE_OPS.broken = False
        emit.current()
        requests = _here.requests
        requests.leave_if_over()
        if requests.of.get(self) and requests.records:
            return
        requests.add(self, active=not state.idle)
        if requests not in self._enabled:
            self._enabled.append(requests)

    def disable(self) -> None:
        """Stop on this thread, or on all other threads if it was not enabled on this one.

        PyTorch's own ranges of another thread end when that thread enables or disables ops again.
        Raises RuntimeError if a mode that was entered later is still active.
        """
        requests = _here.requests
        requests.leave_if_over()
        if requests not in self._enabled:
            for others in self._enabled:
                others.remove(self)
            self._enabled = []
            return
        if requests.is_last(self) and _get_current_dispatch_mode() is not requests.mode:
            raise RuntimeError("leave the dispatch modes that were entered after ops() first")
        self._enabled.remove(requests)
        requests.remove(self)
        requests.leave_if_over()
        requests.settle()


def ops(
    *,
    shapes: bool | str = False,
    flops: str | None = None,
    strides: bool = False,
    stacks: bool | int = False,
) -> Ops:
    """Record every op of this thread, such as `aten::mm`, as a range, in a block or until disabled.

    With ``shapes`` the recording of the process contains shapes, dtypes and the overload of every
    call, with ``flops="auto"`` also FLOPs, with ``strides`` also the strides of its inputs, with
    ``stacks`` the frames of the program that call it (8 of them, or another number).
    ``shapes="text"`` writes sizes into the range's text, as PyTorch does:
    `aten::mm, sizes = [[2, 3], [3, 4]]`. What any of several blocks and sessions on a thread asks
    for is recorded. Raises ValueError for another text.
    """
    if isinstance(shapes, str) and shapes != TEXT:
        raise ValueError(f"ops: shapes is True, False or {TEXT!r}, not {shapes!r}")
    frames = FRAMES if stacks is True else int(stacks)
    with_shapes = flops is not None or strides or shapes is True
    details = None
    if with_shapes or frames:
        details = DetailOptions(with_shapes, flops=flops, strides=strides, stacks=frames)
    return Ops(details, in_text=shapes == TEXT and not with_shapes)


def native_ops() -> Ops:
    """Record every op by the ranges of PyTorch itself: under a tool, where there is a GPU. Elsewhere there are none."""
    return Ops(native_only=True)


def _label(name: str) -> Label | None:
    return None if name.startswith(PROFILER) else Label(name)


def _observer(func: Any, name: str, details: DetailOptions) -> Observer:
    """Return the observer of an op, whose schema names its arguments."""
    arguments = getattr(getattr(func, "_schema", None), "arguments", ())
    overload = getattr(getattr(func, "_schema", None), "overload_name", "")
    named = enumerate((a.name, a.default_value, a.kwarg_only) for a in arguments)
    return Observer(
        name,
        details,
        [Place(n, -1 if by_name else at, default) for at, (n, default, by_name) in named],
        fixed={"overload": overload} if details.shapes and overload else None,
    )


def op_name(func: Any) -> str:
    """Return an op's name without its overload."""
    schema = getattr(func, "_schema", None)
    return str(func.name() if schema is None else schema.name)
