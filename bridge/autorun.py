"""Annotate a program without changing its code: ``python -m bridge.autorun script.py``."""

from contextlib import AbstractContextManager
from typing import Any

from bridge.frameworks import autorun
from bridge.frameworks.autorun import LAUNCHER, START, Options, arm, autostart

__all__ = [
    "LAUNCHER",
    "START",
    "Options",
    "arm",
    "autostart",
    "recorded",
]


def recorded(path: str | None) -> AbstractContextManager[None]:
    """Record host times of a block to a file, unless ``path`` is None or a tool is attached."""
    return autorun.recorded(path, _session)


def _session(**options: Any) -> Any:
    from bridge.capture.session.profile import profile  # loaded on demand

    return profile(**options)


if __name__ == "__main__":
    import sys

    from bridge.frameworks.autorun.command import main

    main(sys.argv[1:], recorded)
