"""Ranges of module calls: open during forward, and reopened by autograd's nodes in backward.

A call that has ended keeps no tensor alive, and no node of the graph except those that accumulate
into a parameter's `grad`, which hold no other part of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import local
from typing import Any, Protocol

from torch import _C, Tensor, is_grad_enabled
from torch._C import DisableTorchFunction
from torch._C._autograd import _get_sequence_nr
from torch.autograd import Variable

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.guard import Guard
from bridge.annotate.hooks import FAILED
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry

# -- The part of autograd's graph that one call of a module made, by sequence numbers


next_number = _get_sequence_nr  # returns the number of the next node of this thread

ACCUMULATES = 2**64 - 1  # the number of every node that accumulates into a leaf's `grad`
# Metadata key of such a node, for the number of the first node that leads to it and whether it ran.
USE = "bridge"
MAX_DEPTH = 8  # of nested containers that are searched


class Part:
    """The nodes of a call: numbers in [`begin`, `end`), the first, and the nodes they lead to."""

    __slots__ = ("begin", "end", "first", "number", "outside")

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end
        self.first: Any = None  # the node that was created first
        self.number = end  # the number of `first`
        self.outside: list[Any] = []  # nodes created before the call that its nodes lead to

    def holds(self, node: Any) -> bool:
        """Return whether a node was created in the call."""
        return bool(self.begin <= node._sequence_nr() < self.end)  # noqa: SLF001 (no public name)

    def explore(self, roots: Sequence[Any], inner: Sequence[Part]) -> None:
        """Find the first node and the nodes outside.

        ``inner`` are the parts of inner calls, in order.
        """
        begins = [part.begin for part in inner]
        seen, pending = set(roots), list(roots)
        while pending:
            node = pending.pop()
            number = node._sequence_nr()  # noqa: SLF001 (the number that PyTorch's profiler records)
            if not self.begin <= number < self.end:
                self.outside += [node] if number != ACCUMULATES else []
                continue
            at = bisect_right(begins, number) - 1
            inner_part = inner[at] if at >= 0 and number < inner[at].end else None
            if inner_part:
                node, number = inner_part.first, inner_part.number
            if number < self.number:
                self.first, self.number = node, number
            followers = inner_part.outside if inner_part else _followers(node, number)
            new = [other for other in followers if other not in seen]
            seen.update(new)
            pending += new


def _followers(node: Any, number: int) -> list[Any]:
    """Return the nodes that get gradients from a node; accumulating nodes note its number."""
    result = [other for other, _ in node.next_functions if other is not None]
    for other in result:
        if other._sequence_nr() == ACCUMULATES:  # noqa: SLF001 (as above)
            earliest, spent = other.metadata.get(USE, (number, False))
            other.metadata[USE] = (number if spent else min(earliest, number), False)
    return result


def accumulating(node: Any) -> list[Any]:
    """Return the next nodes of a node that accumulate into the `grad` of a leaf."""
    result = (other for other, _ in node.next_functions if other is not None)
    return [other for other in result if other._sequence_nr() == ACCUMULATES]  # noqa: SLF001 (as above)


def comes_next(node: Any, number: int) -> bool:
    """Return whether an accumulating node runs after the node with this number.

    It does unless it waits for a node with a lower number.
    """
    return bool(node.metadata.get(USE, (None,))[0] == number)


def mark_run(node: Any) -> None:
    """Note that a node has accumulated; nodes that lead to it later are of another graph."""
    if USE in node.metadata:
        node.metadata[USE] = (node.metadata[USE][0], True)


def nodes(output: Any) -> list[Any]:
    """Return the nodes that created the tensors of an output, each once.

    Runs no code of the program: what is not a tensor or a plain container of Python is not looked into.
    """
    with DisableTorchFunction():
        if issubclass(type(output), Tensor):
            node = _creator(output)
            return [] if node is None else [node]
        creators = map(_creator, _tensors(output, MAX_DEPTH))
        return list(dict.fromkeys(node for node in creators if node is not None))


def _creator(tensor: Any) -> Any:
    """Return the node that created a tensor; None for a view that PyTorch has made invalid.

    It does so to a view, such as one of `unbind`, whose base changes in place; no gradient can reach that.
    """
    try:
        return _grad_fn(tensor)
    except RuntimeError:
        return None


_base: Any = _C.TensorBase
_grad_fn = _base.grad_fn.__get__  # as `tensor.grad_fn`, which a class of the program may replace


def _tensors(output: Any, depth: int) -> Iterator[Any]:
    """Yield the tensors in tuples, lists, sets, dictionaries and dataclasses."""
    if issubclass(type(output), Tensor):
        yield output
    elif depth:
        for value in _values(output):
            yield from _tensors(value, depth - 1)


def _values(output: Any) -> Iterable[Any]:
    """Return the values in a container, past any method that a class of the program defines."""
    kind = type(output)
    for container, values in VALUES.items():
        if issubclass(kind, container):
            return values(output)
    if hasattr(kind, "__dataclass_fields__") and hasattr(kind, "__dict__"):
        return _values(_attributes(output))
    return ()


VALUES: dict[type, Callable[[Any], Iterable[Any]]] = {
    tuple: tuple.__iter__,
    list: list.__iter__,
    dict: dict.values,
    set: set.__iter__,
    frozenset: frozenset.__iter__,
}


def _attributes(output: Any) -> Any:
    try:
        return object.__getattribute__(output, "__dict__")
    except AttributeError:  # it has slots
        return None


MODULES = Guard("ranges of PyTorch's modules")


# -- Backward passes: their open ranges per thread, closed however a pass ends


_engine = Variable._execution_engine  # noqa: SLF001 (as torch's own modules access it)


class BackwardCall(Protocol):
    """A call of a module, as used by a backward pass."""

    def chain(self) -> list[Any]:
        """Return the calls around this one and itself, outermost first."""

    def backward_entry(self, number: int) -> Entry:
        """Return the range of its backward work in the pass with this number."""


class Pass:
    """One backward pass on one thread."""

    def __init__(self, number: int, others: list[Pass]) -> None:
        self.number = number
        self.others = others  # the passes of this thread, which may nest
        self.calls: list[BackwardCall] = []
        self.entries: list[Entry] = []
        self.waiting: dict[BackwardCall, list[Any]] = {}  # the hooks that will close a call

    def open(self, call: BackwardCall) -> None:
        """Open a call and those around it, and close all other calls."""
        if call in self.calls:
            return
        chain = call.chain()
        pairs = zip(self.calls, chain, strict=False)
        different = next((at for at, (old, new) in enumerate(pairs) if old is not new), None)
        common = min(len(self.calls), len(chain)) if different is None else different
        self._shorten(common)
        for inner in chain[common:]:
            entry = inner.backward_entry(self.number)
            self.calls.append(inner)
            self.entries.append(entry)
            stack.push(entry)

    def close(self, call: BackwardCall) -> None:
        """Close a call, if it is open, and the calls opened in it."""
        if call in self.calls:
            self._shorten(self.calls.index(call))

    def close_after(self, call: BackwardCall, nodes: list[Any]) -> None:
        """Close a call when all ``nodes``, which accumulate into a leaf's `grad`, have run."""
        if call not in self.calls or call in self.waiting:
            return
        pending = set(nodes)

        def after(node: Any) -> None:
            try:
                mark_run(node)
                pending.discard(node)
                if not pending:
                    self.close(call)
            except Exception as error:
                if not MODULES.takes(error):
                    raise

        self.waiting[call] = [
            node.register_hook(lambda *_, node=node: after(node)) for node in nodes
        ]

    def finish(self) -> None:
        """Close all open calls; the pass has ended or failed."""
        self._shorten(0)
        if self in self.others:
            self.others.remove(self)

    def _shorten(self, length: int) -> None:
        while len(self.calls) > length:
            stack.close(self.entries.pop())
            for handle in self.waiting.pop(self.calls.pop(), ()):
                handle.remove()


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
    number = _C._current_graph_task_id()  # noqa: SLF001 (has no public name)
    if number < 0:
        return None
    for running in reversed(_passes_here.passes):
        if running.number == number:
            return running
    new = Pass(number, _passes_here.passes)
    _passes_here.passes.append(new)
    _engine.queue_callback(PassEnd(new))
    return new


def runs_next(node: Any, number: int) -> bool:
    """Return whether the running pass runs an accumulating node after this number."""
    try:
        return comes_next(node, number) and bool(_C._will_engine_execute_node(node))  # noqa: SLF001 (as torch.autograd.graph asks)
    except RuntimeError:  # autograd.grad() of this leaf: the gradient is returned, not accumulated
        return False


# -- Sites and calls of modules


CATEGORY = "module"


class Site:
    """A module of an annotated model: the labels of its ranges, and whether it still has any."""

    def __init__(self, path: str, *, backward: bool = True) -> None:
        self.on, self.backward = True, backward
        self.forward_label = Label(f"module:{path}", category=CATEGORY)
        self.backward_label = Label(f"backward:{path}", category=CATEGORY)


class ModuleCall(Entry):
    """One call of a module; it is also the entry of its forward range."""

    __slots__ = (
        "accumulating",
        "begin",
        "caller",
        "identity",
        "inner",
        "last",
        "module",
        "passed",
        "site",
    )

    def __init__(self, site: Site, module: int, caller: ModuleCall | None) -> None:
        self.label, self.payload = site.forward_label, stack.new_call_id()
        self.closed, self.stack, self.strand = False, None, None
        self.site, self.module, self.caller = site, module, caller
        self.begin = next_number()
        self.inner: list[Part] = []  # parts of the calls that ended in this one
        self.passed = -1  # number of the last backward pass

    def follow(self, roots: list[Any]) -> None:
        """Hook the nodes that gradients reach first, and the node that runs last."""
        part = Part(self.begin, next_number())
        own_roots = [root for root in roots if part.holds(root)]
        inner, self.inner = self.inner, []
        if not own_roots:
            return
        part.explore(own_roots, inner)
        if self.caller is not None:
            self.caller.inner.append(part)
        for root in own_roots:
            root.register_prehook(self.on_gradient)
        # The nodes that accumulate after the node that runs last, and the number of that one.
        self.accumulating, self.last = accumulating(part.first), part.number
        part.first.register_hook(self.on_last_node)

    def on_gradient(self, _gradients: object) -> None:
        """Open the backward range, because a gradient of an output has arrived."""
        try:
            if state.idle or MODULES.broken or not self.site.on:
                return
            if running := current():
                running.open(self)
        except Exception as error:
            if not MODULES.takes(error):
                raise

    def on_last_node(self, _sent: object, _received: object) -> None:
        """Close the backward range after the last node and the accumulation of its gradients."""
        try:
            if state.idle or not (running := current()):
                return
            pending = [node for node in self.accumulating if runs_next(node, self.last)]
            if pending:
                running.close_after(self, pending)
            else:
                running.close(self)
        except Exception as error:
            if not MODULES.takes(error):
                raise

    def chain(self) -> list[ModuleCall]:
        outer = self.caller.chain() if self.caller else []
        return [*outer, self] if self.site.backward and self.site.on else outer

    def backward_entry(self, number: int) -> Entry:
        """Return a range of its backward work; all ranges in one pass share a call id."""
        if self.passed != number:
            self.passed, self.identity = number, stack.new_call_id()
        return Entry(self.site.backward_label, self.identity)


class Here(local):
    """The innermost open call on this thread, which knows its caller."""

    def __init__(self) -> None:
        self.call: ModuleCall | None = None


_here = Here()


def begin_call(site: Site, module: int) -> ModuleCall | None:
    """Open the range of a call of the module with this id; None if its wrapper has the range."""
    caller = _here.call
    if caller is not None and caller.site is site and caller.module != module:
        return None
    call = _here.call = ModuleCall(site, module, caller)
    stack.push(call)
    return call


def end_call(call: ModuleCall, output: Any) -> None:
    """Close the range of a call, and hook its nodes to reopen it in backward passes."""
    _here.call = call.caller
    stack.close(call)
    if call.site.backward and output is not FAILED and is_grad_enabled() and not _transforms():
        call.follow(nodes(output))


# Whether functions of `torch.func` transform what runs; the nodes of their tensors are not to be taken.
_transforms: Callable[[], bool] = _C._are_functorch_transforms_active  # noqa: SLF001 (as torch.autograd.Function asks)
