"""Annotate a program: its ops become NVTX ranges in the profile; without a profiler, nothing."""

from bridge.annotate.domain import Domain
from bridge.annotate.emit import Backend, backend
from bridge.annotate.instant import Counter, counter, mark
from bridge.annotate.op import Op, nvtx_op, scope
from bridge.annotate.patch import Wrapped, wrap
from bridge.annotate.pushed import pop, push
from bridge.annotate.span import Span, nvtx_range

__all__ = [
    "Backend",
    "Counter",
    "Domain",
    "Op",
    "Span",
    "Wrapped",
    "backend",
    "counter",
    "mark",
    "nvtx_op",
    "nvtx_range",
    "pop",
    "push",
    "scope",
    "wrap",
]
