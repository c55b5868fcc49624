"""Memory of this process while it runs: samples at the ends of ops, peaks, what is alive by scope; see docs/memory.md."""

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
