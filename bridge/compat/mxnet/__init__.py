"""MXNet's profiler: `from bridge.compat.mxnet import profiler`; see `profiler.set_state`."""

from bridge.compat.mxnet import cuda, npx, profiler
from bridge.compat.mxnet.profiler import MXNetError

__all__ = ["MXNetError", "cuda", "npx", "profiler"]
