"""Tell the tool that is attached which steps to capture.

nsys waits for either of two signs, a range of NVTX (which needs no GPU) or the CUDA profiler:

    nsys profile -c nvtx -p capture@nsight-bridge --capture-range-end=repeat … python train.py
    nsys profile -c cudaProfilerApi --capture-range-end=repeat … python train.py

Without --capture-range-end nsys takes `stop-shutdown`, and `--kill sigterm` with it: the end of the first
capture then ends the program. `stop` keeps the first capture only, `repeat:N` makes a report of each.

The invariant: what was started is stopped, once. Nothing here initialises CUDA or makes a context, and
without a tool nothing is called or imported.
"""

from __future__ import annotations

import os
from importlib import import_module
from threading import Lock

from bridge.annotate.cuda_context import thread_has_context
from bridge.annotate.emit import SIGNS
from bridge.annotate.op import nvtx_range
from bridge.annotate.warning import warn

DOMAIN, NAME = "nsight-bridge", "capture"  # what the option `-p` of nsys names
NVTX, CUDA, NOTHING, AUTO = KINDS = ("nvtx", "cudaProfilerApi", "none", "auto")

# Tools that hear the CUDA profiler but may hear no range: nsys without NVTX sets the first, ncu the second.
CUDA_SIGNS = (*SIGNS, "CUDA_INJECTION64_PATH", "NV_TPS_LAUNCH_TOKEN")
REMEDY = "use CUDA before the first step that is captured, or capture by 'nvtx'"


class Capture:
    """What a tool captures, from `start` to `stop`; it may be started again and again."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._range = nvtx_range(NAME, domain=DOMAIN)
        self._running = False
        self._profiling = False

    def start(self) -> None:
        """Let the tool capture; if it does already, do nothing."""
        if self._running:
            return
        self._running = True
        if self.kind == CUDA or (self.kind == AUTO and has_context()):
            self._profiling = _profiler.start()
        if self.kind in (NVTX, AUTO):  # within the other, so that it is captured by either sign
            self._range.start()

    def stop(self) -> None:
        """Let the tool capture no more; nsys may end the program here, see above."""
        if not self._running:
            return
        self._running = False
        self._range.end()
        if self._profiling:
            self._profiling = False
            _profiler.stop()


def capture(kind: str | None) -> Capture:
    """Make what starts and stops the capture: by `nvtx`, `cudaProfilerApi`, `none` (or None), or `auto`.

    `auto` is what $BRIDGE_CAPTURE says; else the range, and the CUDA profiler as well where the thread
    that starts has a CUDA context by then. Raises ValueError for another kind.
    """
    chosen = NOTHING if kind is None else _kind_of(kind)
    if chosen is None:
        raise ValueError(f"capture: {kind!r} is none of {', '.join(KINDS)}")
    return Capture(_from_environment() if chosen == AUTO else chosen)


def has_context() -> bool:
    """Tell whether this thread has a CUDA context; without a tool nobody is asked."""
    return _tool_is_attached() and thread_has_context()


class _Profiler:
    """CUDA's profiler control, which does not count: the first start and the last stop are its own."""

    def __init__(self) -> None:
        self._captures = 0
        self._counting = Lock()

    def start(self) -> bool:
        """Start it, or tell that it could not be."""
        with self._counting:
            started = self._captures > 0 or (_tool_is_attached() and _called("cuProfilerStart"))
            self._captures += started
            return started

    def stop(self) -> None:
        """Stop it, if no other capture goes on."""
        with self._counting:
            self._captures -= 1
            if not self._captures:
                _called("cuProfilerStop")


_profiler = _Profiler()
_warned: set[str] = set()


def _called(function: str) -> bool:
    """Call the driver's function; the first that fails is told of."""
    try:
        (result,) = getattr(import_module("cuda.bindings.driver"), function)()
    except ImportError as missing:
        return _warn("cuda", f"{function} was not called ({missing}); pip install cuda-bindings")
    except RuntimeError as problem:  # how the bindings say that there is no driver
        return _warn("cuda", f"{function} was not called ({_first_line(problem)}); {REMEDY}")
    if int(result):
        return _warn("cuda", f"{function} failed ({result.name}); {REMEDY}")
    return True


def _from_environment() -> str:
    wanted = os.environ.get("BRIDGE_CAPTURE") or AUTO
    kind = _kind_of(wanted)
    if kind is None:
        _warn(
            "environment", f"BRIDGE_CAPTURE={wanted} is none of {', '.join(KINDS)}: taken as auto"
        )
    return kind or AUTO


def _kind_of(written: str) -> str | None:
    return next((kind for kind in KINDS if kind.lower() == written.lower()), None)


def _tool_is_attached() -> bool:
    return any(os.environ.get(sign) for sign in CUDA_SIGNS)


def _first_line(problem: Exception) -> str:
    return next(iter(str(problem).splitlines()), type(problem).__name__)


def _warn(about: str, message: str) -> bool:
    """Warn, once for each subject; give False, which a caller hands on."""
    if about not in _warned:
        _warned.add(about)
        warn(message)
    return False
