"""Switch annotations on in a program whose code stays as it is: ``python -m bridge.autorun script.py``."""

from contextlib import AbstractContextManager
from typing import Any

from bridge.frameworks import autorun
from bridge.frameworks.autorun import Options, arm, autostart

__all__ = [
    "Options",
    "arm",
    "autostart",
    "recorded",
]


def recorded(path: str | None) -> AbstractContextManager[None]:
    """Record host times to a file in a block, unless ``path`` is None or a tool listens."""
    return autorun.recorded(path, _session)


def _session(**options: Any) -> Any:
    from bridge.capture.session.profile import profile  # most programs record nothing

    return profile(**options)


if __name__ == "__main__":
    import sys

    from bridge.frameworks.autorun.command import main

    main(sys.argv[1:], recorded)
