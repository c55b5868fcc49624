"""Join deep-learning ops to the CUDA kernels that they launch, in reports of NVIDIA's profilers.

Importing this package loads neither pandas nor click nor SQLite: each name is loaded at its first
use.
"""

from __future__ import annotations

import os
import sys

from bridge.knowledge.package import VERSION as __version__  # noqa: N811 (the conventional name)

TYPE_CHECKING = False  # without `typing`: see bridge.knowledge.package
if TYPE_CHECKING:
    from typing import Any

    from bridge import bench, memory
    from bridge.annotate import (
        Domain,
        backend,
        batch,
        counter,
        get_include,
        mark,
        nvtx_op,
        nvtx_range,
        pop,
        power,
        push,
        scope,
        wrap,
    )
    from bridge.capture.session.profile import Session, is_profiling, profile
    from bridge.capture.session.schedule import Action, schedule
    from bridge.comparison import diff
    from bridge.report import Report, load

__all__ = [
    "Action",
    "Domain",
    "Report",
    "Session",
    "__version__",
    "backend",
    "batch",
    "bench",
    "counter",
    "diff",
    "get_include",
    "is_profiling",
    "load",
    "mark",
    "memory",
    "nvtx_op",
    "nvtx_range",
    "pop",
    "power",
    "profile",
    "push",
    "schedule",
    "scope",
    "wrap",
]


_LAZY_NAMES = {  # name: the module that defines it
    **dict.fromkeys(
        "Domain backend batch counter get_include mark nvtx_op nvtx_range pop push scope wrap".split(),
        "bridge.annotate",
    ),
    **dict.fromkeys(("Report", "load"), "bridge.report"),
    "diff": "bridge.comparison",
    **dict.fromkeys(("Session", "is_profiling", "profile"), "bridge.capture.session.profile"),
    **dict.fromkeys(("Action", "schedule"), "bridge.capture.session.schedule"),
}
_LAZY_MODULES = {  # name: the module that it stands for
    **{
        name: f"bridge.{name}"
        for name in "autorun bench compat cupy importers jax memory scale torch".split()
    },
    "power": "bridge.annotate.power",
}
_OF_PACKAGES = ("cupy", "jax", "torch")  # modules for packages of the same name


def __getattr__(name: str) -> Any:
    """Load a lazy name or module at its first use."""
    if name not in _LAZY_NAMES and name not in _LAZY_MODULES:
        raise AttributeError(_Unknown(name), name=name)
    from importlib import import_module

    module = import_module(_LAZY_NAMES.get(name) or _LAZY_MODULES[name])
    globals()[name] = result = getattr(module, name) if name in _LAZY_NAMES else module
    return result


def __dir__() -> list[str]:
    """Return the public names that can be had here, and those that every module has."""
    from importlib.util import find_spec

    special = (name for name in globals() if name.startswith("__"))
    absent = {name for name in _OF_PACKAGES if name not in sys.modules and not find_spec(name)}
    return sorted({*__all__, *_LAZY_MODULES, *special} - {"__getattr__", "__dir__", *absent})


class _Unknown:
    """The message on a name that is not there, made when it is read: `hasattr` and imports ask often."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        from bridge.knowledge.suggestions import near_names

        near = " or ".join(map(repr, near_names(self.name, [*__all__, *_LAZY_MODULES])))
        suggestion = f"; did you mean {near}?" if near else ""
        return f"module 'bridge' has no attribute {self.name!r}{suggestion}"

    __repr__ = __str__


if "NSYS_PROFILING_SESSION_ID" in os.environ:
    from bridge.annotate import emit as _emit  # noqa: F401 (nsys ends a child that uses NVTX first: this begins it before a fork)
if "BRIDGE_AUTOSTART" in os.environ:
    from bridge.frameworks.autorun import autostart

    autostart()

if "BRIDGE_CUPTI" in os.environ:
    from bridge.capture.cupti import capture

    capture.autostart()
