"""Whether this process uses CUDA, asked without using it.

The invariant: nothing here loads the driver, initialises it or makes a context.
"""

from __future__ import annotations

import os
from importlib import import_module


def thread_has_context() -> bool:
    """Tell whether this thread has a CUDA context; without CUDA's library, or its bindings, it has none."""
    if not driver_is_loaded():
        return False
    try:
        result, context = import_module("cuda.bindings.driver").cuCtxGetCurrent()
    except (ImportError, RuntimeError):
        return False
    return int(result) == 0 and bool(int(context))


def driver_is_loaded() -> bool:
    """Ask the dynamic linker, which loads nothing for this question."""
    from ctypes import CDLL  # only where somebody asks

    try:
        CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except (OSError, AttributeError):  # not loaded; a system that cannot be asked
        return False
    return True
