"""Control of the attached tool: which steps it captures.

nsys waits for one of two signals, an NVTX range (which needs no GPU) or the CUDA profiler:

    nsys profile -c nvtx -p capture@nsight-bridge --capture-range-end=repeat … python train.py
    nsys profile -c cudaProfilerApi --capture-range-end=repeat … python train.py

Without --capture-range-end nsys uses `stop-shutdown` and `--kill sigterm`: the end of the first
capture then ends the program. `stop` keeps the first capture only, `repeat:N` writes a report of
each.

Every started capture is stopped, once. Nothing here initializes CUDA or creates a context. Without
a tool nothing is called or imported.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from threading import Lock
from typing import Any

from bridge.annotate.emit import SIGNS
from bridge.annotate.emitter import warn
from bridge.annotate.memory.usage import thread_has_context
from bridge.annotate.op import nvtx_range
from bridge.knowledge.suggestions import unknown_name

DOMAIN, NAME = "nsight-bridge", "capture"  # the range for the option `-p` of nsys
NVTX, CUDA, NOTHING, AUTO = KINDS = ("nvtx", "cudaProfilerApi", "none", "auto")

# Also set by tools that support the CUDA profiler but record no ranges: nsys without NVTX, and ncu.
CUDA_SIGNS = (*SIGNS, "CUDA_INJECTION64_PATH", "NV_TPS_LAUNCH_TOKEN")
REMEDY = "use CUDA before the first step that is captured, or capture by 'nvtx'"


class CaptureControl:
    """Starts and stops the capture of a tool; may be restarted."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._range = nvtx_range(NAME, domain=DOMAIN)
        self._running = False
        self._profiling = False

    def start(self) -> None:
        """Start the capture; does nothing if it is running."""
        if self._running:
            return
        self._running = True
        if (capture := _waiting_capture()) is not None:
            capture.resume()
        if self.kind == CUDA or (self.kind == AUTO and has_context()):
            self._profiling = _profiler.start()
        if self.kind in (NVTX, AUTO):  # inside the other, so that either signal captures it
            self._range.start()

    def stop(self) -> None:
        """Stop the capture; nsys may end the program here (see above)."""
        if not self._running:
            return
        self._running = False
        self._range.end()
        if (capture := _waiting_capture()) is not None:
            capture.pause()
        if self._profiling:
            self._profiling = False
            _profiler.stop()


def capture_control(kind: str | None) -> CaptureControl:
    """Return the control of a kind: `nvtx`, `cudaProfilerApi`, `none` (or None), or `auto`.

    `auto` uses $BRIDGE_CAPTURE. If that is not set, it uses the range, and also the CUDA profiler
    if the starting thread has a CUDA context by then. Raises ValueError for another kind.
    """
    known = NOTHING if kind is None else _kind_of(kind)
    if known is None:
        raise ValueError(f"capture: {unknown_name('kind', kind, KINDS)}")
    return CaptureControl(_from_environment() if known == AUTO else known)


def has_context() -> bool:
    """Return whether a tool is attached and this thread has a CUDA context."""
    return _tool_is_attached() and thread_has_context()


def _waiting_capture() -> Any:
    """Return the capture by CUPTI that waits for active steps, or None; loads nothing."""
    cupti = sys.modules.get("bridge.capture.cupti.capture")
    return None if cupti is None else cupti.waiting()


class _Profiler:
    """CUDA's profiler control; only the first start and the last stop call the driver."""

    def __init__(self) -> None:
        self._captures = 0
        self._counting = Lock()

    def start(self) -> bool:
        """Start the profiler; return whether it is running."""
        with self._counting:
            started = self._captures > 0 or (
                _tool_is_attached() and _call_driver("cuProfilerStart")
            )
            self._captures += started
            return started

    def stop(self) -> None:
        """Stop the profiler, unless another capture is running."""
        with self._counting:
            self._captures -= 1
            if not self._captures:
                _call_driver("cuProfilerStop")


_profiler = _Profiler()
_warned: set[str] = set()


def _call_driver(function: str) -> bool:
    """Call a function of the driver; return whether it succeeded. Warns about the first failure."""
    try:
        (result,) = getattr(import_module("cuda.bindings.driver"), function)()
    except ImportError as error:
        return _warn("cuda", f"{function} was not called ({error}); pip install cuda-bindings")
    except RuntimeError as error:  # raised by the bindings without a driver
        return _warn("cuda", f"{function} was not called ({_first_line(error)}); {REMEDY}")
    if int(result):
        return _warn("cuda", f"{function} failed ({result.name}); {REMEDY}")
    return True


def _from_environment() -> str:
    name = os.environ.get("BRIDGE_CAPTURE") or AUTO
    kind = _kind_of(name)
    if kind is None:
        _warn(
            "environment", f"BRIDGE_CAPTURE={name} is not one of {', '.join(KINDS)}; auto is used"
        )
    return kind or AUTO


def _kind_of(name: str) -> str | None:
    return next((kind for kind in KINDS if kind.lower() == name.lower()), None)


def _tool_is_attached() -> bool:
    return any(os.environ.get(sign) for sign in CUDA_SIGNS)


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)


def _warn(subject: str, message: str) -> bool:
    """Warn once per subject; returns False, for the caller to return."""
    if subject not in _warned:
        _warned.add(subject)
        warn(message)
    return False
