"""RAF's profilers: `from bridge.compat import raf`, then `raf.profiler.start()`, `raf.op_profiler.Profile(call)`."""

from bridge.compat.raf import memory_profiler, op_profiler, profiler

__all__ = ["memory_profiler", "op_profiler", "profiler"]
