"""Annotate what PyTorch itself records for its profiler: optimizers' steps, waits for data.

PyTorch surrounds these with `record_function`, whose name is the range's. The invariant: its methods
are replaced only while somebody wants one of the names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any, Self

from torch.autograd.profiler import record_function

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push

# -- What is enabled and disabled by hand, or for the time of a block


class Switch:
    """Something with `enable` and `disable`; it surrounds a block as well."""

    def enable(self) -> None:
        """Begin to annotate; if that has been done, do nothing."""
        raise NotImplementedError

    def disable(self) -> None:
        """Leave all as it was before; if that has been done, do nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.enable()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.disable()


# -- Annotate what PyTorch itself records for its profiler: optimizers' steps, waits for data


STEPS = ("Optimizer.step#", "Optimizer.zero_grad#")
WAITS = ("enumerate(DataLoader)#",)
ENTRY = "_bridge_entry"  # where an open block keeps its range

_wanted: Counter[str] = Counter()
_starts: tuple[str, ...] = ()  # of the names that are wanted
_changing = Lock()

_enter: Callable[[Any], Any] = record_function.__enter__
_exit: Callable[..., None] = record_function.__exit__


class Recorded(Switch):
    """Ranges around the blocks whose names begin in one of these ways, on all threads."""

    def __init__(self, starts: tuple[str, ...]) -> None:
        self.starts = starts
        self.on = False

    def enable(self) -> None:
        """Begin to annotate; if that has been done, do nothing."""
        self._change(+1, on=True)

    def disable(self) -> None:
        """Leave all as it was before; if that has been done, do nothing."""
        self._change(-1, on=False)

    def _change(self, by: int, *, on: bool) -> None:
        with _changing:
            if self.on is not on:
                self.on = on
                _want(self.starts, by)


def optimizer_steps() -> Recorded:
    """Make a range of every optimizer's `step` and `zero_grad`, in a block or until disabled."""
    return Recorded(STEPS)


def dataloader_waits() -> Recorded:
    """Make a range of every wait for the next batch of a DataLoader, in a block or until disabled."""
    return Recorded(WAITS)


def _want(starts: tuple[str, ...], by: int) -> None:
    global _enter, _exit, _starts  # noqa: PLW0603 (one process has one record_function)
    before = _starts
    _wanted.update(dict.fromkeys(starts, by))
    _starts = tuple(start for start, count in _wanted.items() if count > 0)
    if _starts and not before:
        _enter, _exit = record_function.__enter__, record_function.__exit__
        record_function.__enter__, record_function.__exit__ = _entered, _left
    elif before and not _starts:
        record_function.__enter__, record_function.__exit__ = _enter, _exit


def _entered(block: Any) -> Any:
    """Open the range of a block that is wanted, and enter it."""
    if state.idle or not block.name.startswith(_starts):
        return _enter(block)
    entry = Entry(Label(block.name), stack.new_call_id())
    push(entry)
    setattr(block, ENTRY, entry)
    try:
        return _enter(block)
    except BaseException:
        close(entry)
        raise


def _left(block: Any, *error: Any) -> None:
    """Leave a block and close its range."""
    try:
        _exit(block, *error)
    finally:
        entry = block.__dict__.pop(ENTRY, None)
        if entry is not None:
            close(entry)
