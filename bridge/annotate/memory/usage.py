"""Memory in use now: of the process, and of each GPU by the allocator of the program.

Asking initializes neither CUDA nor a library, creates no context, and imports only CUDA's bindings.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from os import sysconf
from pathlib import Path
from typing import Any, NamedTuple

# -- Whether this process uses CUDA


def thread_has_context() -> bool:
    """Return whether this thread has a CUDA context.

    False without CUDA's library or its bindings.
    """
    if not driver_is_loaded():
        return False
    try:
        result, context = import_module("cuda.bindings.driver").cuCtxGetCurrent()
    except (ImportError, RuntimeError):
        return False
    return int(result) == 0 and bool(int(context))


def driver_is_loaded() -> bool:
    """Return whether the CUDA driver library is loaded; does not load it."""
    from ctypes import CDLL  # loaded on demand

    try:
        CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except (OSError, AttributeError):  # not loaded, or not supported by the system
        return False
    return True


# -- Memory in use


UNKNOWN = -1
CPU = "cpu"
NVML = "pynvml"  # the bindings of NVIDIA's management library
_STATM = Path("/proc/self/statm")  # pages: all, resident, … (proc(5))
_RESIDENT = 1


class Use(NamedTuple):
    """Memory of a device in bytes; ``reserved`` is the total of the allocator, -1 if unknown."""

    device: str  # cpu, cuda:0
    used: int
    reserved: int
    name: str  # what ``used`` counts


def uses() -> list[Use]:
    """Return the memory in use: resident memory of the CPU, memory of tensors on each GPU.

    The source is PyTorch's allocator, or else CuPy's. For a program with neither, CUDA gives what
    all processes use of the thread's GPU.
    """
    gpus = list(_pytorch()) or list(_cupy()) or list(_whole_gpu())
    return [*_host(), *gpus]


def process_sizes(usages: Iterable[Use]) -> dict[str, int]:
    """Return the bytes of this process on each of the GPUs, driver and libraries included.

    GPUs of which NVML tells nothing are left out.
    """
    gpus = [use.device for use in usages if use.device != CPU]
    sizes = {gpu: process_bytes(int(gpu.rpartition(":")[2])) for gpu in gpus}
    return {gpu: size for gpu, size in sizes.items() if size is not None}


_absent: list[str] = []  # NVML's bindings, once they could not be imported


def process_bytes(gpu: int) -> int | None:
    """Return the bytes of this process on a GPU by NVML, or None if NVML does not report them."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is None or (_absent and NVML not in sys.modules):
        return None
    try:
        pynvml = import_module(NVML)
        pynvml.nvmlInit()
        device = cuda._get_nvml_device_index(gpu)  # noqa: SLF001 - respects CUDA_VISIBLE_DEVICES
        handle = pynvml.nvmlDeviceGetHandleByIndex(device)
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except ImportError:
        _absent[:] = [NVML]
        return None
    except Exception:  # noqa: BLE001 - NVML's errors are classes of a library that may be absent
        return None
    usage = (entry.usedGpuMemory for entry in processes if entry.pid == os.getpid())
    return next((int(used) for used in usage if used is not None), None)


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
