"""MegEngine's profiler: `from bridge.compat.megengine import Profiler, profile, scope`."""

from bridge.compat.megengine.profiler import (
    Profiler,
    is_profiling,
    merge_trace_events,
    profile,
    scope,
)

__all__ = ["Profiler", "is_profiling", "merge_trace_events", "profile", "scope"]
