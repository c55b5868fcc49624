"""Guards of the hooks that run in the program: an error of ours is one warning, and never the program's.

Hooks on hot paths catch errors themselves and ask `Guard.takes`, because a `try` costs nothing while
nothing is raised. Others are decorated with `Guard.hook` or `Guard.closing`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from itertools import pairwise
from types import FrameType, TracebackType
from typing import Any, TypeVar

from bridge.annotate.emitter import warn

HOME = __file__.rpartition("/annotate/")[0]  # the folder of the package, without `pathlib`
# What reaches its limit in a hook of ours reaches it in the program, too.
LIMITS = (RecursionError, MemoryError)

F = TypeVar("F", bound=Callable[..., Any])


class Guard:
    """Hooks of one kind, which end together after an error of ours; ``end`` undoes what they have open.

    What enables the hooks anew sets ``broken`` back.
    """

    __slots__ = ("broken", "end", "kind")

    def __init__(self, kind: str, end: Callable[[], object] = lambda: None) -> None:
        self.kind = kind
        self.end = end
        self.broken = False

    def takes(self, error: Exception) -> bool:
        """Return whether an error is ours; then it has been warned of, once, and the hooks have ended.

        Call it where the error is caught. What a signal handler of the program raised meanwhile is
        the program's.
        """
        if isinstance(error, LIMITS) or is_of_a_handler(error):
            return False
        if not self.broken:
            self.broken = True
            warn(f"{self.kind} are no longer recorded: {error_text(error)}{_place(error)}", 3)
        self.end()
        return True

    def hook(self, function: F) -> F:
        """Return a hook that does nothing, and returns None, from the first error of ours on."""
        return self._guarded(function, skips=True)

    def closing(self, function: F) -> F:
        """Return a hook that is called after an error as well, because it closes what is open."""
        return self._guarded(function, skips=False)

    def _guarded(self, function: F, *, skips: bool) -> F:
        @wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if skips and self.broken:
                return None
            try:
                return function(*args, **kwargs)
            except Exception as error:
                if not self.takes(error):
                    raise
                return None

        return guarded  # type: ignore[return-value]


def error_text(error: Exception) -> str:
    """Return the type and the text of an error, whose own methods may fail."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 - an exception whose text raises
        return type(error).__name__


def _frames(error: Exception) -> Iterator[TracebackType]:
    trace = error.__traceback__
    while trace is not None:
        yield trace
        trace = trace.tb_next


def is_of_a_handler(error: Exception) -> bool:
    """Return whether a signal handler of the program raised an error."""
    frames = [trace.tb_frame for trace in _frames(error)]
    return any(_is_handler(inner, outer) for outer, inner in pairwise(frames))


def _is_handler(frame: FrameType, outer: FrameType) -> bool:
    """Return whether a frame was called as a signal handler: with the frame that it interrupted.

    Handlers can be any objects, and need not be installed any more.
    """
    if frame.f_code.co_filename.startswith(HOME):  # ours, which may look at frames
        return False
    for value in frame.f_locals.values():
        if value is outer or (type(value) is tuple and any(item is outer for item in value)):
            return True
    return False


def _place(error: Exception) -> str:
    """Return the innermost line of this package that led to an error."""
    own = [t for t in _frames(error) if t.tb_frame.f_code.co_filename.startswith(HOME)]
    if not own:
        return ""
    file = own[-1].tb_frame.f_code.co_filename.removeprefix(HOME.rpartition("/")[0] + "/")
    return f" ({file}:{own[-1].tb_lineno})"
