"""Join deep-learning ops to the CUDA kernels that they launch, from NVIDIA's own profilers.

The light face: annotating a program imports neither pandas nor click nor SQLite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.annotate import (
    Domain,
    backend,
    counter,
    mark,
    nvtx_op,
    nvtx_range,
    pop,
    push,
    scope,
)

if TYPE_CHECKING:
    from bridge.joined import Joined, load

__version__ = "0.1.0"
__all__ = [
    "Domain",
    "Joined",
    "__version__",
    "backend",
    "counter",
    "load",
    "mark",
    "nvtx_op",
    "nvtx_range",
    "pop",
    "push",
    "scope",
]


def __getattr__(name: str) -> Any:
    """Load the analysis half at its first use."""
    if name in {"Joined", "load"}:
        from bridge.own import importers_are_ours

        with importers_are_ours():
            from bridge import joined
        return getattr(joined, name)
    raise AttributeError(f"module 'bridge' has no attribute {name!r}")
