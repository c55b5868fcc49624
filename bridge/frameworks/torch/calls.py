"""Calls of modules: open while forward runs, and opened again by autograd's nodes.

The invariant: a call that ended keeps no tensor and no node of the graph but those that add to a
parameter's `grad`, which hold nothing of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from threading import local
from typing import Any, Protocol

from torch import _C, Tensor
from torch._C._autograd import _get_sequence_nr
from torch.autograd import Variable
from torch.compiler import is_compiling

from bridge.annotate import stack
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry

# -- The part of autograd's graph that one call of a module made, known by sequence numbers


next_number = _get_sequence_nr  # of the node that this thread makes next

ACCUMULATES = 2**64 - 1  # the number of every node that adds to a leaf's `grad`
USE = "bridge"  # in the metadata of such a node: the first that leads to it, and whether it has run
DEEPEST = 8  # containers in containers that are looked into


class Part:
    """The nodes of one call: numbers from `begin` to below `end`, where they lead, the first of them."""

    __slots__ = ("begin", "end", "first", "number", "outside")

    def __init__(self, begin: int, end: int) -> None:
        self.begin, self.end = begin, end
        self.first: Any = None  # the node that was made first
        self.number = end  # its own
        self.outside: list[Any] = []  # nodes made before, which follow those of the call

    def holds(self, node: Any) -> bool:
        """Tell whether a node was made in the call."""
        return bool(self.begin <= node._sequence_nr() < self.end)  # noqa: SLF001 (no public name)

    def explore(self, roots: Sequence[Any], inner: Sequence[Part]) -> None:
        """Find the first node and the nodes outside; ``inner`` calls are known, and ascend."""
        begins = [part.begin for part in inner]
        seen, todo = set(roots), list(roots)
        while todo:
            node = todo.pop()
            number = node._sequence_nr()  # noqa: SLF001 (the number that PyTorch's profiler records)
            if not self.begin <= number < self.end:
                self.outside += [node] if number != ACCUMULATES else []
                continue
            at = bisect_right(begins, number) - 1
            known = inner[at] if at >= 0 and number < inner[at].end else None
            if known:
                node, number = known.first, known.number
            if number < self.number:
                self.first, self.number = node, number
            found = known.outside if known else _followers(node, number)
            new = [other for other in found if other not in seen]
            seen.update(new)
            todo += new


def _followers(node: Any, number: int) -> list[Any]:
    """List the nodes that a node hands gradients to; those that accumulate learn of it."""
    found = [other for other, _ in node.next_functions if other is not None]
    for other in found:
        if other._sequence_nr() == ACCUMULATES:  # noqa: SLF001 (as above)
            earliest, spent = other.metadata.get(USE, (number, False))
            other.metadata[USE] = (number if spent else min(earliest, number), False)
    return found


def accumulating(node: Any) -> list[Any]:
    """List the nodes behind this one that add to the `grad` of a leaf."""
    found = (other for other, _ in node.next_functions if other is not None)
    return [other for other in found if other._sequence_nr() == ACCUMULATES]  # noqa: SLF001 (as above)


def comes_next(node: Any, number: int) -> bool:
    """Tell whether a node that accumulates runs after that of this number: it waits for no earlier one."""
    return bool(node.metadata.get(USE, (None,))[0] == number)


def ran(node: Any) -> None:
    """Note that a node has accumulated: what leads to it later is of another graph."""
    if USE in node.metadata:
        node.metadata[USE] = (node.metadata[USE][0], True)


def nodes(output: Any) -> list[Any]:
    """List the nodes that made the tensors of an output, each once."""
    if isinstance(output, Tensor):
        return [] if output.grad_fn is None else [output.grad_fn]
    made = (tensor.grad_fn for tensor in _tensors(output, DEEPEST))
    return list(dict.fromkeys(node for node in made if node is not None))


def _tensors(output: Any, depth: int) -> Iterator[Any]:
    """Find tensors in tuples, lists, sets, dictionaries and dataclasses."""
    if isinstance(output, Tensor):
        yield output
    elif depth:
        for value in _values(output):
            yield from _tensors(value, depth - 1)


def _values(output: Any) -> Any:
    if isinstance(output, Mapping):
        return output.values()
    if isinstance(output, list | tuple | set | frozenset):
        return output
    if is_dataclass(output) and not isinstance(output, type):
        return vars(output).values() if hasattr(output, "__dict__") else ()
    return ()


# -- What backward passes have open on each thread, and its end, whichever way a pass ends


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

        def after(node: Any) -> None:
            ran(node)
            left.discard(node)
            if not left:
                self.close(call)

        self.waiting[call] = [
            node.register_hook(lambda *_, node=node: after(node)) for node in nodes
        ]

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


class PassHere(local):
    """The running passes of this thread, the inner ones last."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []


_passes_here = PassHere()


def current() -> Pass | None:
    """Return the backward pass that runs on this thread, if any does."""
    number = _C._current_graph_task_id()  # noqa: SLF001 (public only through queue_callback's error)
    if number < 0:
        return None
    for running in reversed(_passes_here.passes):
        if running.number == number:
            return running
    begun = Pass(number, _passes_here.passes)
    _passes_here.passes.append(begun)
    _engine.queue_callback(End(begun))
    return begun


def runs_next(node: Any, number: int) -> bool:
    """Tell whether the running pass runs this node, which accumulates, after that of the number."""
    try:
        return comes_next(node, number) and bool(_C._will_engine_execute_node(node))  # noqa: SLF001 (as torch.autograd.graph asks)
    except RuntimeError:  # autograd.grad() of that very leaf: its gradient is returned, not added
        return False


# -- Calls of modules: open while forward runs, and opened again by autograd's nodes


CATEGORY = "module"


class Site:
    """One module of an annotated model, and the hooks of its calls; shared by copies of the module."""

    def __init__(self, path: str, *, on: bool = False, backward: bool = True) -> None:
        self.path, self.on, self.backward = path, on, backward
        self.forward_label = Label(f"module:{path}", category=CATEGORY)
        self.backward_label = Label(f"backward:{path}", category=CATEGORY)
        self.open: set[ModuleCall] = set()

    def __reduce__(self) -> tuple[type[Site], tuple[str]]:
        return Site, (self.path,)  # in another process nobody can take it away: it is off

    def __deepcopy__(self, memo: object) -> Site:
        return self

    def before(self, _module: object, _args: object) -> None:
        """Open a call: a hook before forward."""
        if is_compiling() or state.idle or not self.on:
            return
        caller = _here.call
        if caller is not None and caller.closed:
            caller = _here.innermost()
        call = ModuleCall(self, caller)
        self.open.add(call)
        _here.call = call
        stack.push(call)

    def after(self, _module: object, _args: object, output: Any) -> None:
        """Close a call, and let the nodes that it made open it in backward passes."""
        if is_compiling() or not self.open:
            return
        call = _here.call
        if call is None or call.site is not self:
            call = _here.close_down_to(self)
        if call is None:
            return
        call.leave()
        _here.call = call.caller
        if self.backward:
            call.follow(nodes(output))

    def remove(self) -> None:
        """Close what is open and be silent from now on."""
        self.on = False
        for call in list(self.open):
            call.leave()


class ModuleCall(Entry):
    """One call of a module; in the forward pass it is the open range itself."""

    __slots__ = ("accumulating", "begin", "caller", "identity", "inner", "last", "passed", "site")

    def __init__(self, site: Site, caller: ModuleCall | None) -> None:
        super().__init__(site.forward_label, stack.new_call_id())
        self.site, self.caller = site, caller
        self.begin = next_number()
        self.inner: list[Part] = []  # of the calls that ended in this one
        self.accumulating: list[Any] = []  # nodes behind the one that is run last, and its number
        self.last = -1
        self.passed, self.identity = -1, 0  # the last backward pass, and the call id in it

    def leave(self) -> None:
        """Close the range of forward."""
        self.site.open.discard(self)
        stack.close(self)

    def follow(self, roots: list[Any]) -> None:
        """Hang hooks on the nodes that gradients reach first, and on the one that is run last."""
        part = Part(self.begin, next_number())
        ours = [root for root in roots if part.holds(root)]
        inner, self.inner = self.inner, []
        if not ours:
            return
        part.explore(ours, inner)
        if self.caller is not None:
            self.caller.inner.append(part)
        for root in ours:
            root.register_prehook(self.arrived)
        self.accumulating, self.last = accumulating(part.first), part.number
        part.first.register_hook(self.passed_on)

    def arrived(self, _gradients: object) -> None:
        """Open the range of backward: a gradient of an output is there."""
        if not state.idle and self.site.on and (running := current()):
            running.open(self)

    def passed_on(self, _sent: object, _received: object) -> None:
        """Close it: the last node has run, but for the gradients that it adds to its parameters'."""
        if state.idle or not (running := current()):
            return
        left = [node for node in self.accumulating if runs_next(node, self.last)]
        if left:
            running.close_after(self, left)
        else:
            running.close(self)

    def chain(self) -> list[ModuleCall]:
        """Return the calls around it and itself, the outermost first."""
        around = self.caller.chain() if self.caller else []
        return [*around, self] if self.site.backward and self.site.on else around

    def backward_entry(self, number: int) -> Entry:
        """Make the range of its backward work: in one pass all of them are one call."""
        if self.passed != number:
            self.passed, self.identity = number, stack.new_call_id()
        return Entry(self.site.backward_label, self.identity)


class Here(local):
    """The calls that are open on this thread: the innermost, which knows its caller."""

    def __init__(self) -> None:
        self.call: ModuleCall | None = None

    def calls(self) -> Iterator[ModuleCall]:
        """Give them from the innermost on."""
        call = self.call
        while call is not None:
            yield call
            call = call.caller

    def innermost(self) -> ModuleCall | None:
        """Return the innermost that has not been closed by others."""
        return next((call for call in self.calls() if not call.closed), None)

    def close_down_to(self, site: Site) -> ModuleCall | None:
        """Return the innermost call of a module; close those that an interrupt left open in it."""
        found = next((call for call in self.calls() if call.site is site), None)
        for inner in self.calls() if found else ():
            if inner is found:
                break
            inner.leave()
        return found


_here = Here()
