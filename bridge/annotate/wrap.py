"""Wrappers that put ranges around functions, coroutines and generators.

`inspect` reports the same kind for a wrapper as for its function. `state.idle` is read at every
call, never at decoration. Wrong arguments to a coroutine or generator function raise where it is
first awaited or advanced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from types import coroutine
from typing import Any

from bridge.annotate.details import DetailOptions, Observer, function_observer
from bridge.annotate.emit import emission, state
from bridge.annotate.guard import Guard
from bridge.annotate.label import Label
from bridge.annotate.stack import (
    Call,
    Entry,
    Token,
    close,
    here,
    new_call_id,
    push,
    release,
    resume,
    suspend,
)

# -- Coroutines and generators: a push at each resume, a pop at each suspension


Begin = Callable[..., "tuple[Any, Call | None]"]
Around = Callable[[], AbstractContextManager[Any]]


def relaying(begin: Begin, at_return: Callable[[Call], None] = close) -> Callable[..., Any]:
    """Return a generator function that runs the generator from `begin` in slices of its call."""

    def relay(*args: Any, **kwargs: Any) -> Any:
        inner, call = begin(*args, **kwargs)
        del args, kwargs  # so that they can be released
        if call is None:
            return (yield from inner)
        step, value = inner.send, None
        while True:
            resume(call)
            try:
                # A list that is emptied: a suspended frame must not keep the yielded value alive.
                yielded = [step(value)]
            except StopIteration as stop:
                at_return(call)
                return stop.value
            except BaseException:
                close(call)
                # They may hold the thrown exception, whose traceback holds this frame: a cycle.
                del inner, step
                raise
            else:
                suspend(call)
            finally:
                value = None  # as above
            try:
                value = yield yielded.pop()
                step = inner.send
            except BaseException as error:  # noqa: BLE001 (GeneratorExit and cancellation are thrown in too)
                step, value = inner.throw, error

    return relay


_awaiting: Callable[..., Any] = coroutine(
    relaying(lambda step, call: (step, call), at_return=suspend)
)


def relaying_async(begin: Begin, around: Around = nullcontext) -> Callable[..., Any]:
    """Return an asynchronous generator function; all its steps are slices of one call.

    The whole of it runs in the block that ``around`` returns.
    """

    async def relay(*args: Any, **kwargs: Any) -> Any:
        with around():
            inner, call = begin(*args, **kwargs)
            del args, kwargs  # so that they can be released
            step, value = partial(_without_hooks, inner.asend), None
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


def _without_hooks(asend: Callable[[Any], Any], value: Any) -> Any:
    """Start an asynchronous generator without the loop's hooks, which would close it twice."""
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return asend(value)
    finally:
        sys.set_asyncgen_hooks(*hooks)


# -- Wrappers by kind of function


# Flags of code objects, as in `inspect`, whose import would take 10 ms.
GENERATOR = 0x20
COROUTINE = 0x80
ITERABLE_COROUTINE = 0x100
ASYNC_GENERATOR = 0x200

Wrapper = Callable[..., Any]


class AnnotatedCallable:
    """A callable, the label of its calls, and their observer."""

    __slots__ = ("_session_observer", "function", "label", "own_observer", "payload")

    def __init__(
        self,
        function: Callable[..., Any],
        label: Label,
        payload: float | None,
        details: DetailOptions | None,
    ) -> None:
        self.function, self.label, self.payload = function, label, payload
        self.own_observer = (
            None if details is None else function_observer(function, label.name, details)
        )
        self._session_observer: Observer | None = None

    def observer(self) -> Observer | None:
        """Return the observer of calls: the op's own, or else the running session's, if any."""
        details = state.details
        if self.own_observer is not None or details is None:
            return self.own_observer
        if self._session_observer is None or self._session_observer.details is not details:
            self._session_observer = _session_observer(self.function, self.label.name, details)
        return self._session_observer


_session_observer = Guard("details of functions").hook(function_observer)


def with_ranges(
    function: Callable[..., Any],
    label: Label,
    payload: float | None = None,
    details: DetailOptions | None = None,
) -> Wrapper:
    """Return the function with a range around every call of it."""
    flags = code_flags(function)
    kinds = (wrap for flag, wrap in KINDS.items() if flags & flag)
    op = AnnotatedCallable(function, label, payload, details)
    plain = _plain if details is None and not isinstance(payload, float) else _detailed
    return wraps(function)(next(kinds, plain)(op))


def in_blocks(function: Callable[..., Any], around: Around) -> Wrapper:
    """Return the function with every call in a block of its own, from its begin to its end.

    The block of a coroutine or generator stays open while it is suspended.
    """

    def plain(*args: Any, **kwargs: Any) -> Any:
        with around():
            return function(*args, **kwargs)

    def generator(*args: Any, **kwargs: Any) -> Any:
        with around():
            return (yield from function(*args, **kwargs))

    async def awaiting(*args: Any, **kwargs: Any) -> Any:
        with around():
            return await function(*args, **kwargs)

    flags = code_flags(function)
    wrappers = {
        ASYNC_GENERATOR: relaying_async(lambda *a, **k: (function(*a, **k), None), around),
        COROUTINE: awaiting,
        ITERABLE_COROUTINE: coroutine(generator),
        GENERATOR: generator,
    }
    return wraps(function)(next((w for flag, w in wrappers.items() if flags & flag), plain))


def code_flags(function: Any) -> int:
    """Return the flags of the code object that a call of ``function`` runs."""
    while isinstance(function, partial):
        function = function.func
    # An object without code has a method __call__, or is not written in Python.
    code = getattr(function, "__code__", None) or getattr(type(function).__call__, "__code__", None)
    return getattr(code, "co_flags", 0)


def op_name_of(function: Any) -> str:
    """Return the qualified name of a callable, without ``<locals>``."""
    while isinstance(function, partial):
        function = function.func
    # The functions of NumPy 1 that are written in C have a short name alone.
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    name = name or type(function).__qualname__
    return str(name).replace("<locals>.", "")


def _plain(op: AnnotatedCallable) -> Wrapper:
    function, label, payload = op.function, op.label, op.payload

    # Inlined: under a profiler each further call would add 50 ns to every op.
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if state.idle:
            return function(*args, **kwargs)
        stack = here.stack
        if stack.emitter is not state.emitter or stack.busy or stack.orphans or stack.care():
            return _call_slowly(op, args, kwargs)
        token = (label, new_call_id() if payload is None else payload)
        live = stack.live
        stack.busy = True
        try:
            set_payload, push_range, pop_range = stack.bound.get(label) or stack.bind(label, True)
            set_payload(token[1])
            live += (token,)  # before the push, so that an interrupt afterwards finds both done
            push_range()
        except Exception as error:  # noqa: BLE001 (nothing was pushed; interrupts come later)
            _not_pushed(live, token, error)
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
                except Exception as error:  # noqa: BLE001 (raised again if it is the program's)
                    live += (token,)  # the caller closes it
                    _guard(error)
                finally:
                    stack.busy = False
            else:
                release(stack, token)

    return wrapper


def _not_pushed(live: list[Any], token: Token, error: Exception) -> None:
    if live and live[-1] is token:
        del live[-1]
    _guard(error)


def _guard(error: Exception) -> None:
    """Raise an error again that is the program's."""
    if not emission.takes(error):
        raise error


def _detailed(op: AnnotatedCallable) -> Wrapper:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if state.idle:
            return op.function(*args, **kwargs)
        return _call_slowly(op, args, kwargs)

    return wrapper


def _call_slowly(op: AnnotatedCallable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the function in its range, in any state of the stack; record details if requested."""
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
    observer: Observer, op: AnnotatedCallable, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Call the function in its range, and record details when it has ended."""
    seen = observer.look(args, kwargs)  # before the call, which may change its arguments
    entry, result = Entry(op.label, new_call_id()), None
    push(entry)
    try:
        result = op.function(*args, **kwargs)
        return result
    finally:
        close(entry)
        observer.note(int(entry.payload), seen, result, (args, kwargs))


def _begin(op: AnnotatedCallable) -> Begin:
    function, label, payload = op.function, op.label, op.payload

    def begin(*args: Any, **kwargs: Any) -> tuple[Any, Call | None]:
        if state.idle:
            return function(*args, **kwargs), None
        call, observer = Call(label, new_call_id(), payload), op.observer()
        if observer:
            observer.note(int(call.payload), observer.look(args, kwargs), None, (args, kwargs))
        return function(*args, **kwargs), call

    return begin


def _generator(op: AnnotatedCallable) -> Wrapper:
    return relaying(_begin(op))


def _iterable_coroutine(op: AnnotatedCallable) -> Wrapper:
    return coroutine(_generator(op))


def _coroutine(op: AnnotatedCallable) -> Wrapper:
    sliced = _iterable_coroutine(op)

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        running = (op.function if state.idle else sliced)(*args, **kwargs)
        del args, kwargs  # so that they can be released
        return await running

    return wrapper


def _async_generator(op: AnnotatedCallable) -> Wrapper:
    return relaying_async(_begin(op))


KINDS = {
    ASYNC_GENERATOR: _async_generator,
    COROUTINE: _coroutine,
    ITERABLE_COROUTINE: _iterable_coroutine,  # also a generator, so it is checked first
    GENERATOR: _generator,
}
