"""The NVTX stack of every thread, kept valid for coroutines, generators, tasks and finalizers.

NVTX closes the innermost range of a thread and domain, whichever range was meant. `Stack.live`
holds the ranges that are pushed on the thread, in order, and only the last is popped. Ranges that
must not stay open are popped, and pushed again later as a new slice of the same call.

Plain functions end in the reverse order of their start. They have a `Token` instead of an `Entry`,
and are pushed and popped where they are called (see `wrap`). A token becomes an entry if a range
below it ends first.
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

from bridge.annotate import emit, emitter, source
from bridge.annotate.emit import emission
from bridge.annotate.emitter import Bound
from bridge.annotate.label import Label

# -- Call ids: the payload that all slices of one call share


CALL_ID_BITS = 48
CALL_ID_BASE = 0x4E42 << CALL_ID_BITS

# Returns an id that is unique in this process; a forked child repeats ids of its parent.
new_call_id: Callable[[], int] = count(CALL_ID_BASE + 1).__next__


# -- Open ranges


MAX_BOUND = 4096  # labels that a thread caches; others are bound again for each call
Token = tuple[Label, float]  # a range of a plain function: its label and its payload


class Strand:
    """The ranges that an asyncio task has open while another task runs.

    A change of task is noticed only at the next annotation: a block that an undecorated coroutine
    holds open over an await seems to continue until then.
    """

    __slots__ = ("parked",)

    def __init__(self) -> None:
        self.parked: list[Entry] = []


class Entry:
    """One open range: live on a stack, or parked (no stack) until its task or call continues."""

    __slots__ = ("closed", "label", "payload", "stack", "strand")

    def __init__(self, label: Label, payload: float) -> None:
        self.label = label
        self.payload = payload
        self.closed = False
        self.stack: Any = None
        self.strand: Strand | None = None


class Call(Entry):
    """The range of a coroutine or generator.

    While suspended it is parked with all ranges opened in it.
    """

    __slots__ = ("note", "parked")

    def __init__(self, label: Label, payload: int, note: float | None) -> None:
        super().__init__(label, payload)
        self.parked: list[Entry] = [self]
        self.note = note  # the user's payload, emitted as a mark in the first slice


class Unbound:
    """A bound label for back ends without `bind`."""

    def __init__(self, emitter: emitter.Emitter, label: Label) -> None:
        self.emitter, self.label = emitter, label
        self.payload: float = 0

    def push(self) -> None:
        """Open a range with the payload that was set."""
        self.emitter.push(self.label, self.payload)


# -- The stack of a thread


__all__ = [
    "Call", "Entry", "Stack", "Token", "close", "current", "here", "mine", "push", "release", "resume",
    "suspend",
]  # fmt: skip


def _slow_path_check() -> Callable[[], object]:
    """Return a function that returns None if ranges may be opened without `Stack.run`.

    That is so while no asyncio task runs and no details are recorded.
    """
    if emit.state.details is not None:
        return object  # details are recorded for each op
    return getattr(sys.modules.get("asyncio"), "_get_running_loop", _asyncio)


# Used until asyncio is imported; `Stack.run` then replaces it.
_asyncio: Callable[[], object] = partial(sys.modules.get, "asyncio")


class Stack:
    """The live ranges of one thread, and the emitter that pushed them."""

    __slots__ = (
        "bound", "busy", "care", "emitter", "entries", "live", "orphans", "strand", "strands", "thread"
    )  # fmt: skip

    def __init__(self, emitter: emitter.Emitter, thread: object) -> None:
        self.emitter = emitter
        self.thread = thread
        self.live: list[Entry | Token] = []
        self.entries: dict[int, Entry] = {}  # entries made of tokens, by the token's id()
        self.bound: dict[Label, Bound] = {}  # by label
        self.care = _slow_path_check()  # returns None if a range may be opened without `run`
        self.busy = False
        self.orphans: deque[Entry] = (
            deque()
        )  # closed on other threads, which cannot pop on this one
        self.strand: Strand | None = None  # of the last task that annotated
        self.strands: WeakKeyDictionary[Any, Strand] = WeakKeyDictionary()

    def run(self, act: Callable[[Stack, Any], None], entry: Entry | None = None) -> bool:
        """Call ``act`` and return True, or return False if another act is running.

        The latter happens in finalizers and signal handlers.
        """
        if self.busy:
            return False
        self.busy = True
        try:
            self._settle()
            act(self, entry)
        except Exception as error:
            if not emission.takes(error):
                raise
        finally:
            self.busy = False
        return True

    def push(self, entry: Entry) -> None:
        """Open a range as the innermost of this thread."""
        entry.strand = self.strand
        self._push(entry)

    def drop(self, entry: Entry) -> None:
        """Close a range anywhere in the stack; ranges above it continue as new slices."""
        if entry.stack is not self:
            return  # parked: a closed entry is not pushed again
        live = self.thaw()
        if entry not in live:  # a signal handler raised right after it was closed
            entry.stack = None
            return
        at = live.index(entry)
        domain = entry.label.domain
        above = [other for other in live[at + 1 :] if other.label.domain == domain]
        for _ in (entry, *above):
            self.emitter.pop(domain)
        closed = [other for other in above if other.closed]  # ended while an act was running
        for other in (other for other in above if not other.closed):
            self.emitter.push(other.label, other.payload)
        for other in (entry, *closed):
            self.live.remove(other)
            other.stack = None

    def resume(self, call: Call) -> None:
        """Push the ranges that a call had open when it was suspended."""
        parked, call.parked = call.parked, []
        for entry in parked:
            self.push(entry)
        if call.note is not None:
            self.emitter.mark(call.label, call.note)
            call.note = None

    def suspend(self, call: Call) -> None:
        """Pop a call and all ranges opened in it."""
        if call.stack is self:
            call.parked = self._take(self.thaw().index(call))

    def settle(self, _: object) -> None:
        """Do nothing; `run` settles the stack before every act."""

    def bind(self, label: Label, always: bool = False) -> Bound:
        """Return the functions that emit ranges of a label; always cached with ``always``."""
        if source.places:
            source.declare(self.emitter, label)
        bind = getattr(self.emitter, "bind", None)
        bound = bind and bind(label, always=always)
        if bound is None:
            unbound = Unbound(self.emitter, label)
            pop = partial(self.emitter.pop, label.domain)
            bound = partial(setattr, unbound, "payload"), unbound.push, pop
        if always or len(self.bound) < MAX_BOUND:
            self.bound[label] = bound
        return bound

    def emit(self, entry: Entry) -> None:
        """Emit the start of an entry's range."""
        if type(entry.payload) is int:
            set_payload, push_range, _ = self.bound.get(entry.label) or self.bind(entry.label)
            set_payload(entry.payload)
            push_range()
        else:
            self.emitter.push(entry.label, entry.payload)

    def thaw(self) -> list[Entry]:
        """Turn all tokens into entries, because a range below them ends first.

        Return the live entries.
        """
        for at, token in enumerate(self.live):
            if isinstance(token, tuple):
                self.live[at] = self.entries[id(token)] = Entry(*token)
                self.entries[id(token)].stack = self
        return self.live  # type: ignore[return-value]  # no token is left

    def _settle(self) -> None:
        """Drop ranges that other threads closed, and change strands if another task runs."""
        while self.orphans:
            self.drop(self.orphans.popleft())
        task = running_task()
        strand = None if task is None else self.strands.get(task)
        if task is not None and strand is None:
            strand = self.strands[task] = Strand()
        if strand is not self.strand:
            self._change(strand)
        self.care = _slow_path_check() if strand is None else object

    def _change(self, strand: Strand | None) -> None:
        """Park the ranges of the previous task, and push those of the current one."""
        if self.strand is not None:  # ranges without a task were opened before, and stay
            tasks = (at for at, entry in enumerate(self.thaw()) if entry.strand is not None)
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
        """Pop all entries from index ``at`` on, and return them in order."""
        popped = self.thaw()[at:]
        for entry in reversed(popped):
            self.emitter.pop(entry.label.domain)
            entry.stack = None
        del self.live[at:]
        return popped


NO_STACK = Stack(emitter.NullEmitter(), None)  # its emitter is never in use


class Here(local):
    """The running thread: an identity (thread ids are reused), and its stack."""

    def __init__(self) -> None:
        self.thread = object()
        self.stack = NO_STACK


here = Here()


def current() -> Stack:
    """Return the stack of this thread; a new emitter gets a new stack."""
    stack = here.stack
    if stack.emitter is not emit.state.emitter:
        if stack.orphans:
            stack.run(Stack.settle)
        stack = here.stack = Stack(emit.current(), here.thread)
    return stack


def push(entry: Entry) -> None:
    stack = here.stack
    if stack.emitter is not emit.state.emitter or stack.busy or stack.orphans or stack.care():
        current().run(Stack.push, entry)
        return
    stack.busy = True  # inlined, because calls would take half of the time
    try:
        stack.emit(entry)
        stack.live.append(entry)
        entry.stack = stack
    except Exception as error:
        if not emission.takes(error):
            raise
    finally:
        stack.busy = False


@emission.closing
def release(stack: Stack, token: Token) -> None:
    """Close the range of a plain function that is not the last live range, or became an entry.

    Ranges of functions above it are closed too: an exception kept them from closing themselves.
    """
    live = stack.thaw()
    own_entry = stack.entries.pop(id(token), None)
    if own_entry is None:  # it could not be pushed
        return
    functions = {id(entry): key for key, entry in stack.entries.items()}
    above = live[live.index(own_entry) + 1 :] if own_entry in live else []
    for entry in reversed([entry for entry in above if id(entry) in functions]):
        del stack.entries[functions[id(entry)]]
        close(entry)
    close(own_entry)


def close(entry: Entry) -> None:
    """Close a range of any thread; a parked range is not pushed again."""
    entry.closed = True
    stack = entry.stack or current()
    live = stack.live
    if stack is here.stack and live and live[-1] is entry and not (stack.busy or stack.orphans):
        stack.busy = True
        try:
            stack.emitter.pop(entry.label.domain)
            live.pop()
            entry.stack = None
        except Exception as error:
            if not emission.takes(error):
                raise
        finally:
            stack.busy = False
    elif stack.thread is not here.thread or not stack.run(Stack.drop, entry):
        stack.orphans.append(entry)


def resume(call: Call) -> None:
    """Begin a slice of a call on this thread."""
    current().run(Stack.resume, call)


def suspend(call: Call) -> None:
    """End a slice of a call, on the thread where it began."""
    (call.stack or current()).run(Stack.suspend, call)


def mine(entries: list[Entry]) -> Entry:
    """Return the latest of ``entries`` on this thread and task, or else the last entry."""
    stack = current()
    stack.run(Stack.settle)
    return next((entry for entry in reversed(entries) if entry.stack is stack), entries[-1])


def running_task() -> object | None:
    """Return the asyncio task that runs on this thread, or None."""
    asyncio = sys.modules.get("asyncio")
    # Another thread may be importing asyncio at the same time.
    running_loop = getattr(asyncio, "_get_running_loop", None)
    loop = running_loop and running_loop()
    return asyncio.current_task(loop) if asyncio and loop else None
