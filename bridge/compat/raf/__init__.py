"""RAF's profilers: `from bridge.compat import raf`; for example `raf.utils.profiler.start()`.

`raf.ir` and `raf.testing` have what the programs of RAF's guides call besides; PyTorch runs it.
"""

import sys
from types import ModuleType
from typing import Any

from bridge.compat.raf import (
    _ffi,
    ir,
    memory_profiler,
    op_profiler,
    profiler,
    scope_timer,
    testing,
)
from bridge.compat.raf.device import Device, cpu, cuda

# RAF's own name, for `from bridge.compat.raf.utils import profiler`; no module here would be called so.
utils: Any = ModuleType(f"{__name__}.utils", "The profilers where RAF has them.")
utils.memory_profiler, utils.profiler = memory_profiler, profiler
sys.modules[utils.__name__] = utils

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
