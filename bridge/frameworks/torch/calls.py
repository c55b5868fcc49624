"""Calls of modules: open while forward runs, and opened again by autograd's nodes.

The invariant: a call that ended keeps no tensor and no node of the graph but those that add to a
parameter's `grad`, which hold nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import local
from typing import Any

from torch.compiler import is_compiling

from bridge.annotate import callid, stack
from bridge.annotate.emit import state
from bridge.annotate.label import Label
from bridge.annotate.stack import Entry
from bridge.frameworks.torch import graph, passes
from bridge.frameworks.torch.graph import Part

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
            call.follow(graph.nodes(output))

    def remove(self) -> None:
        """Close what is open and be silent from now on."""
        self.on = False
        for call in list(self.open):
            call.leave()


class ModuleCall(Entry):
    """One call of a module; in the forward pass it is the open range itself."""

    __slots__ = ("accumulating", "begin", "caller", "identity", "inner", "last", "passed", "site")

    def __init__(self, site: Site, caller: ModuleCall | None) -> None:
        super().__init__(site.forward_label, callid.new())
        self.site, self.caller = site, caller
        self.begin = graph.next_number()
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
        part = Part(self.begin, graph.next_number())
        ours = [root for root in roots if part.holds(root)]
        inner, self.inner = self.inner, []
        if not ours:
            return
        part.explore(ours, inner)
        if self.caller is not None:
            self.caller.inner.append(part)
        for root in ours:
            root.register_prehook(self.arrived)
        self.accumulating, self.last = graph.accumulating(part.first), part.number
        part.first.register_hook(self.passed_on)

    def arrived(self, _gradients: object) -> None:
        """Open the range of backward: a gradient of an output is there."""
        if not state.idle and self.site.on and (running := passes.current()):
            running.open(self)

    def passed_on(self, _sent: object, _received: object) -> None:
        """Close it: the last node has run, but for the gradients that it adds to its parameters'."""
        if state.idle or not (running := passes.current()):
            return
        left = [node for node in self.accumulating if passes.runs_next(node, self.last)]
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
            self.passed, self.identity = number, callid.new()
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
