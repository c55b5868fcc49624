"""Memory of this process while it runs: samples at the ends of ops, peaks, what is alive by scope.

    bridge.memory.start()              # sample at the end of every op
    …
    print(bridge.memory.max_info())    # peaks, each with its op

See docs/memory.md#in-the-process. For what a report knows of allocations: `bridge memory REPORT`.
"""

from bridge.annotate.memory.sampling import Peaks, max_info, reset, sample, start, stop, trace
from bridge.annotate.memory.scopes import scope, snapshot
from bridge.annotate.memory.uses import Use, uses

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
