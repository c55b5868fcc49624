"""Functions whose every call is a session.

The invariant: a call within a running session is a plain call.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridge.session.profile import F, Profile


def decorated(session: Profile, function: F, running: Callable[[], bool]) -> F:
    """Return the function, with a session around each call; raises TypeError for what it cannot surround."""
    if isgeneratorfunction(function) or isasyncgenfunction(function) or not callable(function):
        raise TypeError(f"profile decorates functions and coroutine functions, not {function!r}")
    if iscoroutinefunction(function):

        async def asynchronous(*args: Any, **kwargs: Any) -> Any:
            if running():
                return await function(*args, **kwargs)
            with session:
                return await function(*args, **kwargs)

        return wraps(function)(asynchronous)  # type: ignore[return-value]

    def surrounded(*args: Any, **kwargs: Any) -> Any:
        if running():
            return function(*args, **kwargs)
        with session:
            return function(*args, **kwargs)

    return wraps(function)(surrounded)  # type: ignore[return-value]
