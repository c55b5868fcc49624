"""MXNet's profiler: `from bridge.compat.mxnet import profiler`; see `profiler.set_state`."""

from bridge.compat.mxnet import cuda, profiler
from bridge.compat.mxnet.profiler import MXNetError

__all__ = ["MXNetError", "cuda", "profiler"]
