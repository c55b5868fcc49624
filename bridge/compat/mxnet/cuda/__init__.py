"""MXNet's control of NVIDIA's profilers: `cuda_profiler_start`, `cuda_profiler_stop`, and `nvtx`."""

from bridge.capture.session.control import CUDA, capture_control
from bridge.compat.mxnet.cuda import nvtx

__all__ = ["cuda_profiler_start", "cuda_profiler_stop", "nvtx"]

_control = capture_control(CUDA)


def cuda_profiler_start() -> None:
    """Start the capture of a tool that waits for the CUDA profiler, such as nsys -c cudaProfilerApi."""
    _control.start()


def cuda_profiler_stop() -> None:
    """Stop the capture."""
    _control.stop()
