"""Wrap a callable of any kind in the wrapper of its kind, which `inspect` takes for the same kind.

The invariant: `state.idle` is read at every call, never at decoration. Wrong arguments to a
coroutine or generator function are noticed where it is first awaited or advanced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from types import coroutine
from typing import Any

from bridge.annotate import callid
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.relay import Begin, relaying, relaying_async
from bridge.annotate.stack import Call, Entry, close, push

# Flags of code objects, as in `inspect`, which would cost 10 ms to import.
GENERATOR = 0x20
COROUTINE = 0x80
ITERABLE_COROUTINE = 0x100
ASYNC_GENERATOR = 0x200

Wrapper = Callable[..., Any]


def wrapped(function: Callable[..., Any], label: Label, payload: float | None) -> Wrapper:
    """Return the function with a range around every call of it."""
    flags = code_flags(function)
    kinds = (wrap for flag, wrap in KINDS.items() if flags & flag)
    return wraps(function)(next(kinds, _plain)(function, label, payload))


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


def _plain(function: Callable[..., Any], label: Label, payload: float | None) -> Wrapper:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if state.idle:
            return function(*args, **kwargs)
        entry = Entry(label, callid.new() if payload is None else payload)
        push(entry)
        try:
            return function(*args, **kwargs)
        finally:
            close(entry)

    return wrapper


def _begin(function: Callable[..., Any], label: Label, payload: float | None) -> Begin:
    def begin(*args: Any, **kwargs: Any) -> tuple[Any, Call | None]:
        call = None if state.idle else Call(label, callid.new(), payload)
        return function(*args, **kwargs), call

    return begin


def _generator(function: Callable[..., Any], label: Label, payload: float | None) -> Wrapper:
    return relaying(_begin(function, label, payload))


def _iterable_coroutine(
    function: Callable[..., Any], label: Label, payload: float | None
) -> Wrapper:
    return coroutine(_generator(function, label, payload))


def _coroutine(function: Callable[..., Any], label: Label, payload: float | None) -> Wrapper:
    sliced = _iterable_coroutine(function, label, payload)

    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        running = (function if state.idle else sliced)(*args, **kwargs)
        del args, kwargs  # the coroutine's to let go
        return await running

    return wrapper


def _async_generator(function: Callable[..., Any], label: Label, payload: float | None) -> Wrapper:
    return relaying_async(_begin(function, label, payload))


KINDS = {
    ASYNC_GENERATOR: _async_generator,
    COROUTINE: _coroutine,
    ITERABLE_COROUTINE: _iterable_coroutine,  # a generator as well: asked before it
    GENERATOR: _generator,
}
