"""The profilers where RAF has them: `from bridge.compat.raf.utils import profiler`."""

from bridge.compat.raf import memory_profiler, profiler

__all__ = ["memory_profiler", "profiler"]
