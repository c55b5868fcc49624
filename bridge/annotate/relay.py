"""Run coroutines and generators in slices: a push at each resume, a pop at each suspension.

The invariant: what is sent, thrown, yielded, returned or raised passes as if nothing stood between.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import coroutine
from typing import Any

from bridge.annotate.stack import Call, close, resume, suspend

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
            except BaseException as error:  # noqa: BLE001
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
