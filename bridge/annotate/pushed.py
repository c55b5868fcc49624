"""Ranges that are opened and closed by hand, on one thread, as `torch.cuda.nvtx` has them.

The invariant: `pop` closes what `push` opened last on its thread, whatever else is open.
"""

from __future__ import annotations

from threading import local

from bridge.annotate import callid, stack
from bridge.annotate.emit import state
from bridge.annotate.label import Label, checked, checked_name, checked_payload


class _Pushed(local):
    def __init__(self) -> None:
        self.entries: list[stack.Entry | None] = []  # None: nothing listened


_pushed = _Pushed()


def push(
    name: str,
    *,
    domain: str | None = None,
    category: str | None = None,
    color: str | int | None = None,
    payload: float | None = None,
) -> int:
    """Open a range on this thread; return how many were open by `push` before."""
    label = Label(checked_name(name), *checked(domain, category, color))
    value = checked_payload(payload)
    entry = None
    if not state.idle:
        entry = stack.Entry(label, callid.new() if value is None else value)
        stack.push(entry)
    _pushed.entries.append(entry)
    return len(_pushed.entries) - 1


def pop() -> int:
    """Close the range that `push` opened last on this thread; return how many remain, -1 if none was open."""
    if not _pushed.entries:
        return -1
    entry = _pushed.entries.pop()
    if entry is not None:
        stack.close(entry)
    return len(_pushed.entries)
