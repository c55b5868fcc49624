"""The command as a process of its own: ``bridge``, and ``python -m bridge``, where the command's name is another program's."""

from __future__ import annotations

import atexit
import gc

from bridge.cli import main

UNCOLLECTED = 50_000  # objects between two looks for garbage: those of libraries stay anyway


def command(name: str | None = None) -> None:
    """Run the command that the command line asks for; does not return."""
    gc.set_threshold(UNCOLLECTED)
    atexit.register(gc.disable)  # or all is looked through once more at the end
    main(prog_name=name)


if __name__ == "__main__":
    command("python -m bridge")
