"""Ranges of module calls: open during forward, and again while a backward pass runs the nodes of the call.

Autograd numbers the nodes of a thread in the order of their creation, and runs those of a graph that one
thread made in the reverse order. So a call owns the numbers between its begin and its end, and only where
the owner changes does a backward pass need a hook. Outputs are not looked at, and no node or tensor is kept.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from functools import partial
from operator import methodcaller
from threading import local
from time import perf_counter_ns
from typing import Any

from torch import _C, Tensor
from torch._C import (
    DisableTorchFunction,
    _are_functorch_transforms_active,
    _current_graph_task_id,
    _get_dispatch_mode,
    _TorchDispatchModeKey,
)
from torch._C._autograd import _get_sequence_nr
from torch.autograd import Variable
from torch.autograd.graph import GradientEdge

from bridge.annotate import stack
from bridge.annotate.cost import cost
from bridge.annotate.emit import state
from bridge.annotate.guard import Guard
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry
from bridge.frameworks.torch.blocks import never_compile

MODULES = Guard("ranges of PyTorch's modules")


# -- Sites and calls of modules


CATEGORY = "module"
# A thread keeps at least so many of its last calls that no other contains, and at least so many begins and ends.
MIN_OUTERMOST, MIN_CHANGES = 64, 2048
next_number = _get_sequence_nr  # returns the number of the next node of this thread


class Site:
    """A module of an annotated model: the labels of its ranges, and whether it still has any."""

    def __init__(self, path: str, *, backward: bool = True) -> None:
        self.on, self.backward = True, backward
        self.forward_label = Label(f"module:{path}", category=CATEGORY)
        self.backward_label = Label(f"backward:{path}", category=CATEGORY)


class ModuleCall(Entry):
    """One call of a module; it is also the entry of its forward range."""

    __slots__ = ("begin", "caller", "change", "identity", "module", "passed", "site")

    def __init__(self, site: Site, module: int, caller: ModuleCall | None, change: int) -> None:
        self.label, self.payload = site.forward_label, stack.new_call_id()
        self.closed, self.stack, self.strand = False, None, None
        self.site, self.module, self.caller = site, module, caller
        self.begin, self.change = (
            next_number(),
            change,
        )  # the latter is its place in the thread's lists
        # The number of the last backward pass, and the call id in it.
        self.passed, self.identity = -1, 0

    def chain(self) -> list[ModuleCall]:
        """Return the calls around this one and itself, outermost first, that have backward ranges."""
        result, call = [], self
        while call is not None:
            if call.site.backward:
                result.append(call)
            call = call.caller  # type: ignore[assignment]  # None ends the loop
        return result[::-1]

    def backward_entry(self, number: int) -> Entry:
        """Return a range of its backward work; all ranges in one pass share a call id."""
        if self.passed != number:
            self.passed, self.identity = number, stack.new_call_id()
        return Entry(self.site.backward_label, self.identity)


class Here(local):
    """The innermost open call on this thread, and which call owns the nodes from each number on."""

    def __init__(self) -> None:
        self.call: ModuleCall | None = None
        self.numbers: list[int] = []
        self.owners: list[ModuleCall | None] = []
        self.outermost: deque[int] = (
            deque()
        )  # the first numbers of the calls that no other contains

    def forget_old(self) -> None:
        """Forget the oldest calls, but for as many as a few forward passes have."""
        while len(self.outermost) > MIN_OUTERMOST and len(self.numbers) > MIN_CHANGES:
            self.outermost.popleft()
            old = bisect_left(self.numbers, self.outermost[0])
            del self.numbers[:old], self.owners[:old]


_here = Here()


def begin_call(site: Site, module: int) -> ModuleCall | None:
    """Open the range of a call of the module with this id; None if its wrapper has the range."""
    here = _here
    caller = here.call
    if caller is not None and caller.site is site and caller.module != module:
        return None
    call = ModuleCall(site, module, caller, len(here.numbers))
    stack.push(call)
    here.numbers.append(call.begin)
    here.owners.append(call if site.backward else caller)
    here.call = call
    return call


def end_call(call: ModuleCall) -> None:
    """Close the range of a call."""
    here = _here
    here.call = call.caller
    stack.close(call)
    number = next_number()
    if number == call.begin:  # it created no nodes
        del here.numbers[call.change :], here.owners[call.change :]
        return
    here.numbers.append(number)
    here.owners.append(call.caller)
    if call.caller is None:
        here.outermost.append(call.begin)
        here.forget_old()


# -- Backward passes: their open ranges per thread, closed however a pass ends


_engine = Variable._execution_engine  # noqa: SLF001 (as torch's own modules access it)


class Pass:
    """One backward pass on one thread."""

    def __init__(self, number: int, others: list[Pass]) -> None:
        self.number = number
        self.others = others  # the passes of this thread, which may nest
        self.calls: list[ModuleCall] = []
        self.entries: list[Entry] = []

    def enter(self, call: ModuleCall | None) -> int:
        """Open a call and those around it, and close all other calls; return how many were opened."""
        kept, opened = self._change_to(call)
        self._shorten(kept)
        for inner in opened:
            entry = inner.backward_entry(self.number)
            self.calls.append(inner)
            self.entries.append(entry)
            stack.push(entry)
        return len(opened)

    def _change_to(self, call: ModuleCall | None) -> tuple[int, list[ModuleCall]]:
        """Return how many of the open calls stay open, and the calls to open in them."""
        if call is None:
            return 0, []
        last = self.calls[-1] if self.calls else None
        if last is not None and call.caller is last.caller and call.site.backward:
            # The next one in the same module, as most are.
            return (len(self.calls), []) if call is last else (len(self.calls) - 1, [call])
        chain, kept = call.chain(), 0
        for old, new in zip(self.calls, chain, strict=False):
            if old is not new:
                break
            kept += 1
        return kept, chain[kept:]

    def finish(self) -> None:
        """Close all open calls; the pass has ended or failed."""
        self._shorten(0)
        if self in self.others:
            self.others.remove(self)

    def _shorten(self, length: int) -> None:
        while len(self.calls) > length:
            stack.close(self.entries.pop())
            self.calls.pop()


class PassEnd:
    """A callback that the engine calls after a successful pass, and drops after any pass."""

    def __init__(self, ending: Pass) -> None:
        self.ending = ending

    @MODULES.closing
    def __call__(self) -> None:
        """Close the open calls of the pass."""
        self.ending.finish()

    @MODULES.closing
    def __del__(self) -> None:
        self.ending.finish()


class PassHere(local):
    """The running passes of this thread, innermost last."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []


_passes_here = PassHere()


def current() -> Pass | None:
    """Return the backward pass that runs on this thread, or None."""
    number = _current_graph_task_id()
    if number < 0:
        return None
    for running in reversed(_passes_here.passes):
        if running.number == number:
            return running
    new = Pass(number, _passes_here.passes)
    _passes_here.passes.append(new)
    _engine.queue_callback(PassEnd(new))
    return new


# -- The nodes at which the owner changes


ACCUMULATES = 2**64 - 1  # the number of every node that accumulates into a leaf's `grad`
COMPILED = "torch._dynamo.compiled_autograd"
INPUTS = 3  # place among the arguments of the engine

_base: Any = _C.TensorBase
_grad_fn = _base.grad_fn.__get__  # as `tensor.grad_fn`, which a class of the program may replace


_number_of = methodcaller("_sequence_nr")  # as PyTorch's profiler records it


def begin_pass(outputs: Any, arguments: Any) -> list[Any]:
    """Hook the nodes at which a backward pass of this thread's calls changes from call to call.

    Where only some inputs get gradients, which nodes will run is not known, and each has a hook.
    Returns the hooks to remove after the pass.
    """
    numbers, owners = _here.numbers, _here.owners
    if not numbers or _is_traced():
        return []
    nodes = _nodes(outputs, numbers[0])
    is_partial = bool(arguments[INPUTS])
    at, last, handles = len(numbers) - 1, None, []
    for number in sorted(nodes, reverse=True):
        while at >= 0 and numbers[at] > number:
            at -= 1
        owner = owners[at] if at >= 0 else None
        if owner is not last or is_partial:
            handles.append(nodes[number].register_prehook(partial(_enter_uncompiled, owner)))
        last = owner
    return handles


def _nodes(outputs: Any, first: int) -> dict[int, Any]:
    """Return the nodes that a pass can reach by their numbers; none beyond those before the ``first`` number.

    There are none if another thread made some of them: each thread has numbers of its own, and those of one fall
    along all edges.
    """
    result: dict[int, Any] = {}
    # By identity: a node has one object in Python as long as that is kept.
    known = {id(node): (node, _number_of(node)) for node in _roots(outputs)}
    pending = [root for root in known.values() if root[1] != ACCUMULATES]
    while pending:
        node, number = pending.pop()
        if number in result:
            return {}
        result[number] = node
        for other, _ in node.next_functions if number >= first else ():
            if other is None:
                continue
            next_one = known.get(id(other))
            if next_one is None:
                next_one = known[id(other)] = other, _number_of(other)
                if next_one[1] != ACCUMULATES:
                    pending.append(next_one)
            if number <= next_one[1] < ACCUMULATES:
                return {}
    return result if max(result, default=-1) < next_number() else {}


def _roots(outputs: Any) -> list[Any]:
    try:
        with DisableTorchFunction():
            return [node for node in map(_creator, outputs) if node is not None]
    except RuntimeError:  # of a view that PyTorch has made invalid; the pass will raise it
        return []


def _creator(output: Any) -> Any:
    if issubclass(type(output), GradientEdge):
        return output[0]
    return _grad_fn(output) if issubclass(type(output), Tensor) else None


# What runs ops in order to trace them, not for their results.
TRACERS = (_TorchDispatchModeKey.PROXY, _TorchDispatchModeKey.FAKE)


def _is_traced() -> bool:
    """Return whether a pass is compiled, with the hooks of its nodes, or part of a transformation."""
    if getattr(sys.modules.get(COMPILED), "compiled_autograd_enabled", False):
        return True
    if _are_functorch_transforms_active():
        return True
    return any(_get_dispatch_mode(tracer) is not None for tracer in TRACERS)


def _enter(owner: ModuleCall | None, _gradients: object) -> None:
    """Open the backward range of a call before its first node runs, and close those that have ended."""
    if state.idle or MODULES.broken:
        return
    began = perf_counter_ns()
    try:
        if running := current():
            ranges = running.enter(owner if owner is not None and owner.site.on else None)
            cost.add(perf_counter_ns() - began, ranges)
    except Exception as error:
        if not MODULES.takes(error):
            raise


_enter_uncompiled = never_compile(_enter)


def end_pass(handles: Iterable[Any]) -> None:
    """Remove the hooks that `begin_pass` returned."""
    for handle in handles:
        handle.remove()


def forget_calls() -> None:
    """Forget the calls of this thread, unless one is open."""
    if _here.call is None:
        _here.__init__()  # type: ignore[misc]  # of this thread alone
