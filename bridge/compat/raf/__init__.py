"""RAF's profilers: `from bridge.compat import raf`; for example `raf.profiler.start()`."""

from bridge.compat.raf import memory_profiler, op_profiler, profiler

__all__ = ["memory_profiler", "op_profiler", "profiler"]
