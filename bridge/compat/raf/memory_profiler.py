"""The calls of RAF's memory profiler: a sample after each op, peaks and a table of a device.

A sample is taken at the end of every annotated op, of what the allocator has handed out and has reserved; of the
CPU what the process has resident. Sizes are in MiB of 2^20 bytes.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from bridge.annotate.memory import sampling
from bridge.annotate.memory.uses import CPU

DEVICE = re.compile(r"(cpu|cuda|gpu)\D*(\d*)\D*")
RETRIES = "num_alloc_retries"  # how often PyTorch's allocator gave memory back to find some


def start() -> None:
    """Sample from now on, at the end of every op."""
    sampling.start()


def stop() -> None:
    """Sample no more; what was found is kept."""
    sampling.stop()


def reset() -> None:
    """Forget what was found."""
    sampling.reset()


def get_max_memory_info(device: Any) -> dict[str, float]:
    """Return max_used and max_allocated of a device (``cuda(0)``, ``cpu``), in MiB, each its own maximum.

    max_trace_idx is the number of the sample in which most was used, num_gc how often the allocator released
    what it kept. Without samples sizes are 0 and the number -1. Raises ValueError for what is no device.
    """
    name = _name(device)
    peaks = sampling.max_info(name)
    return {
        "max_used": max(0, peaks.used) / sampling.MIB,
        "max_allocated": max(0, peaks.reserved, peaks.used) / sampling.MIB,
        "max_trace_idx": peaks.used_at,
        "num_gc": _retries(name),
    }


def get_memory_trace(device: Any) -> str:
    """Return a line for each sample: number, op, MiB used and allocated; "" without samples."""
    return sampling.trace(_name(device))


def _name(device: Any) -> str:
    found = DEVICE.fullmatch(str(device).lower())
    if found is None:
        raise ValueError(f"memory_profiler: {device!r} is no device such as cpu or cuda(0)")
    kind, number = found.groups()
    return CPU if kind == CPU else f"cuda:{number or 0}"


def _retries(device: str) -> int:
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if device == CPU or cuda is None or not cuda.is_initialized():
        return 0
    return int(cuda.memory_stats(device).get(RETRIES, 0))
