"""How much memory is in use now: of the process, and of each GPU by the allocator that the program uses.

The invariant: asking initialises nothing, neither CUDA nor a library, and imports none but CUDA's bindings.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from os import sysconf
from pathlib import Path
from typing import Any, NamedTuple

from bridge.annotate.cuda_context import thread_has_context

UNKNOWN = -1
CPU = "cpu"
_STATM = Path("/proc/self/statm")  # pages: all, resident, … (proc(5))
_RESIDENT = 1


class Use(NamedTuple):
    """Memory of a device, in bytes; ``reserved`` is what the allocator has of the device, -1 without one."""

    device: str  # cpu, cuda:0
    used: int
    reserved: int
    name: str  # what ``used`` counts


def uses() -> list[Use]:
    """Return the use of each device: of the CPU what is resident, of GPUs what tensors take.

    PyTorch's allocator is asked, else CuPy's; of a program that has neither, CUDA is: what all processes
    have of the thread's GPU.
    """
    gpus = list(_pytorch()) or list(_cupy()) or list(_whole_gpu())
    return [*_host(), *gpus]


def _host() -> Iterator[Use]:
    try:
        pages = int(_STATM.read_text(encoding="ascii").split()[_RESIDENT])
    except (OSError, ValueError, IndexError):
        return
    yield Use(CPU, pages * sysconf("SC_PAGE_SIZE"), UNKNOWN, "resident")


def _pytorch() -> Iterator[Use]:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return
    for number in range(cuda.device_count()):
        used, reserved = cuda.memory_allocated(number), cuda.memory_reserved(number)
        yield Use(f"cuda:{number}", int(used), int(reserved), "allocated")


def _cupy() -> Iterator[Use]:
    cupy: Any = sys.modules.get("cupy")
    if cupy is None or not thread_has_context():
        return
    pool = cupy.get_default_memory_pool()
    number = int(cupy.cuda.runtime.getDevice())
    yield Use(f"cuda:{number}", int(pool.used_bytes()), int(pool.total_bytes()), "allocated")


def _whole_gpu() -> Iterator[Use]:
    if not thread_has_context():
        return
    runtime = import_module("cuda.bindings.runtime")
    device, number = runtime.cudaGetDevice()
    failed, free, total = runtime.cudaMemGetInfo()
    if not (int(device) or int(failed)):
        yield Use(f"cuda:{int(number)}", int(total) - int(free), UNKNOWN, "in use")
