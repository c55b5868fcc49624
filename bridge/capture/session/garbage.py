"""Collections of Python's garbage as ops: `gc generation 2` is time that no line of the program shows.

The invariant: a collection may begin in the midst of anything, so that nothing here waits or raises.
"""

from __future__ import annotations

import gc
from contextlib import suppress
from typing import Any

from bridge.annotate import callid
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push

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
            entry = Entry(LABELS[info["generation"]], callid.new())
            self._open.append(entry)
            push(entry)
        elif phase == "stop":
            self._close()

    def _close(self) -> None:
        with suppress(IndexError):
            close(self._open.pop())
