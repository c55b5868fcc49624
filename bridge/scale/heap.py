"""The heap of the C library, in a process that is ours alone: for a large report, what is freed is kept for the next array.

glibc maps each array over 32 MB (4 million rows) anew and gives it back when it is freed, so that a command on ten million
kernels spends a third of its CPU time on fresh pages. Below that its heap grows by itself, and keeping more costs memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path

LARGE = 512 << 20  # bytes of reports: about 4 million kernels with their API calls
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h
KEPT = 1 << 30  # bytes: larger arrays are mapped, and as much may lie unused at the end of the heap


def keep_for(reports: Sequence[Path]) -> bool:
    """Let the heap keep what is freed if the reports are large; return whether glibc's ``mallopt`` is there to do so."""
    if sum(path.stat().st_size for path in reports if path.is_file()) < LARGE:
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(
        mallopt(what, KEPT) for what in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD)
    )
