"""Memory of this process: samples at the ends of ops, peaks, live allocations by scope.

This is the public path of `bridge.annotate.memory`; see docs/memory.md.
"""

from bridge.annotate.memory import (
    Peaks,
    Use,
    max_info,
    reset,
    sample,
    scope,
    snapshot,
    start,
    stop,
    trace,
    uses,
)

__all__ = [
    "Peaks",
    "Use",
    "max_info",
    "reset",
    "sample",
    "scope",
    "snapshot",
    "start",
    "stop",
    "trace",
    "uses",
]
