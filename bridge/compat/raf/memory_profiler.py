"""RAF's memory profiler: a sample after each op, peaks of a device, and a table of the samples.

A sample is taken at the end of every op of PyTorch and of every annotated op: the used and reserved
bytes of the allocator; on the CPU the resident memory of the process. Sizes are in MiB of 2^20 bytes.
"""

from __future__ import annotations

import sys
from typing import Any

from bridge.annotate.emitter import warn
from bridge.annotate.memory import sampling
from bridge.annotate.memory.usage import CPU
from bridge.compat.raf.device import Device
from bridge.compat.raf.values import FloatImm, IntImm
from bridge.frameworks.autorun import expect, forget

RETRIES = "num_alloc_retries"  # how often PyTorch's allocator released cached memory
STOPPED = "stop"  # tag of the sample that is taken where no op ran
NO_OP = (
    "memory_profiler: no op ran between start and stop, so there is one sample, of the memory at stop;"
    " run ops of PyTorch on the thread of start, or annotate functions with nvtx_op"
)

_taken = [0]  # number of samples at the start
_ops: list[Any] = []  # of PyTorch, while memory is sampled


def start() -> None:
    """Start to take samples at the end of every op."""
    stop_ops()
    sampling.start()
    _taken[0] = sampling.taken()
    if "torch.nn" in sys.modules or "torch" not in sys.modules:
        expect("torch", _annotate)


def stop() -> None:
    """Stop to take samples; keep those taken. Without an op, take one now and warn."""
    was_on = sampling.is_running()
    stop_ops()
    sampling.stop()
    if was_on and sampling.taken() == _taken[0]:
        sampling.sample(STOPPED)
        warn(NO_OP, 2)


def stop_ops() -> None:
    """Stop to annotate PyTorch's ops."""
    forget("torch", _annotate)
    while _ops:
        _ops.pop().disable()


def _annotate(_: object) -> None:
    from bridge.frameworks import torch  # PyTorch is loaded

    _ops.append(torch.ops())
    _ops[-1].enable()


def reset() -> None:
    """Delete all samples."""
    sampling.reset()


def get_max_memory_info(device: Any) -> dict[str, FloatImm | IntImm]:
    """Return the maxima max_used and max_allocated of a device (``cuda(0)``, ``cpu``) in MiB.

    max_trace_idx is the number of the sample with the maximum of used bytes; num_gc is how often
    the allocator released cached memory. Without samples, sizes are 0 and the number is -1. Raises
    ValueError for an invalid device.
    """
    name = _name(device)
    peaks = sampling.max_info(name)
    return {
        "max_used": FloatImm(max(0, peaks.used) / sampling.MIB),
        "max_allocated": FloatImm(max(0, peaks.reserved, peaks.used) / sampling.MIB),
        "max_trace_idx": IntImm(peaks.used_at),
        "num_gc": IntImm(_retries(name)),
    }


def get_memory_trace(device: Any) -> str:
    """Return a line per sample: number, op, MiB used and allocated; "" without samples."""
    return sampling.trace(_name(device))


def _name(device: Any) -> str:
    kind = Device(str(device))
    return CPU if kind.device_type == CPU else f"{kind.device_type}:{kind.device_id}"


def _retries(device: str) -> int:
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    if device == CPU or cuda is None or not cuda.is_initialized():
        return 0
    return int(cuda.memory_stats(device).get(RETRIES, 0))
