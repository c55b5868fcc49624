"""Settings of the C library's heap for large reports: freed memory is kept for the next array.

glibc maps each array over 32 MB (4 million rows) anew and unmaps it when it is freed. A command on
ten million kernels then spends a third of its CPU time on page faults. For smaller reports glibc
adapts by itself, and keeping more would cost memory. The module stands alone because it changes the
whole process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

LARGE = 512 << 20  # bytes of reports: about 4 million kernels with their API calls
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT = 1 << 30  # bytes: larger arrays are mapped; as much may stay unused at the end of the heap


def keep_for(reports: Sequence[Path]) -> bool:
    """Keep freed memory if the reports are large; return whether glibc's ``mallopt`` could be called."""
    from importers.column_files import size_of

    if sum(size_of(path) for path in reports if path.exists()) < LARGE:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(
        mallopt(what, KEPT) for what in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD)
    )
