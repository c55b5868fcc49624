"""RAF's profiler: `from bridge.compat import raf`, then `raf.profiler.start()`."""

from bridge.compat.raf import profiler

__all__ = ["profiler"]
