"""MegEngine's `trace` with ``profiling=True``, whose profile `profile_analyze` reads.

PyTorch runs the function as it is: there is no static graph, and nothing is compiled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

from bridge.capture.session.profile import is_profiling
from bridge.capture.session.profile import profile as session_of
from bridge.compat.calls import RecordedEvents, innermost_ops, recorded_events

Function = Callable[..., Any]


def trace(function: Function | None = None, **options: Any) -> Any:
    """Return a traced function, or a decorator if only options are given.

    Of the options of MegEngine, ``profiling`` has an effect.
    """
    if function is None:
        return lambda decorated: Traced(decorated, **options)
    return Traced(function, **options)


class Traced:
    """A traced function; with ``profiling`` the ops of its last call are kept."""

    def __init__(self, function: Function, profiling: bool = False, **options: Any) -> None:
        self._function, self._profiling = function, profiling
        self._recorded: RecordedEvents | None = None
        self.options = options
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function; a call within another profiler is not profiled."""
        if not self._profiling or is_profiling():
            return self._function(*args, **kwargs)
        session = session_of(record_shapes=True)
        with session:
            result = self._function(*args, **kwargs)
        self._recorded = innermost_ops(recorded_events(session))
        return result

    def get_profile(self) -> dict[str, Any]:
        """Return the profile of the last call: ``graph_exec`` and ``profiler``, for JSON.

        Raises RuntimeError without ``profiling=True`` or before the first call.
        """
        if not self._profiling:
            raise RuntimeError("no profile: write trace(profiling=True)")
        if self._recorded is None:
            raise RuntimeError("no profile: the function has not been called")
        from bridge.compat.megengine.operators import profile_of  # loads pandas

        return profile_of(self._recorded, on_cpu=not _uses_gpu())


def _uses_gpu() -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return bool(cuda is not None and cuda.is_initialized())
