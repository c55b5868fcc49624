"""Annotate a program: its ops become NVTX ranges in the profile; without a profiler, nothing."""

from bridge.annotate.emit import Backend, backend
from bridge.annotate.op import Op, nvtx_op

__all__ = ["Backend", "Op", "backend", "nvtx_op"]
