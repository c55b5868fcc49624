"""PyTorch's profiler, which needs CUPTI for itself: a capture leaves before it starts.

Kineto subscribes to CUPTI before its first trace with CUDA. If that is refused, because a capture is subscribed, it
records no GPU for as long as the process lives. It stays subscribed after a trace, or finalizes CUPTI in a thread of
its own (TEARDOWN_CUPTI=1): so a capture does not come back, and CUPTI itself says whether a later one may start.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any

from bridge.frameworks import autorun

NAME = "PyTorch's profiler"
MODULE, PREPARE = "torch.autograd.profiler", "_prepare_trace"


class Watch:
    """Calls ``leave`` with a name before each trace with CUDA, until `end`; PyTorch may be imported later on."""

    def __init__(self, leave: Callable[[str], object]) -> None:
        self._leave = leave
        self._profile: Any = None
        self._original: Any = None
        self._patched: Any = None
        autorun.expect(MODULE, self._patch)

    def end(self) -> None:
        """Leave PyTorch as it was."""
        autorun.forget(MODULE, self._patch)
        # Another patch that was made since then stays, and calls ours.
        if self._patched is not None and getattr(self._profile, PREPARE) is self._patched:
            setattr(self._profile, PREPARE, self._original)
        self._leave = str

    def _patch(self, _: autorun.Options) -> None:
        self._profile = getattr(sys.modules[MODULE], "profile", None)
        self._original = getattr(self._profile, PREPARE, None)
        if self._original is not None:
            self._patched = self._around(self._original)
            setattr(self._profile, PREPARE, self._patched)

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def prepare(profiler: Any, *args: Any, **options: Any) -> Any:
            with suppress(Exception):
                if any(kind.name == "CUDA" for kind in profiler.kineto_activities):
                    self._leave(NAME)
            return original(profiler, *args, **options)

        return prepare
