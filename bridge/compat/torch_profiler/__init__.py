"""PyTorch's profiler: `from bridge.compat.torch_profiler import profile, schedule, record_function`."""

from bridge.compat.torch_profiler.activities import (
    ProfilerAction,
    ProfilerActivity,
    supported_activities,
)
from bridge.compat.torch_profiler.handler import tensorboard_trace_handler
from bridge.compat.torch_profiler.profiling import profile
from bridge.compat.torch_profiler.schedules import schedule
from bridge.compat.torch_profiler.user import record_function

__all__ = [
    "ProfilerAction",
    "ProfilerActivity",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
]
