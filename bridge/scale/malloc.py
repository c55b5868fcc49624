"""Settings of the C library's heap for reports of some size: freed memory is kept for the next array.

glibc maps each large array anew and unmaps it when it is freed, and gives each thread a heap of its
own, which it shrinks as soon as it can. A command then spends a third of its CPU time on page
faults. One heap that keeps what is freed takes no more memory at its peak. The module stands alone
because it changes the whole process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

LARGE = 16 << 20  # bytes of reports: about a hundred thousand kernels with their API calls
KEPT = 1 << 30  # bytes: larger arrays are mapped; as much may stay unused at the end of the heap
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # malloc.h
SETTINGS = {M_ARENA_MAX: 1, M_TRIM_THRESHOLD: KEPT, M_MMAP_THRESHOLD: KEPT}


def keep_for(reports: Sequence[Path]) -> bool:
    """Keep freed memory if the reports are large; return whether glibc's ``mallopt`` could be called."""
    from bridge.importers.column_files import size_of

    if sum(size_of(path) for path in reports if path.exists()) < LARGE:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(
        mallopt(parameter, value) for parameter, value in SETTINGS.items()
    )
