"""What a session annotates by itself while it records: PyTorch's ops, garbage collections.

The invariant: nothing is imported that the program has not imported, and all is undone.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any, Protocol

from bridge.annotate.details import Wanted
from bridge.session.garbage import Collections

OPS, RUNTIME = LEVELS = (1, 2)  # what frameworks do; and what the host's runtime does for it


class Switch(Protocol):
    """Something that is enabled and disabled."""

    def enable(self) -> None:
        """Begin."""

    def disable(self) -> None:
        """End."""


class Automatic:
    """All that one session switches on and off."""

    def __init__(self, level: int, *, details: Wanted | None, modules: bool) -> None:
        self._level = level
        self._details = details
        self._modules = modules
        self._on: list[Switch] = []

    def enable(self) -> None:
        """Begin to annotate."""
        if self._on:
            return
        for switch in self._wanted():
            switch.enable()
            self._on.append(switch)

    def disable(self) -> None:
        """Leave all as it was; what cannot be undone in this moment stays, and is said."""
        while self._on:
            try:
                self._on.pop().disable()
            except RuntimeError as problem:
                warnings.warn(f"bridge: {problem}", RuntimeWarning, stacklevel=4)

    def _wanted(self) -> Iterator[Switch]:
        if self._level >= RUNTIME:
            yield Collections()
        if self._level >= OPS and "torch.nn" in sys.modules:
            yield from self._of_torch()

    def _of_torch(self) -> Iterator[Any]:
        from bridge import torch  # noqa: PLC0415 (where PyTorch is loaded already)

        yield torch.optimizer_steps()
        yield torch.dataloader_waits()
        if self._modules:
            yield torch.every_module()
        details = self._details
        yield torch.ops(shapes=bool(details), flops=details and details.flops)
