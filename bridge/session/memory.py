"""Memory as counters: what the process has resident, what PyTorch has allocated and reserved.

The invariant: reading them initialises nothing, neither CUDA nor PyTorch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from os import sysconf
from pathlib import Path

from bridge.annotate.instant import counter

DOMAIN = "memory"
_STATM = Path("/proc/self/statm")  # pages: all, resident, … (proc(5))
_RESIDENT = 1


def sample() -> None:
    """Record one sample of every counter, in bytes."""
    for name, value in (*_host(), *_pytorch()):
        counter(name, value, domain=DOMAIN)


def _host() -> Iterator[tuple[str, int]]:
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[_RESIDENT])
    except (OSError, ValueError, IndexError):
        return
    yield "host resident", pages * sysconf("SC_PAGE_SIZE")


def _pytorch() -> Iterator[tuple[str, int]]:
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    for device in range(cuda.device_count()):
        yield f"cuda:{device} allocated", int(cuda.memory_allocated(device))
        yield f"cuda:{device} reserved", int(cuda.memory_reserved(device))
