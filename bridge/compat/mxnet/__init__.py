"""MXNet's profiler: `from bridge.compat.mxnet import profiler`, then `profiler.set_state("run")`."""

from bridge.compat.mxnet import profiler
from bridge.compat.mxnet.profiler import MXNetError

__all__ = ["MXNetError", "profiler"]
