"""MegEngine's profiler: `from bridge.compat.megengine import Profiler, profile, scope`."""

from bridge.compat.megengine.jit import trace
from bridge.compat.megengine.module_stats import module_stats
from bridge.compat.megengine.profiler import (
    Profiler,
    is_profiling,
    merge_trace_events,
    pop_scope,
    profile,
    push_scope,
    scope,
    start_profile,
    stop_profile,
    stop_step,
)

__all__ = [
    "Profiler",
    "is_profiling",
    "merge_trace_events",
    "module_stats",
    "pop_scope",
    "profile",
    "push_scope",
    "scope",
    "start_profile",
    "stop_profile",
    "stop_step",
    "trace",
]
