"""Switch annotations on in a program whose code stays as it is: ``python -m bridge.autorun script.py``."""

from bridge.frameworks.autorun import Options, arm, autostart, recorded

__all__ = [
    "Options",
    "arm",
    "autostart",
    "recorded",
]

if __name__ == "__main__":
    import sys

    from bridge.frameworks.autorun.command import main

    main(sys.argv[1:])
