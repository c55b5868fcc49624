"""Ranges that PyTorch itself emits for its ops and the nodes of autograd: those of `emit_nvtx`, with sizes.

They change no op, and are open on the thread that begins them and in its backward passes. They begin
when the program initializes CUDA, so that nothing here does. PyTorch has one profiler per
thread: they step aside while the program's own runs on theirs.
"""

from __future__ import annotations

from threading import local
from typing import Any

from torch import backends, cuda
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig
from torch.autograd import _disable_profiler, _enable_profiler, _profiler_enabled
from torch.autograd.profiler import emit_itt, emit_nvtx, profile

from bridge.annotate.guard import Guard
from bridge.annotate.hooks import FAILED, FunctionHook, Hooks
from bridge.frameworks.torch.blocks import torch_hook

NATIVE_OPS = Guard("ops of PyTorch")
STATE = ProfilerState.NVTX


def has_gpu() -> bool:
    """Return whether there is an NVIDIA GPU for PyTorch; does not initialize CUDA, which would forbid forks."""
    if cuda.is_initialized():
        return True
    return bool(backends.cuda.is_built() and cuda._device_count_nvml() > 0)  # noqa: SLF001 (its public caller may initialize CUDA)


class NativeRanges:
    """Ranges of PyTorch on one thread: from the initialization of CUDA on, until `end`."""

    def __init__(self) -> None:
        self.is_over = False

    def begin(self) -> None:
        """Begin on this thread, or on the one that initializes CUDA later."""
        cuda._lazy_call(self._begin)  # noqa: SLF001 (no public name; calls at once if it is initialized)

    @NATIVE_OPS.hook
    def _begin(self) -> None:
        if self.is_over or _here.ranges is not None:
            return
        _hooks.request(+1)
        _here.ranges, _here.is_aside = self, bool(_profiler_enabled())
        if not _here.is_aside:
            _enable()

    def end(self) -> None:
        """End on the thread where they began; call it there."""
        self.is_over = True
        if _here.ranges is not self:
            return
        _here.ranges = None
        _hooks.request(-1)
        if not _here.is_aside:
            _disable_profiler()


class Here(local):
    """The ranges of this thread, and whether the program's profiler has their place."""

    def __init__(self) -> None:
        self.ranges: NativeRanges | None = None
        self.is_aside = False


_here = Here()


def _enable() -> None:
    with_sizes = True
    config = ProfilerConfig(STATE, with_sizes, False, False, False, False, _ExperimentalConfig())
    _enable_profiler(config, set())


@NATIVE_OPS.closing
def _step_aside(*_: Any) -> None:
    if _here.ranges is not None and not _here.is_aside:
        _here.is_aside = True
        _disable_profiler()


@NATIVE_OPS.closing
def _come_back() -> None:
    if _here.ranges is not None and _here.is_aside:
        _enable()
        _here.is_aside = False


def _started(_: Any, result: Any) -> Any:
    if result is FAILED:
        _come_back()
    return result


def _stopped(_: Any, result: Any) -> Any:
    _come_back()
    return result


def _profiler_hooks() -> list[FunctionHook]:
    starts = (profile._prepare_trace, profile._start_trace, emit_nvtx.__enter__, emit_itt.__enter__)  # noqa: SLF001 (what torch.profiler calls)
    ends = (profile.__exit__, emit_nvtx.__exit__, emit_itt.__exit__)
    return [
        *(torch_hook(start, _step_aside, _started) for start in starts),
        *(torch_hook(end, lambda *_: None, _stopped) for end in ends),
    ]


_hooks = Hooks("ops of PyTorch beside its profiler", _profiler_hooks)
