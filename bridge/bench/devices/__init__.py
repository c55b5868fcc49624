"""Where calls run and what times them: the host's clock, or CUDA events of PyTorch's or of cuda-python's.

The invariant: what is asked of a device is `protocol.Device`, whichever it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

from bridge.bench.devices.cuda_python import CudaPython, DeviceError
from bridge.bench.devices.host import Host
from bridge.bench.devices.protocol import Call, Device, Label, Spans
from bridge.bench.devices.torch_cuda import TorchCuda
from bridge.bench.errors import BenchError

# -- Which device times a call: where its tensors are, unless it is said


ASKED = re.compile(r"(cpu|cuda|gpu)(?::(\d+))?", re.ASCII)
DEEPEST = 4  # lists in lists


def device(asked: Any, values: Iterable[Any]) -> Device:
    """Return the device that is asked for ("cpu", "cuda", "cuda:1", or a device itself), else that of the first tensor on a GPU.

    Raises ValueError for what is no device, and where there is no GPU.
    """
    if asked is None:
        return _where(values)
    if hasattr(asked, "runs"):
        found: Device = asked
        return found
    match = ASKED.fullmatch(str(asked))
    if match is None:
        raise BenchError(f"device is 'cpu', 'cuda' or 'cuda:N', not {asked!r}")
    index = int(match[2] or 0)
    return host_device() if match[1] == "cpu" else _gpu(index)


def _where(values: Iterable[Any]) -> Device:
    """Return the device of the first tensor on a GPU; without any tensor PyTorch's GPU, if the program uses one: events time the host too."""
    torch = sys.modules.get("torch")
    told = False
    for value in _each(values):
        index = _index(value)
        if index is not None:
            of_torch = torch is not None and isinstance(value, torch.Tensor)
            return torch_cuda(index) if of_torch else cuda_python(index)
        told = told or hasattr(value, "dtype")
    if told or torch is None or not torch.cuda.is_initialized():
        return host_device()
    return torch_cuda(int(torch.cuda.current_device()))


def _each(values: Iterable[Any], depth: int = 0) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple | dict) and depth < DEEPEST:
            inner = value.values() if isinstance(value, dict) else value
            yield from _each(inner, depth + 1)
        else:
            yield value


def _index(value: Any) -> int | None:
    """Return the number of the GPU that a tensor is on, None for what is on none."""
    if getattr(value, "is_cuda", False) is True:  # PyTorch's
        return int(value.device.index or 0)
    if type(value).__module__.partition(".")[0] == "cupy":
        return int(getattr(value.device, "id", 0))
    return None


def _gpu(index: int) -> Device:
    """Return a GPU that was asked for: through PyTorch where that has it, else through cuda-python."""
    try:
        import torch  # seconds, and only where a GPU is asked for

        if torch.cuda.is_available():
            if index >= torch.cuda.device_count():
                raise BenchError(f"device cuda:{index}: there are {torch.cuda.device_count()} GPUs")
            return torch_cuda(index)
    except ImportError:
        pass
    return cuda_python(index)


@lru_cache
def host_device() -> Host:
    """Return the host."""
    return Host()


@lru_cache
def torch_cuda(index: int) -> TorchCuda:
    """Return a GPU through PyTorch."""
    import torch  # loaded by who made the tensors

    return TorchCuda(torch, index)


@lru_cache
def cuda_python(index: int) -> CudaPython:
    """Return a GPU through cuda-python, with CuPy's streams where CuPy is loaded."""
    try:
        runtime = import_module("cuda.bindings.runtime")
    except ImportError as error:
        raise BenchError(
            f"device cuda:{index}: no PyTorch with CUDA and no cuda-python: {error}"
        ) from error
    cupy = sys.modules.get("cupy")
    try:
        if cupy is None:
            return CudaPython(runtime, index)
        streams = cupy.cuda
        return CudaPython(
            runtime, index, lambda: int(streams.get_current_stream().ptr), streams.ExternalStream
        )
    except (DeviceError, RuntimeError) as error:
        raise BenchError(f"device cuda:{index}: no GPU can be used: {error}") from error


# -- Where calls run and what times them: the host's clock, or CUDA events of PyTorch's or of cuda-python's


__all__ = ["Call", "Device", "Label", "Spans", "device"]
