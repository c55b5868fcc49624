"""What is open: ranges of blocks, coroutines and generators, of plain functions; and who holds them.

The invariant: an entry is on one stack at most; a token is on the stack of the thread that called the function.
"""

from __future__ import annotations

from typing import Any

from bridge.annotate import emit
from bridge.annotate.label import Label

BOUND = 4096  # labels remembered by a thread: more are made anew for each call
Token = tuple[Label, float]  # a range of a plain function: its label and its payload


class Strand:
    """What one asyncio task holds open, while another one runs.

    Tasks are told apart where they annotate: an undecorated coroutine that holds a block over an
    await seems to go on with it until the next annotation of any task.
    """

    __slots__ = ("parked",)

    def __init__(self) -> None:
        self.parked: list[Entry] = []


class Entry:
    """One open range: live on a stack, or parked (no stack) until its task or call goes on."""

    __slots__ = ("closed", "label", "payload", "stack", "strand")

    def __init__(self, label: Label, payload: float) -> None:
        self.label = label
        self.payload = payload
        self.closed = False
        self.stack: Any = None
        self.strand: Strand | None = None


class Call(Entry):
    """The range of one coroutine or generator; while suspended, parked with all opened in it."""

    __slots__ = ("note", "parked")

    def __init__(self, label: Label, payload: int, note: float | None) -> None:
        super().__init__(label, payload)
        self.parked: list[Entry] = [self]
        self.note = note  # the user's own payload: marked once, in the first slice


class Unbound:
    """A label of a back end that binds none: the payload is set, then the range pushed."""

    def __init__(self, emitter: emit.Emitter, label: Label) -> None:
        self.emitter, self.label = emitter, label
        self.payload: float = 0

    def push(self) -> None:
        """Open a range."""
        self.emitter.push(self.label, self.payload)
