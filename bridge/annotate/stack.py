"""Keep every thread's NVTX stack lawful, whatever interleaves on it.

NVTX closes the topmost range of a thread and domain, whichever was meant. The invariant:
`Stack.live` is what is pushed on the thread, in order, and only the top is popped. What cannot
stay is popped, and pushed again later as a new slice of the same call.

Plain functions, which end in the order in which they begin, have no `Entry` but a `Token`, and are pushed and
popped where they are called (see wrap); they become entries when something below them ends first.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from threading import local
from typing import Any
from weakref import WeakKeyDictionary

from bridge.annotate import emit, emitter
from bridge.annotate.emitter import Bound
from bridge.annotate.label import Label

# -- Call ids: the payload by which all slices of one call are known as one


CALL_ID_BITS = 48
CALL_ID_BASE = 0x4E42 << CALL_ID_BITS

# Returns an id that no other call of this process has; only a forked child repeats some.
new_call_id: Callable[[], int] = count(CALL_ID_BASE + 1).__next__


# -- What is open: ranges of blocks, coroutines and generators, of plain functions; and who holds them


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

    def __init__(self, emitter: emitter.Emitter, label: Label) -> None:
        self.emitter, self.label = emitter, label
        self.payload: float = 0

    def push(self) -> None:
        """Open a range."""
        self.emitter.push(self.label, self.payload)


# -- Keep every thread's NVTX stack lawful, whatever interleaves on it


__all__ = [
    "Call", "Entry", "Stack", "Token", "close", "current", "here", "mine", "push", "release", "resume",
    "suspend",
]  # fmt: skip


def _careless() -> Callable[[], object]:
    """Return what gives None as long as ranges may be opened without an act: while no task runs."""
    if emit.state.details is not None:
        return object  # more is wanted of each op than its range
    return getattr(sys.modules.get("asyncio"), "_get_running_loop", _asyncio)


# Until somebody imports asyncio: the next act finds that out.
_asyncio: Callable[[], object] = partial(sys.modules.get, "asyncio")


class Stack:
    """The live ranges of one thread, and the emitter that they were pushed through."""

    __slots__ = (
        "bound", "busy", "care", "emitter", "entries", "live", "orphans", "strand", "strands", "thread"
    )  # fmt: skip

    def __init__(self, emitter: emitter.Emitter, thread: object) -> None:
        self.emitter = emitter
        self.thread = thread
        self.live: list[Entry | Token] = []
        self.entries: dict[int, Entry] = {}  # of tokens that became entries, by their id
        self.bound: dict[Label, Bound] = {}  # of plain functions
        self.care = _careless()  # gives None where a range may be opened without an act
        self.busy = False
        self.orphans: deque[Entry] = deque()  # closed by others, who may not pop on this thread
        self.strand: Strand | None = None  # of the task that annotated last
        self.strands: WeakKeyDictionary[Any, Strand] = WeakKeyDictionary()

    def run(self, act: Callable[[Stack, Any], None], entry: Entry | None = None) -> bool:
        """Act, unless in the midst of an act already: in a finalizer, in a signal handler."""
        if self.busy:
            return False
        self.busy = True
        try:
            self._settle()
            act(self, entry)
        finally:
            self.busy = False
        return True

    def push(self, entry: Entry) -> None:
        """Open a range above all others of this thread."""
        entry.strand = self.strand
        self._push(entry)

    def drop(self, entry: Entry) -> None:
        """Close a range wherever it is in the stack; what is above it goes on as a new slice."""
        if entry.stack is not self:
            return  # parked: being closed, it will not be pushed again
        at = self.thaw().index(entry)
        domain = entry.label.domain
        above = [other for other in self.thaw()[at + 1 :] if other.label.domain == domain]
        for _ in (entry, *above):
            self.emitter.pop(domain)
        dead = [other for other in above if other.closed]  # could not be closed when they ended
        for other in (other for other in above if not other.closed):
            self.emitter.push(other.label, other.payload)
        for other in (entry, *dead):
            self.live.remove(other)
            other.stack = None

    def resume(self, call: Call) -> None:
        """Push what a call had open when it was suspended."""
        opened, call.parked = call.parked, []
        for entry in opened:
            self.push(entry)
        if call.note is not None:
            self.emitter.mark(call.label, call.note)
            call.note = None

    def suspend(self, call: Call) -> None:
        """Pop a call with all that was opened in it."""
        if call.stack is self:
            call.parked = self._take(self.thaw().index(call))

    def settle(self, _: object) -> None:
        """Do nothing more than every act begins with."""

    def bind(self, label: Label, always: bool = False) -> Bound:
        """Return how ranges of this label are emitted on this thread; a decorated function's are kept always."""
        bind = getattr(self.emitter, "bind", None)
        bound = bind and bind(label, always=always)
        if bound is None:
            unbound = Unbound(self.emitter, label)
            pop = partial(self.emitter.pop, label.domain)
            bound = partial(setattr, unbound, "payload"), unbound.push, pop
        if always or len(self.bound) < BOUND:
            self.bound[label] = bound
        return bound

    def emit(self, entry: Entry) -> None:
        """Open the range of an entry in the tool."""
        if type(entry.payload) is int:
            set_payload, push_range, _ = self.bound.get(entry.label) or self.bind(entry.label)
            set_payload(entry.payload)
            push_range()
        else:
            self.emitter.push(entry.label, entry.payload)

    def thaw(self) -> list[Entry]:
        """Make entries of all tokens, for something below them is to end first; return what is live."""
        for at, one in enumerate(self.live):
            if isinstance(one, tuple):
                self.live[at] = self.entries[id(one)] = Entry(*one)
                self.entries[id(one)].stack = self
        return self.live  # type: ignore[return-value]  # no token is left

    def _settle(self) -> None:
        """Drop what other threads closed, then change strands if another task runs."""
        while self.orphans:
            self.drop(self.orphans.popleft())
        task = running_task()
        strand = None if task is None else self.strands.get(task)
        if task is not None and strand is None:
            strand = self.strands[task] = Strand()
        if strand is not self.strand:
            self._change(strand)
        self.care = _careless() if strand is None else object

    def _change(self, strand: Strand | None) -> None:
        """Park what the task that ran before had open, and push what this one had."""
        if self.strand is not None:  # what belongs to no task was opened before, and stays below
            tasks = (at for at, one in enumerate(self.thaw()) if one.strand is not None)
            self.strand.parked = self._take(next(tasks, len(self.live)))
        self.strand = strand
        if strand is not None:
            parked, strand.parked = strand.parked, []
            for entry in parked:
                self._push(entry)

    def _push(self, entry: Entry) -> None:
        if not entry.closed:
            self.emit(entry)
            self.live.append(entry)
            entry.stack = self

    def _take(self, at: int) -> list[Entry]:
        """Pop all entries from this position on, and return them in their order."""
        taken = self.thaw()[at:]
        for entry in reversed(taken):
            self.emitter.pop(entry.label.domain)
            entry.stack = None
        del self.live[at:]
        return taken


NO_STACK = Stack(emitter.Silent(), None)  # of an emitter that is never in use


class Here(local):
    """The running thread: what it is known by (its number may be reused), and its stack."""

    def __init__(self) -> None:
        self.thread = object()
        self.stack = NO_STACK


here = Here()


def current() -> Stack:
    """Return the stack of this thread; a new emitter begins a new one."""
    stack = here.stack
    if stack.emitter is not emit.state.emitter:
        if stack.orphans:
            stack.run(Stack.settle)
        stack = here.stack = Stack(emit.current(), here.thread)
    return stack


def push(entry: Entry) -> None:
    """Open a range on this thread."""
    stack = here.stack
    if stack.emitter is not emit.state.emitter or stack.busy or stack.orphans or stack.care():
        current().run(Stack.push, entry)
        return
    stack.busy = True  # all is done here: calls would take half of the time
    try:
        stack.emit(entry)
        stack.live.append(entry)
        entry.stack = stack
    finally:
        stack.busy = False


def release(stack: Stack, token: Token) -> None:
    """Close the range of a plain function that something else is above, or that became an entry.

    Functions above it have ended before, by an exception so bad that they could not say so.
    """
    live = stack.thaw()
    mine = stack.entries.pop(id(token))
    functions = {id(entry): key for key, entry in stack.entries.items()}
    above = live[live.index(mine) + 1 :] if mine in live else []
    for entry in reversed([one for one in above if id(one) in functions]):
        del stack.entries[functions[id(entry)]]
        close(entry)
    close(mine)


def close(entry: Entry) -> None:
    """Close a range, whichever thread it is open on; what is parked will not be pushed again."""
    entry.closed = True
    stack = entry.stack or current()
    live = stack.live
    if stack is here.stack and live and live[-1] is entry and not (stack.busy or stack.orphans):
        stack.busy = True
        try:
            stack.emitter.pop(entry.label.domain)
            live.pop()
            entry.stack = None
        finally:
            stack.busy = False
    elif stack.thread is not here.thread or not stack.run(Stack.drop, entry):
        stack.orphans.append(entry)


def resume(call: Call) -> None:
    """Begin a slice of a call on this thread."""
    current().run(Stack.resume, call)


def suspend(call: Call) -> None:
    """End a slice of a call, on the thread where it was begun."""
    (call.stack or current()).run(Stack.suspend, call)


def mine(entries: list[Entry]) -> Entry:
    """Pick, of the ranges that one annotation has open, the latest of this thread and task."""
    stack = current()
    stack.run(Stack.settle)
    return next((entry for entry in reversed(entries) if entry.stack is stack), entries[-1])


def running_task() -> object | None:
    """Return the asyncio task that runs on this thread, if anybody has imported asyncio."""
    asyncio = sys.modules.get("asyncio")
    # Asked for with care: another thread may be in the midst of importing asyncio.
    running_loop = getattr(asyncio, "_get_running_loop", None)
    loop = running_loop and running_loop()
    return asyncio.current_task(loop) if asyncio and loop else None
