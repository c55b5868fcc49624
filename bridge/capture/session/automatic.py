"""What a session annotates by itself while it records: PyTorch's ops, garbage collections.

The invariant: what it has switched on it switches off, whatever raises.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Protocol

from bridge.annotate import stack
from bridge.annotate.details import Wanted
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push
from bridge.annotate.warning import warn

LABELS = [Label(f"gc generation {number}", None, "gc") for number in range(3)]


class Collections:
    """Ranges around the collections of the process, from `enable` to `disable`."""

    def __init__(self) -> None:
        self._open: list[Entry] = []

    def enable(self) -> None:
        """Begin."""
        if self._note not in gc.callbacks:
            gc.callbacks.append(self._note)

    def disable(self) -> None:
        """End, also what a collection has open that itself calls this, in a finalizer."""
        with suppress(ValueError):
            gc.callbacks.remove(self._note)
        self._close()

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start" and not state.idle:
            entry = Entry(LABELS[info["generation"]], stack.new_call_id())
            self._open.append(entry)
            push(entry)
        elif phase == "stop":
            self._close()

    def _close(self) -> None:
        with suppress(IndexError):
            close(self._open.pop())


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
        self.disable()  # what could not be undone the last time
        for switch in self._wanted():
            self._on.append(switch)  # first: to disable what is not on does nothing
            switch.enable()

    def disable(self) -> None:
        """Leave all as it was; what cannot be undone in this moment is said, and tried again the next time."""
        problems = []
        for switch in self._on[::-1]:
            try:
                switch.disable()
            except Exception as problem:  # noqa: BLE001 - the others are to be disabled as well
                problems.append(problem)
            else:
                self._on.remove(switch)
        for said in problems:
            warn(str(said), 4)

    def _wanted(self) -> Iterator[Switch]:
        if self._level >= RUNTIME:
            yield Collections()
        if self._level >= OPS and "torch.nn" in sys.modules:
            yield from self._of_torch()

    def _of_torch(self) -> Iterator[Any]:
        from bridge.frameworks import torch  # where PyTorch is loaded already

        yield torch.optimizer_steps()
        yield torch.dataloader_waits()
        if self._modules:
            yield torch.every_module()
        details = self._details
        yield torch.ops(shapes=bool(details), flops=details and details.flops)
