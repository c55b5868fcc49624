"""What is done with each library when it has been imported.

The invariant: done again, as when somebody arms a second time, it makes no second range.
"""

from __future__ import annotations

import sys
from functools import cache

from bridge.annotate.patch import wrap
from bridge.frameworks.autorun.arrivals import Action
from bridge.frameworks.autorun.options import Options

# Imported when the library is there, and from their own modules: `bridge.torch` may be what imports torch.
# ruff: noqa: PLC0415


def _torch(options: Options) -> None:
    from bridge.frameworks.torch.everywhere import every_module
    from bridge.frameworks.torch.ops import ops
    from bridge.frameworks.torch.recorded import dataloader_waits, optimizer_steps

    optimizer_steps().enable()
    dataloader_waits().enable()
    if options.ops or options.shapes:
        ops(shapes=options.shapes).enable()
    if options.modules:
        every_module().enable()


def _jax(_: Options) -> None:
    from bridge.frameworks.jax import annotate

    annotate()


def _cupy(_: Options) -> None:
    from bridge.frameworks.cupy import annotate

    annotate()


ALL: dict[str, Action] = {"torch": _torch, "jax": _jax, "cupy": _cupy}


@cache
def wrapping(name: str, functions: tuple[str, ...] | None) -> Action:
    """Return what makes functions of a module ops: those named, or all public ones."""

    def action(_: Options) -> None:
        wrap(sys.modules[name], functions)

    return action
