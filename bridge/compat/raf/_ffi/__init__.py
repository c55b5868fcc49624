"""The native functions that RAF's programs call: those of `op_profiler` and `scope_timer`."""

from bridge.compat.raf import scope_timer
from bridge.compat.raf._ffi import op_profiler

__all__ = ["op_profiler", "scope_timer"]
