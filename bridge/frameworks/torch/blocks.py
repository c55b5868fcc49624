"""Annotate blocks of `record_function`: optimizer steps, waits of data loaders.

The name of the block becomes the name of the range. The methods of `record_function` have hooks
only while ranges are requested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from threading import Lock
from typing import Any, Self

from torch._C._dynamo import eval_frame as _compiler
from torch.autograd.profiler import record_function

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.guard import Guard
from bridge.annotate.hooks import FAILED, FunctionHook, Hooks
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


# -- Hooks of PyTorch's functions


def torch_hook(function: Any, begin: Callable[..., Any], end: Callable[..., Any]) -> FunctionHook:
    """Return a hook whose functions torch.compile runs as they are, with all that they call."""
    return FunctionHook(function, never_compile(begin), never_compile(end))


def never_compile(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of ours which torch.compile skips with all that it calls, so that they are no graph."""
    code = getattr(function, "__code__", None)
    if code is None:  # not written in Python
        return function
    strategy = getattr(_compiler, "_FrameExecStrategy", None)
    if strategy is not None:
        skip = _compiler._FrameAction.SKIP  # noqa: SLF001 (no public name)
        _compiler.set_code_exec_strategy(code, strategy(skip, skip))
        return function

    def apart(
        *args: Any,
    ) -> Any:  # before PyTorch 2.7, which can skip one frame, but not those called in it
        compiling = _compiler.set_eval_frame(None)
        try:
            return function(*args)
        finally:
            _compiler.set_eval_frame(compiling)

    _compiler.skip_code(apart.__code__)  # type: ignore[attr-defined]  # of those releases
    return apart


# -- Blocks of `record_function`: optimizer steps, waits for data


STEPS = ("Optimizer.step#", "Optimizer.zero_grad#")
WAITS = ("enumerate(DataLoader)#",)

BLOCKS = Guard("optimizer steps and data loading of PyTorch")

_requests: Counter[str] = Counter()
_prefixes: tuple[str, ...] = ()  # prefixes of the requested names
_open: dict[int, list[Entry]] = {}  # ranges by the id of their block, which may be entered again


class BlockRanges(SharedSwitch):
    """Ranges around the blocks whose names have one of the prefixes, on all threads."""

    def __init__(self, prefixes: tuple[str, ...]) -> None:
        super().__init__()
        self.prefixes = prefixes

    def request(self, by: int) -> None:
        """Count who requests these blocks."""
        global _prefixes  # noqa: PLW0603 (one process has one record_function)
        if by > 0:
            BLOCKS.broken = False
        _requests.update(dict.fromkeys(self.prefixes, by))
        _prefixes = tuple(prefix for prefix, count in _requests.items() if count > 0)
        _hooks.request(by)
        while _open and not _prefixes:  # nothing is called at their end any more
            _close(next(iter(_open)))


def optimizer_steps() -> BlockRanges:
    """Record every optimizer's `step` and `zero_grad` as a range, in a block or until disabled."""
    return BlockRanges(STEPS)


def dataloader_waits() -> BlockRanges:
    """Record waits for the next batch of a DataLoader as ranges, in a block or until disabled."""
    return BlockRanges(WAITS)


@BLOCKS.hook
def _enter(block: Any) -> Any:
    """Open the range of a block, if its name is requested; return the block."""
    name = object.__getattribute__(block, "__dict__").get("name")
    if not state.idle and type(name) is str and name.startswith(_prefixes):
        entry = Entry(Label(name), stack.new_call_id())
        _open.setdefault(id(block), []).append(entry)
        push(entry)
    return block


def _entered(block: Any, result: Any) -> Any:
    if result is FAILED:
        _close(id(block))
    return result


@BLOCKS.closing
def _close(block: int) -> None:
    entries = _open.get(block)
    if entries:
        close(entries.pop())
    if not entries:
        _open.pop(block, None)


def _exited(block: Any, result: Any) -> Any:
    _close(id(block))
    return result


_hooks = Hooks(
    "optimizer steps and waits for data of PyTorch",
    lambda: [
        torch_hook(record_function.__enter__, _enter, _entered),
        torch_hook(record_function.__exit__, lambda block, *_: block, _exited),
    ],
)
