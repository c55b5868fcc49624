"""Annotate blocks of `record_function`: optimizer steps, waits of data loaders.

The name of the block becomes the name of the range. The methods of `record_function` are replaced
only while ranges are requested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any, Self

from torch.autograd.profiler import record_function

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.guard import Guard
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry, close, push


class Switch:
    """Base of annotations with `enable` and `disable`; also a context manager."""

    def enable(self) -> None:
        """Start annotating; a second call does nothing."""
        raise NotImplementedError

    def disable(self) -> None:
        """Stop annotating; a second call does nothing."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.enable()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.disable()


class SharedSwitch(Switch):
    """Base of annotations of the whole process: what several enable ends when the last one disables it."""

    _changing = Lock()

    def __init__(self) -> None:
        self.on = False

    def request(self, by: int) -> None:
        """Count one more (+1) or one less (-1) who enables it."""
        raise NotImplementedError

    def enable(self) -> None:
        """Start annotating; a second call does nothing."""
        self._change(+1, on=True)

    def disable(self) -> None:
        """Stop annotating; a second call does nothing."""
        self._change(-1, on=False)

    def _change(self, by: int, *, on: bool) -> None:
        with self._changing:
            if self.on is not on:
                self.on = on
                self.request(by)


# -- Blocks of `record_function`: optimizer steps, waits for data


STEPS = ("Optimizer.step#", "Optimizer.zero_grad#")
WAITS = ("enumerate(DataLoader)#",)
ENTRY = "_bridge_entry"  # attribute of an open block that holds its range

BLOCKS = Guard("optimizer steps and data loading of PyTorch")

_requests: Counter[str] = Counter()
_prefixes: tuple[str, ...] = ()  # prefixes of the requested names

_original_enter: Callable[[Any], Any] = record_function.__enter__
_original_exit: Callable[..., None] = record_function.__exit__


class BlockRanges(SharedSwitch):
    """Ranges around the blocks whose names have one of the prefixes, on all threads."""

    def __init__(self, prefixes: tuple[str, ...]) -> None:
        super().__init__()
        self.prefixes = prefixes

    def request(self, by: int) -> None:
        """Count who requests these blocks."""
        if by > 0:
            BLOCKS.broken = False
        _request(self.prefixes, by)


def optimizer_steps() -> BlockRanges:
    """Record every optimizer's `step` and `zero_grad` as a range, in a block or until disabled."""
    return BlockRanges(STEPS)


def dataloader_waits() -> BlockRanges:
    """Record waits for the next batch of a DataLoader as ranges, in a block or until disabled."""
    return BlockRanges(WAITS)


def _request(prefixes: tuple[str, ...], by: int) -> None:
    global _original_enter, _original_exit, _prefixes  # noqa: PLW0603 (one process has one record_function)
    before = _prefixes
    _requests.update(dict.fromkeys(prefixes, by))
    _prefixes = tuple(prefix for prefix, count in _requests.items() if count > 0)
    if _prefixes and not before:
        _original_enter, _original_exit = record_function.__enter__, record_function.__exit__
        record_function.__enter__, record_function.__exit__ = _enter_with_range, _exit_with_range
    elif before and not _prefixes:
        record_function.__enter__, record_function.__exit__ = _original_enter, _original_exit


def _enter_with_range(block: Any) -> Any:
    """Enter a block, with a range if its name is requested."""
    if state.idle or (entry := _opened(block)) is None:
        return _original_enter(block)
    try:
        return _original_enter(block)
    except BaseException:
        close(entry)
        raise


@BLOCKS.hook
def _opened(block: Any) -> Entry | None:
    """Return a new range of a block, None if its name is not requested."""
    if not block.name.startswith(_prefixes):
        return None
    entry = Entry(Label(block.name), stack.new_call_id())
    setattr(block, ENTRY, entry)
    push(entry)
    return entry


def _exit_with_range(block: Any, *error: Any) -> None:
    """Exit a block and close its range."""
    try:
        _original_exit(block, *error)
    finally:
        _close(block)


@BLOCKS.closing
def _close(block: Any) -> None:
    entry = block.__dict__.pop(ENTRY, None)
    if entry is not None:
        close(entry)
