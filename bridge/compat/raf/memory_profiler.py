"""RAF's memory profiler: a sample after each op, peaks of a device, and a table of the samples.

A sample is taken at the end of every annotated op: the used and reserved bytes of the allocator;
on the CPU the resident memory of the process. Sizes are in MiB of 2^20 bytes.
"""

from __future__ import annotations

import re
import sys
from typing import Any

from bridge.annotate.memory import sampling
from bridge.annotate.memory.usage import CPU

DEVICE = re.compile(r"(cpu|cuda|gpu)\D*(\d*)\D*")
RETRIES = "num_alloc_retries"  # how often PyTorch's allocator released cached memory


def start() -> None:
    """Start to take samples at the end of every op."""
    sampling.start()


def stop() -> None:
    """Stop to take samples; keep those taken."""
    sampling.stop()


def reset() -> None:
    """Delete all samples."""
    sampling.reset()


def get_max_memory_info(device: Any) -> dict[str, float]:
    """Return the maxima max_used and max_allocated of a device (``cuda(0)``, ``cpu``) in MiB.

    max_trace_idx is the number of the sample with the maximum of used bytes; num_gc is how often
    the allocator released cached memory. Without samples, sizes are 0 and the number is -1. Raises
    ValueError for an invalid device.
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
    """Return a line per sample: number, op, MiB used and allocated; "" without samples."""
    return sampling.trace(_name(device))


def _name(device: Any) -> str:
    match = DEVICE.fullmatch(str(device).lower())
    if match is None:
        raise ValueError(f"memory_profiler: {device!r} is no device such as cpu or cuda(0)")
    kind, number = match.groups()
    return CPU if kind == CPU else f"cuda:{number or 0}"


def _retries(device: str) -> int:
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if device == CPU or cuda is None or not cuda.is_initialized():
        return 0
    return int(cuda.memory_stats(device).get(RETRIES, 0))
