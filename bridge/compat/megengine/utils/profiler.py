"""The names of `megengine.utils.profiler`."""

from bridge.compat.megengine.profiler import (
    Profiler,
    is_profiling,
    merge_trace_events,
    profile,
    scope,
)

__all__ = ["Profiler", "is_profiling", "merge_trace_events", "profile", "scope"]
