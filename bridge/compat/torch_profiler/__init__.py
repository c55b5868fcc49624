"""PyTorch's profiler: `from bridge.compat.torch_profiler import profile, schedule`.

Every public name of `torch.profiler`, `torch.autograd.profiler` and `torch.autograd.profiler_util` is
here, and is PyTorch's own object, except `profile`: a subclass that also gives the tables of bridge
and, under nsys, NVTX ranges.
"""

from importlib import import_module
from typing import Any

try:
    import_module("torch.profiler")
except ImportError as problem:
    raise ImportError(
        f"bridge.compat.torch_profiler needs PyTorch (pip install torch): {problem}"
    ) from problem

from torch.profiler import (
    DeviceType,
    ExecutionTraceObserver,
    ProfilerAction,
    ProfilerActivity,
    itt,
    kineto_available,
    record_function,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

from bridge.compat.torch_profiler.profile import profile

__all__ = [
    "DeviceType",
    "ExecutionTraceObserver",
    "ProfilerAction",
    "ProfilerActivity",
    "itt",
    "kineto_available",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]

# Where other names are looked up, in this order.
MODULES = ("torch.profiler", "torch.autograd.profiler", "torch.autograd.profiler_util")


def __getattr__(name: str) -> Any:
    if not name.startswith("__"):
        for module in map(import_module, MODULES):
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(
        {*globals(), *(name for module in MODULES for name in dir(import_module(module)))}
    )
