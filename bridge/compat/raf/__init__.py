"""RAF's profilers: `from bridge.compat import raf`; for example `raf.utils.profiler.start()`.

`raf.ir` and `raf.testing` have what the programs of RAF's guides call besides; PyTorch runs it.
"""

from bridge.compat.raf import (
    _ffi,
    ir,
    memory_profiler,
    op_profiler,
    profiler,
    scope_timer,
    testing,
    utils,
)
from bridge.compat.raf.device import Device, cpu, cuda

__all__ = [
    "Device",
    "_ffi",
    "cpu",
    "cuda",
    "ir",
    "memory_profiler",
    "op_profiler",
    "profiler",
    "scope_timer",
    "testing",
    "utils",
]
