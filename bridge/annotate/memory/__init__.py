"""Memory of this process: samples at the ends of ops, peaks, live allocations by scope.

    bridge.memory.start()              # sample at the end of every op
    …
    print(bridge.memory.max_info())    # peaks, each with its op

See docs/memory.md#sample-memory-without-a-profiler. For the allocations in a report use `bridge memory REPORT`.
"""

from bridge.annotate.memory.sampling import Peaks, max_info, reset, sample, start, stop, trace
from bridge.annotate.memory.scopes import scope, snapshot
from bridge.annotate.memory.usage import Use, uses

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
