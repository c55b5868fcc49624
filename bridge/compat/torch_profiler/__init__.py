"""PyTorch's profiler: `from bridge.compat.torch_profiler import profile, schedule`."""

from bridge.compat.torch_profiler.events import record_function
from bridge.compat.torch_profiler.profiling import (
    ProfilerAction,
    ProfilerActivity,
    profile,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
