"""Annotate a program: its ops become NVTX ranges in a profile.

Without a profiler nothing is emitted.
"""

from bridge.annotate.batches import batch
from bridge.annotate.emit import Backend, backend
from bridge.annotate.headers import get_include
from bridge.annotate.instant import Counter, Domain, counter, mark
from bridge.annotate.op import Op, Span, nvtx_op, nvtx_range, pop, push, scope
from bridge.annotate.patch import Patches, wrap

__all__ = [
    "Backend",
    "Counter",
    "Domain",
    "Op",
    "Patches",
    "Span",
    "backend",
    "batch",
    "counter",
    "get_include",
    "mark",
    "nvtx_op",
    "nvtx_range",
    "pop",
    "push",
    "scope",
    "wrap",
]
