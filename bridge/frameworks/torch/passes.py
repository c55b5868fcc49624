"""What backward passes have open on each thread, and its end, whichever way a pass ends.

The invariant: on every thread the open calls of a pass are a chain, each the caller of the next.
"""

from __future__ import annotations

from threading import local
from typing import Any, Protocol

from torch import _C
from torch.autograd import Variable

from bridge.annotate import stack
from bridge.annotate.stack import Entry
from bridge.frameworks.torch import graph

_engine = Variable._execution_engine  # noqa: SLF001 (the way in which torch's own modules reach it)


class Opens(Protocol):
    """A call of a module, as a backward pass sees it."""

    def chain(self) -> list[Any]:
        """Return the calls around it and itself, the outermost first."""

    def backward_entry(self, number: int) -> Entry:
        """Make the range of its backward work in the pass of this number."""


class Pass:
    """One backward pass on one thread."""

    def __init__(self, number: int, others: list[Pass]) -> None:
        self.number = number
        self.others = others  # of this thread: a pass may begin within a pass
        self.calls: list[Opens] = []
        self.entries: list[Entry] = []
        self.waiting: dict[Opens, list[Any]] = {}  # hooks that will close a call

    def open(self, call: Opens) -> None:
        """Open a call and those around it, and close what is over: all others."""
        if call in self.calls:
            return
        chain = call.chain()
        pairs = zip(self.calls, chain, strict=False)
        same = next((at for at, (ours, its) in enumerate(pairs) if ours is not its), None)
        kept = min(len(self.calls), len(chain)) if same is None else same
        self._shorten(kept)
        for opened in chain[kept:]:
            entry = opened.backward_entry(self.number)
            self.calls.append(opened)
            self.entries.append(entry)
            stack.push(entry)

    def close(self, call: Opens) -> None:
        """Close a call, if it is open, and what was opened in it."""
        if call in self.calls:
            self._shorten(self.calls.index(call))

    def close_after(self, call: Opens, nodes: list[Any]) -> None:
        """Close a call when all these nodes, which add to a leaf's `grad`, have run."""
        if call not in self.calls or call in self.waiting:
            return
        left = set(nodes)

        def ran(node: Any) -> None:
            graph.ran(node)
            left.discard(node)
            if not left:
                self.close(call)

        self.waiting[call] = [node.register_hook(lambda *_, node=node: ran(node)) for node in nodes]

    def finish(self) -> None:
        """Close all that is open; the pass has ended, or failed."""
        self._shorten(0)
        if self in self.others:
            self.others.remove(self)

    def _shorten(self, length: int) -> None:
        while len(self.calls) > length:
            stack.close(self.entries.pop())
            for handle in self.waiting.pop(self.calls.pop(), ()):
                handle.remove()


class End:
    """What the engine calls after a pass that succeeds, and drops after any pass."""

    def __init__(self, ending: Pass) -> None:
        self.ending = ending

    def __call__(self) -> None:
        """End what the pass has open."""
        self.ending.finish()

    def __del__(self) -> None:
        self.ending.finish()


class Here(local):
    """The running passes of this thread, the inner ones last."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []


_here = Here()


def current() -> Pass | None:
    """Return the backward pass that runs on this thread, if any does."""
    number = _C._current_graph_task_id()  # noqa: SLF001 (public only through queue_callback's error)
    if number < 0:
        return None
    for running in reversed(_here.passes):
        if running.number == number:
            return running
    begun = Pass(number, _here.passes)
    _here.passes.append(begun)
    _engine.queue_callback(End(begun))
    return begun


def runs_next(node: Any, number: int) -> bool:
    """Tell whether the running pass runs this node, which accumulates, after that of the number."""
    try:
        return graph.comes_next(node, number) and bool(_C._will_engine_execute_node(node))  # noqa: SLF001
    except RuntimeError:  # autograd.grad() of that very leaf: its gradient is returned, not added
        return False
