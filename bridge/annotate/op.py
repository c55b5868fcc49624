"""Annotations that record ranges: `nvtx_op`, `nvtx_range`, `push` and `pop`.

If no tool is attached, an annotated program behaves as before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from threading import Lock, local
from typing import Any, Self, TypeVar, overload

from bridge.annotate import emit, emitter, stack
from bridge.annotate import source as sources
from bridge.annotate.details import DetailOptions, checked_block, checked_details, note_block
from bridge.annotate.emit import state
from bridge.annotate.label import PLAIN, Extras, Label, checked, checked_name, checked_payload
from bridge.annotate.patch import Around, decorated
from bridge.annotate.wrap import in_blocks, op_name_of, with_ranges

# -- Ranges opened and closed by hand on one thread, as with `torch.cuda.nvtx`


class _Pushed(local):
    def __init__(self) -> None:
        self.entries: list[stack.Entry | None] = []  # None: no tool was attached


_pushed = _Pushed()


def push(
    name: str,
    *,
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> int:
    """Open a range on this thread; return how many ranges of `push` were open before."""
    label = Label(checked_name(name), *checked(domain, category, color))
    value = checked_payload(payload)
    entry = None
    if not state.idle:
        entry = stack.Entry(label, stack.new_call_id() if value is None else value)
        stack.push(entry)
    _pushed.entries.append(entry)
    return len(_pushed.entries) - 1


def pop() -> int:
    """Close the last range of `push` on this thread.

    Return how many remain, -1 if none was open.
    """
    if not _pushed.entries:
        return -1
    entry = _pushed.entries.pop()
    if entry is not None:
        stack.close(entry)
    return len(_pushed.entries)


# -- Start/end ranges (phases), which may overlap and end on any thread


F = TypeVar("F", bound=Callable[..., Any])
_span_lock = Lock()


class Span:
    """A start/end range. Call `start` and `end`, or use it as a context manager or decorator.

    It may be reused.
    """

    __slots__ = ("extras", "name", "open", "payload")

    def __init__(self, name: str | None, extras: Extras, payload: float | None) -> None:
        self.name, self.extras = name, extras
        self.payload = payload
        # Started and not ended, in order.
        self.open: list[tuple[emitter.Emitter, Label, Any]] = []

    def start(self) -> Self:
        """Start the range; any thread may `end` it. Raises TypeError if it has no name."""
        if self.name is None:
            raise TypeError("a range needs a name: nvtx_range('name')")
        if not state.idle:
            self._start(Label(self.name, *self.extras))
        return self

    @emit.emission.hook
    def _start(self, label: Label) -> None:
        emitter = emit.current()
        payload = stack.new_call_id() if self.payload is None else self.payload
        self.open.append((emitter, label, emitter.start(label, payload)))

    def end(self) -> None:
        """End the last started range; do nothing if none is open."""
        with _span_lock:
            started = self.open.pop() if self.open else None
        if started is not None:
            self._end(*started)

    @emit.emission.closing
    def _end(self, emitter: emitter.Emitter, label: Label, handle: Any) -> None:
        emitter.end(label, handle)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.end()

    def __call__(self, function: F) -> F:
        """Decorate a function, method, coroutine function or generator function."""
        result: F = decorated(function, self._around, "nvtx_range")
        return result

    def _around(self, target: Any) -> Around:
        name = op_name_of(target) if self.name is None else self.name
        # Each call has a range of its own, for calls may overlap.
        return lambda called: in_blocks(called, partial(Span, name, self.extras, self.payload))


@overload
def nvtx_range(name: F, /) -> F: ...


@overload
def nvtx_range(
    name: str | None = None,
    *,
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> Span: ...


def nvtx_range(
    name: Any = None,
    *,
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> Any:
    """Return a start/end range (phase): a context manager, a decorator, or with `start` and `end`.

    A phase is a part of the whole process; ``bridge report --by phase`` shows it. Phases may overlap,
    and may end on another thread. A phase owns no kernels, unless a report has no other ranges: for a
    block that owns the kernels launched in it, use ``with nvtx_op(name):``. As a decorator it makes
    each call a phase, from begin to end also of a coroutine or generator; the default name is that
    of the function. A payload is a 64-bit int or a float. Raises TypeError for arguments that cannot
    be recorded.
    """
    extras, value = checked(domain, category, color), checked_payload(payload)
    if callable(name) or isinstance(name, classmethod):
        return Span(None, extras, value)(name)
    return Span(None if name is None else checked_name(name), extras, value)


# -- Ops: `@nvtx_op`, `@nvtx_op("name", ...)` and `with nvtx_op("name", ...)`


_new, _label = object.__new__, tuple.__new__
_entries_lock = Lock()


class Op:
    """An annotation with its arguments: a decorator and a reusable context manager."""

    __slots__ = ("details", "entries", "extras", "name", "payload", "source")

    name: str | None
    extras: Extras  # domain, category, colour
    payload: float | None
    details: DetailOptions | None
    entries: list[stack.Entry] | None
    source: bool

    def __enter__(self) -> Self:
        if not state.idle:
            self._open()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.entries:
            entry = stack.mine(self.entries) if len(self.entries) > 1 else self.entries[0]
            self.entries.remove(entry)
            stack.close(entry)

    def __call__(self, function: F) -> F:
        """Decorate a function, method, coroutine function or generator function."""
        result: F = decorated(function, self._around, "nvtx_op")
        return result

    def _around(self, target: Any) -> Around:
        name = op_name_of(target) if self.name is None else self.name
        label = Label(name, *self.extras)
        if self.source or state.sources:
            sources.note_function(label, target)
        return lambda called: with_ranges(called, label, self.payload, self.details)

    def _open(self) -> None:
        if self.name is None:
            raise TypeError("a block needs a name: with nvtx_op('name')")
        payload = stack.new_call_id() if self.payload is None else self.payload
        if self.details is not None:
            checked_block(self.name, self.details)
            note_block(int(payload), self.name, self.details)
        label = _label(Label, (self.name, *self.extras))
        if self.source or state.sources:
            sources.note_block(label, sys._getframe(2))  # noqa: SLF001 (the caller of __enter__)
        entry = stack.Entry(label, payload)
        if self.entries is None:
            with _entries_lock:  # threads may share the annotation
                self.entries = [] if self.entries is None else self.entries
        self.entries.append(entry)
        stack.push(entry)


@overload
def nvtx_op(name: F, /) -> F: ...


@overload
def nvtx_op(
    name: str | None = None,
    *,
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
    shapes: bool | Iterable[Any] = False,
    args: Sequence[str] | Mapping[str, Any] = (),
    flops: str | float | Callable[..., Any] | None = None,
    source: bool = False,
    strides: bool = False,
) -> Op: ...


def nvtx_op(  # noqa: PLR0913, PLR0917 - the overloads make all but the name keyword-only
    name: Any = None,
    # Keyword-only parameters here would add 45 ns to every block.
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
    shapes: Any = False,
    args: Any = (),
    flops: Any = None,
    source: bool = False,
    strides: bool = False,
) -> Any:
    """Annotate a function or a block as an op: each call becomes an NVTX range in the profile.

    A call of a coroutine or generator is recorded in slices, one for each time it runs. A
    ``payload`` is then recorded as a mark in the first slice. By default the payload of a range is
    the id of its call.

    Details of each call are written to the recording of the process: ``shapes`` and dtypes (for a
    block: the tensors), with ``strides`` those of the inputs, the arguments named by ``args`` (for a
    block: a mapping), ``flops`` ("auto" for a formula chosen by the name, a number, or a function of
    the call's arguments), and the bytes moved. ``source`` records the file and line of the function
    or block, once per op; BRIDGE_SOURCE=1 does so for all ops. Raises TypeError for arguments that
    cannot be recorded.
    """
    if type(name) is not str and name is not None and not isinstance(name, str):
        options = {"category": category, "color": color, "shapes": shapes, "args": args}
        options |= {"flops": flops, "source": source, "strides": strides}
        return nvtx_op(domain=domain, payload=payload, **options)(name)
    # Not Op(...): without a tool, __init__ would take a fifth of the time of a block.
    op = _new(Op)
    op.name = name
    op.entries = None
    op.source = source
    op.payload = None if payload is None else checked_payload(payload)
    if domain is None and category is None and color is None:
        op.extras = PLAIN
    else:
        op.extras = checked(domain, category, color)
    op.details = None
    if shapes is not False or args or flops is not None:
        op.details = checked_details(shapes, args, flops, payload, strides=strides)
    return op


def scope(name: str) -> Op:
    """Return an op of category "scope", to group the annotations in a block."""
    return nvtx_op(name, category="scope")
