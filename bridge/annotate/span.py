"""Start/end ranges: phases that overlap what they like, and that any thread may end.

The invariant: every start has one end, through the emitter that it was started through.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Self

from bridge.annotate import callid, emit
from bridge.annotate.emit import state
from bridge.annotate.label import Label, checked, checked_name, checked_payload

_ending = Lock()


class Span:
    """A phase of the process: `start` and `end` it, or surround a block with it; once or many times."""

    __slots__ = ("label", "open", "payload")

    def __init__(self, label: Label, payload: float | None) -> None:
        self.label = label
        self.payload = payload
        self.open: list[tuple[emit.Emitter, Any]] = []  # started and not yet ended, in that order

    def start(self) -> Self:
        """Begin the range; it lasts until `end`, whichever thread calls that."""
        if not state.idle:
            emitter = emit.current()
            payload = callid.new() if self.payload is None else self.payload
            self.open.append((emitter, emitter.start(self.label, payload)))
        return self

    def end(self) -> None:
        """End the range that was started last; without one, do nothing."""
        with _ending:
            started = self.open.pop() if self.open else None
        if started is not None:
            emitter, handle = started
            emitter.end(self.label, handle)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.end()


def nvtx_range(
    name: str,
    *,
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> Span:
    """Make a start/end range, a phase: to surround a block with, or to `start` and `end` by hand.

    Unlike an op it owns no kernels: phases may overlap, and may be ended on another thread. A payload
    is an int of 64 bits or a float. Raises TypeError for arguments that no tool could record.
    """
    label = Label(checked_name(name), *checked(domain, category, color))
    return Span(label, checked_payload(payload))
