"""PyTorch's profiler: `from bridge.compat.torch_profiler import profile, schedule, record_function`."""

from bridge.compat.torch_profiler.activities import (
    ProfilerAction,
    ProfilerActivity,
    schedule,
    supported_activities,
    tensorboard_trace_handler,
)
from bridge.compat.torch_profiler.events import record_function
from bridge.compat.torch_profiler.profiling import profile

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
