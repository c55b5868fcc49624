"""Join deep-learning ops to the CUDA kernels that they launch, from NVIDIA's own profilers.

The light face: annotating a program imports neither pandas nor click nor SQLite.
"""

from __future__ import annotations

import os
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
    wrap,
)
from bridge.package import VERSION as __version__  # noqa: N811 (the name that Python's packages have)

if TYPE_CHECKING:
    from bridge import bench, memory
    from bridge.capture.session.profile import Profile, is_profiling, profile
    from bridge.capture.session.schedule import Action, schedule
    from bridge.comparison import diff
    from bridge.report import Joined, load

__all__ = [
    "Action",
    "Domain",
    "Joined",
    "Profile",
    "__version__",
    "backend",
    "bench",
    "counter",
    "diff",
    "is_profiling",
    "load",
    "mark",
    "memory",
    "nvtx_op",
    "nvtx_range",
    "pop",
    "profile",
    "push",
    "schedule",
    "scope",
    "wrap",
]


_LATER = {  # by the room that they are in
    **dict.fromkeys(("Joined", "load"), "bridge.report"),
    "diff": "bridge.comparison",
    **dict.fromkeys(("Profile", "is_profiling", "profile"), "bridge.capture.session.profile"),
    **dict.fromkeys(("Action", "schedule"), "bridge.capture.session.schedule"),
}
_ROOMS = ("autorun", "bench", "compat", "cupy", "jax", "memory", "scale", "torch")  # themselves


def __getattr__(name: str) -> Any:
    """Load the analysis half, and sessions, at their first use."""
    if name not in _LATER and name not in _ROOMS:
        raise AttributeError(f"module 'bridge' has no attribute {name!r}")
    from importlib import import_module

    from bridge.package import importers_are_ours

    with importers_are_ours():
        room = import_module(_LATER.get(name, f"bridge.{name}"))
        globals()[name] = found = getattr(room, name) if name in _LATER else room
    return found


if "BRIDGE_AUTOSTART" in os.environ:
    from bridge.frameworks.autorun import autostart

    autostart()
