"""The annotation itself: `@nvtx_op`, `@nvtx_op("name", ...)` and `with nvtx_op("name", ...)`.

The invariant: with no tool attached, an annotated program does what it did before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock, local
from typing import Any, Self, TypeVar, overload

from bridge.annotate import emit, emitter, stack
from bridge.annotate.details import Wanted, checked_block, note_block, wanted
from bridge.annotate.emit import state
from bridge.annotate.label import PLAIN, Extras, Label, checked, checked_name, checked_payload
from bridge.annotate.wrap import own_name, wrapped

# -- Ranges that are opened and closed by hand, on one thread, as `torch.cuda.nvtx` has them


class _Pushed(local):
    def __init__(self) -> None:
        self.entries: list[stack.Entry | None] = []  # None: nothing listened


_pushed = _Pushed()


def push(
    name: str,
    *,
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> int:
    """Open a range on this thread; return how many were open by `push` before."""
    label = Label(checked_name(name), *checked(domain, category, color))
    value = checked_payload(payload)
    entry = None
    if not state.idle:
        entry = stack.Entry(label, stack.new_call_id() if value is None else value)
        stack.push(entry)
    _pushed.entries.append(entry)
    return len(_pushed.entries) - 1


def pop() -> int:
    """Close the range that `push` opened last on this thread; return how many remain, -1 if none was open."""
    if not _pushed.entries:
        return -1
    entry = _pushed.entries.pop()
    if entry is not None:
        stack.close(entry)
    return len(_pushed.entries)


# -- Start/end ranges: phases that overlap what they like, and that any thread may end


_ending = Lock()


class Span:
    """A phase of the process: `start` and `end` it, or surround a block with it; once or many times."""

    __slots__ = ("label", "open", "payload")

    def __init__(self, label: Label, payload: float | None) -> None:
        self.label = label
        self.payload = payload
        self.open: list[
            tuple[emitter.Emitter, Any]
        ] = []  # started and not yet ended, in that order

    def start(self) -> Self:
        """Begin the range; it lasts until `end`, whichever thread calls that."""
        if not state.idle:
            emitter = emit.current()
            payload = stack.new_call_id() if self.payload is None else self.payload
            self.open.append((emitter, emitter.start(self.label, payload)))
        return self

    def end(self) -> None:
        """End the range that was started last; without one, do nothing."""
        with _ending:
            started = self.open.pop() if self.open else None
        if started is not None:
            emitter, handle = started
            emitter.end(self.label, handle)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.end()


def nvtx_range(
    name: str,
    *,
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> Span:
    """Make a start/end range, a phase: to surround a block with, or to `start` and `end` by hand.

    Unlike an op it owns no kernels: phases may overlap, and may be ended on another thread. A payload
    is an int of 64 bits or a float. Raises TypeError for arguments that no tool could record.
    """
    label = Label(checked_name(name), *checked(domain, category, color))
    return Span(label, checked_payload(payload))


# -- The annotation itself: `@nvtx_op`, `@nvtx_op("name", ...)` and `with nvtx_op("name", ...)`


F = TypeVar("F", bound=Callable[..., Any])

_new, _label = object.__new__, tuple.__new__
_opening = Lock()


class Op:
    """An annotation with its arguments: decorates callables, surrounds blocks, many times."""

    __slots__ = ("details", "entries", "extras", "name", "payload")

    name: str | None
    extras: Extras  # domain, category, colour
    payload: float | None
    details: Wanted | None
    entries: list[stack.Entry] | None

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
        """Decorate a function, a method, a coroutine function, a generator function."""
        made: Any = function
        if isinstance(made, staticmethod | classmethod):
            return type(made)(self(made.__func__))  # type: ignore[return-value]
        if isinstance(made, type) or not callable(made):
            raise TypeError(f"nvtx_op decorates functions and methods, not {made!r}")
        name = own_name(made) if self.name is None else self.name
        label = Label(name, *self.extras)
        return wrapped(made, label, self.payload, self.details)  # type: ignore[return-value]

    def _open(self) -> None:
        if self.name is None:
            raise TypeError("a block needs a name: with nvtx_op('name')")
        payload = stack.new_call_id() if self.payload is None else self.payload
        if self.details is not None:
            checked_block(self.name, self.details)
            note_block(int(payload), self.name, self.details)
        entry = stack.Entry(_label(Label, (self.name, *self.extras)), payload)
        if self.entries is None:
            with _opening:  # several threads may share the annotation
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
) -> Op: ...


def nvtx_op(  # noqa: PLR0913, PLR0917 - all but the name by keyword, say the overloads
    name: Any = None,
    # Were that said here as well, it would cost every block 45 ns.
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
    shapes: Any = False,
    args: Any = (),
    flops: Any = None,
) -> Any:
    """Mark a function or a block as an op: every call of it becomes an NVTX range in the profile.

    A coroutine or generator is a call in slices, one for each time it runs; a payload of yours is
    then a mark in the first slice. Without it, the payload of a range is the id of its call.

    Details of each call go to the process's recording: ``shapes`` and dtypes (of a block: the tensors
    to tell of), the arguments named by ``args`` (of a block: a mapping), ``flops`` ("auto" for a formula
    by the name, a number, or a function of the call's arguments), and bytes with them. Raises TypeError
    for what no tool could record.
    """
    if type(name) is not str and name is not None and not isinstance(name, str):
        given = {"category": category, "color": color, "shapes": shapes, "args": args}
        return nvtx_op(domain=domain, payload=payload, flops=flops, **given)(name)
    # Not Op(...): with nothing attached, __init__ would be a fifth of all that a block costs.
    op = _new(Op)
    op.name = name
    op.entries = None
    op.payload = None if payload is None else checked_payload(payload)
    if domain is None and category is None and color is None:
        op.extras = PLAIN
    else:
        op.extras = checked(domain, category, color)
    op.details = None
    if shapes is not False or args or flops is not None:
        op.details = wanted(shapes, args, flops, payload)
    return op


def scope(name: str) -> Op:
    """Surround a block that other annotations are grouped in: an op of category "scope"."""
    return nvtx_op(name, category="scope")
