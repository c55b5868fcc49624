"""Wrap a callable of any kind in the wrapper of its kind, which `inspect` takes for the same kind.

The invariant: `state.idle` is read at every call, never at decoration. Wrong arguments to a
coroutine or generator function are noticed where it is first awaited or advanced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial, wraps
from types import coroutine
from typing import Any

from bridge.annotate.details import Observer, Wanted, of_function
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.stack import (
    Call,
    Entry,
    close,
    here,
    new_call_id,
    push,
    release,
    resume,
    suspend,
)

# -- Run coroutines and generators in slices: a push at each resume, a pop at each suspension


Begin = Callable[..., "tuple[Any, Call | None]"]


def relaying(begin: Begin, at_return: Callable[[Call], None] = close) -> Callable[..., Any]:
    """Make a generator function that runs what `begin` gives, in slices of the call beside it."""

    def relay(*args: Any, **kwargs: Any) -> Any:
        inner, call = begin(*args, **kwargs)
        del args, kwargs  # theirs to let go
        if call is None:
            return (yield from inner)
        step, value = inner.send, None
        while True:
            resume(call)
            try:
                # A list, to be emptied: a suspended frame must not keep alive what it yielded.
                yielded = [step(value)]
            except StopIteration as stop:
                at_return(call)
                return stop.value
            except BaseException:
                close(call)
                # They may hold what was thrown in, whose traceback holds this frame: a cycle.
                del inner, step
                raise
            else:
                suspend(call)
            finally:
                value = None  # for the same reason
            try:
                value = yield yielded.pop()
                step = inner.send
            except BaseException as error:  # noqa: BLE001 (GeneratorExit and cancellation go in as well)
                step, value = inner.throw, error

    return relay


_awaiting: Callable[..., Any] = coroutine(
    relaying(lambda step, call: (step, call), at_return=suspend)
)


def relaying_async(begin: Begin) -> Callable[..., Any]:
    """Make an asynchronous generator function likewise; all its steps are slices of one call."""

    async def relay(*args: Any, **kwargs: Any) -> Any:
        inner, call = begin(*args, **kwargs)
        del args, kwargs  # theirs to let go
        step, value = partial(_unseen, inner.asend), None
        while True:
            try:
                yielded = [await _awaiting(step(value), call)]
            except StopAsyncIteration:
                return
            finally:
                value = None
            try:
                value = yield yielded.pop()
                step = inner.asend
            except BaseException as error:  # noqa: BLE001 (the caller raises it again)
                step, value = inner.athrow, error

    return relay


def _unseen(asend: Callable[[Any], Any], value: Any) -> Any:
    """Begin an asynchronous generator unseen by the loop, which at its end would close it too."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return asend(value)
    finally:
        sys.set_asyncgen_hooks(*hooks)


# -- Wrap a callable of any kind in the wrapper of its kind, which `inspect` takes for the same kind


# Flags of code objects, as in `inspect`, which would cost 10 ms to import.
GENERATOR = 0x20
COROUTINE = 0x80
ITERABLE_COROUTINE = 0x100
ASYNC_GENERATOR = 0x200

Wrapper = Callable[..., Any]


class Annotated:
    """A callable, what its calls are called, and who looks at them."""

    __slots__ = ("_of_session", "function", "label", "own", "payload")

    def __init__(
        self, function: Callable[..., Any], label: Label, payload: float | None, own: Wanted | None
    ) -> None:
        self.function, self.label, self.payload = function, label, payload
        self.own = None if own is None else of_function(function, label.name, own)
        self._of_session: Observer | None = None

    def observer(self) -> Observer | None:
        """Return who notes the details of calls now: the op's own, else the session's, if any."""
        wanted = state.details
        if self.own is not None or wanted is None:
            return self.own
        if self._of_session is None or self._of_session.details is not wanted:
            self._of_session = of_function(self.function, self.label.name, wanted)
        return self._of_session


def wrapped(
    function: Callable[..., Any],
    label: Label,
    payload: float | None = None,
    details: Wanted | None = None,
) -> Wrapper:
    """Return the function with a range around every call of it."""
    flags = code_flags(function)
    kinds = (wrap for flag, wrap in KINDS.items() if flags & flag)
    op = Annotated(function, label, payload, details)
    plain = _plain if details is None and not isinstance(payload, float) else _detailed
    return wraps(function)(next(kinds, plain)(op))


def code_flags(function: Any) -> int:
    """Return the flags of the code that a call of this object runs."""
    while isinstance(function, partial):
        function = function.func
    # Without code it is an object with a method __call__, or not written in Python.
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return getattr(code, "co_flags", 0)


def own_name(function: Any) -> str:
    """Return the qualified name of a callable, as short as it is clear."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return str(name).replace("<locals>.", "")


def _plain(op: Annotated) -> Wrapper:
    function, label, payload = op.function, op.label, op.payload

    # One body and no calls but those that do the work: under a profiler each would add 50 ns to every op.
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if state.idle:
            return function(*args, **kwargs)
        stack = here.stack
        if stack.emitter is not state.emitter or stack.busy or stack.orphans or stack.care():
            return _carefully(op, args, kwargs)
        set_payload, push_range, pop_range = stack.bound.get(label) or stack.bind(label, True)
        token = (label, new_call_id() if payload is None else payload)
        live = stack.live
        stack.busy = True
        try:
            set_payload(token[1])
            live += (token,)  # before the push: an interrupt after it finds both done
            push_range()
        except Exception:  # nothing was pushed: an interrupt is none, and comes after it
            del live[-1]
            raise
        finally:
            stack.busy = False
        try:
            return function(*args, **kwargs)
        finally:
            if live and live[-1] is token and not stack.busy and not stack.orphans:
                stack.busy = True
                try:
                    del live[-1]
                    pop_range()
                except Exception:
                    live += (token,)  # whoever called this closes it
                    raise
                finally:
                    stack.busy = False
            else:
                release(stack, token)

    return wrapper


def _detailed(op: Annotated) -> Wrapper:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if state.idle:
            return op.function(*args, **kwargs)
        return _carefully(op, args, kwargs)

    return wrapper


def _carefully(op: Annotated, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function in its range, whatever else goes on; note the call's details if they are wanted."""
    observer = op.observer() if op.payload is None else None
    if observer is not None:
        return _observed(observer, op, args, kwargs)
    entry = Entry(op.label, new_call_id() if op.payload is None else op.payload)
    push(entry)
    try:
        return op.function(*args, **kwargs)
    finally:
        close(entry)


def _observed(
    observer: Observer, op: Annotated, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call the function in its range, and note the call's details when it has ended."""
    seen = observer.look(args, kwargs)  # before it runs: it may change what it is given
    entry, result = Entry(op.label, new_call_id()), None
    push(entry)
    try:
        result = op.function(*args, **kwargs)
        return result
    finally:
        close(entry)
        observer.note(int(entry.payload), seen, result, (args, kwargs))


def _begin(op: Annotated) -> Begin:
    function, label, payload = op.function, op.label, op.payload

    def begin(*args: Any, **kwargs: Any) -> tuple[Any, Call | None]:
        if state.idle:
            return function(*args, **kwargs), None
        call, observer = Call(label, new_call_id(), payload), op.observer()
        if observer:
            observer.note(int(call.payload), observer.look(args, kwargs), None, (args, kwargs))
        return function(*args, **kwargs), call

    return begin


def _generator(op: Annotated) -> Wrapper:
    return relaying(_begin(op))


def _iterable_coroutine(op: Annotated) -> Wrapper:
    return coroutine(_generator(op))


def _coroutine(op: Annotated) -> Wrapper:
    sliced = _iterable_coroutine(op)

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        running = (op.function if state.idle else sliced)(*args, **kwargs)
        del args, kwargs  # the coroutine's to let go
        return await running

    return wrapper


def _async_generator(op: Annotated) -> Wrapper:
    return relaying_async(_begin(op))


KINDS = {
    ASYNC_GENERATOR: _async_generator,
    COROUTINE: _coroutine,
    ITERABLE_COROUTINE: _iterable_coroutine,  # a generator as well: asked before it
    GENERATOR: _generator,
}
