"""Devices that run and time calls: the host, or a GPU through PyTorch or cuda-python."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any

from bridge.bench.devices.base import BenchError, Call, Device, Label, Spans
from bridge.bench.devices.cuda import CudaPython, DeviceError, TorchCuda
from bridge.bench.devices.host import Host

DEVICE_NAME = re.compile(r"(cpu|cuda|gpu)(?::(\d+))?", re.ASCII)
MAX_DEPTH = 4  # of nested lists


def find_device(request: Any, values: Iterable[Any]) -> Device:
    """Return a device by name, or that of the inputs.

    ``request`` is "cpu", "cuda", "cuda:1", a device, or None for the device of the first tensor on
    a GPU. Raises ValueError for other values, and if there is no such GPU.
    """
    if request is None:
        return _device_of_values(values)
    if hasattr(request, "runs"):
        result: Device = request
        return result
    match = DEVICE_NAME.fullmatch(str(request))
    if match is None:
        raise BenchError(f"device is 'cpu', 'cuda' or 'cuda:N', not {request!r}")
    index = int(match[2] or 0)
    return host_device() if match[1] == "cpu" else _gpu(index)


def _device_of_values(values: Iterable[Any]) -> Device:
    """Return the device of the first tensor on a GPU.

    Without tensors it is PyTorch's current GPU, if the program uses one: events include host time.
    """
    torch = sys.modules.get("torch")
    has_tensor = False
    for value in _flatten(values):
        index = _gpu_index(value)
        if index is not None:
            of_torch = torch is not None and isinstance(value, torch.Tensor)
            return torch_cuda(index) if of_torch else cuda_python(index)
        has_tensor = has_tensor or hasattr(value, "dtype")
    if has_tensor or torch is None or not torch.cuda.is_initialized():
        return host_device()
    return torch_cuda(int(torch.cuda.current_device()))


def _flatten(values: Iterable[Any], depth: int = 0) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple | dict) and depth < MAX_DEPTH:
            inner = value.values() if isinstance(value, dict) else value
            yield from _flatten(inner, depth + 1)
        else:
            yield value


def _gpu_index(value: Any) -> int | None:
    """Return the number of the GPU that holds a tensor, None for other values."""
    if getattr(value, "is_cuda", False) is True:  # PyTorch's
        return int(value.device.index or 0)
    if type(value).__module__.partition(".")[0] == "cupy":
        return int(getattr(value.device, "id", 0))
    return None


def _gpu(index: int) -> Device:
    """Return a GPU: through PyTorch if it supports CUDA, else through cuda-python."""
    try:
        import torch  # takes seconds

        if torch.cuda.is_available():
            if index >= torch.cuda.device_count():
                raise BenchError(f"device cuda:{index}: there are {torch.cuda.device_count()} GPUs")
            return torch_cuda(index)
    except ImportError:
        pass
    return cuda_python(index)


@lru_cache
def host_device() -> Host:
    return Host()


@lru_cache
def torch_cuda(index: int) -> TorchCuda:
    """Return a GPU through PyTorch."""
    import torch  # already loaded

    return TorchCuda(torch, index)


@lru_cache
def cuda_python(index: int) -> CudaPython:
    """Return a GPU through cuda-python, with CuPy's streams if CuPy is loaded."""
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


__all__ = ["Call", "Device", "Label", "Spans", "find_device"]
