"""Functions whose every call is a session.

The invariant: a call within a running session is a plain call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any

from bridge.capture.session import running

if TYPE_CHECKING:
    from bridge.capture.session.profile import F, Profile


def decorated(session: Profile, function: F) -> F:
    """Return the function, with a session around each call; raises TypeError for what it cannot surround."""
    made: Any = function
    if isinstance(made, staticmethod | classmethod):
        return type(made)(decorated(session, made.__func__))  # type: ignore[return-value]
    if isinstance(made, type) or not callable(made) or _goes_on(made):
        raise TypeError(f"profile decorates functions and coroutine functions, not {made!r}")
    surround = _coroutine if iscoroutinefunction(made) else _plain
    return wraps(made)(surround(session, made))  # type: ignore[return-value]


def _goes_on(function: Any) -> bool:
    """Tell whether a function is a generator's, whose call ends before it has begun."""
    return isgeneratorfunction(function) or isasyncgenfunction(function)


def _plain(session: Profile, function: Callable[..., Any]) -> Callable[..., Any]:
    def surrounded(*args: Any, **kwargs: Any) -> Any:
        with _unless_running(session):
            return function(*args, **kwargs)

    return surrounded


def _coroutine(session: Profile, function: Callable[..., Any]) -> Callable[..., Any]:
    async def surrounded(*args: Any, **kwargs: Any) -> Any:
        with _unless_running(session):
            return await function(*args, **kwargs)

    return surrounded


@contextmanager
def _unless_running(session: Profile) -> Iterator[None]:
    """Surround a block with the session, unless one runs."""
    if running.current() is not None or not _begun(session):
        yield
        return
    try:
        yield
    finally:
        session.stop()


def _begun(session: Profile) -> bool:
    try:
        session.start()
    except running.SessionRunsError:  # by now: another thread was faster
        return False
    return True
