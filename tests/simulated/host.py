"""Processes and their threads: host code, ranges, calls of the operating system, locks and flags.

A thread runs a generator function. What cannot block (host code, ranges) is a plain method; what can is a
generator to be used with ``yield from``. The timeline of a thread has no holes: every instant between its begin and
its end belongs to one `Segment`.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from simulated.chance import event_number, factor, mixed, number_of
from simulated.device import Context, Release, Work
from simulated.engine import MS, US

if TYPE_CHECKING:
    from simulated.machine import Machine

PARK = True
Steps = Generator[bool | None, None, None]

WAKE_NS = 3 * US  # from what a thread waits for until it runs again
SWITCH_INTERVAL_NS = (
    5 * MS
)  # of CPython: after which a thread asks the holder of the lock to let go


class Cause(IntEnum):
    """What an instant of a thread is for an idle GPU; where several would do, the smallest."""

    WORK_ELSEWHERE = 0
    LATE_RANK = 1
    PROFILER = 2
    INPUT = 3
    LOADING = 4
    PYTHON_LOCK = 5
    API = 6
    OS = 7
    OP = 8
    HOST = 9
    LATENCY = 10
    ABSENT = 11  # the process has not begun, or has ended
    UNKNOWN = 12


@dataclass(slots=True)
class Segment:
    """What a thread did in an interval. ``release``: what ended its wait, where it waited."""

    start: int
    end: int
    cause: Cause
    name: str
    release: Release | None = None


class Flag:
    """A condition that is set once: by whom and when."""

    def __init__(self) -> None:
        self.release: Release | None = None
        self._waiting: list[Callable[[], None]] = []

    def set(self, thread: Thread) -> None:
        """Set the flag at the thread's instant."""
        if self.release is None:
            self.release = Release(thread.now, thread=thread)
            for wake in self._waiting:
                thread.machine.engine.at(thread.now, wake)

    def when_set(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once the flag is set."""
        self._waiting.append(wake)


class Lock:
    """A lock that goes to who has waited longest."""

    def __init__(self) -> None:
        self.holder: Thread | None = None
        self.queue: deque[tuple[Thread, Flag]] = deque()


class Process:
    """A process: its threads, its contexts, its correlation ids."""

    def __init__(self, machine: Machine, pid: int, name: str, *, recorded: bool = True) -> None:
        self.machine, self.pid, self.name, self.recorded = machine, pid, name, recorded
        self.threads: list[Thread] = []
        self.contexts: dict[int, Context] = {}
        self.correlation = 0
        self.modules: set[str] = set()  # kernels that are loaded
        self.python_lock = Lock()
        self.rank = 0

    def thread(self, name: str, *, creator: Thread | None = None) -> Thread:
        """Return a new thread, which begins at its creator's instant (by default at 0)."""
        self.threads.append(Thread(self, len(self.threads), name, creator))
        return self.threads[-1]


class Thread:
    """A thread of a process and its own time ``now``."""

    now: int

    def __init__(self, process: Process, number: int, name: str, creator: Thread | None) -> None:
        self.process, self.machine, self.name = process, process.machine, name
        self.id = process.pid + number
        self.begin: int = creator.now if creator else 0
        self.now = self.begin
        self.creator = creator
        self.timeline: list[Segment] = []
        self.stack: list[str] = []
        self.step = 0
        self.loading = False
        self.finished = Flag()
        self._identity = mixed(self.machine.seed, number_of(f"{process.name}/{name}"))
        self._scope: tuple[int, dict[str, int]] = (self._identity, {})
        self._generator: Steps | None = None

    # -- Running

    def run(self, generator: Steps) -> None:
        """Let the thread run from its present instant on."""
        self._generator = generator
        self.machine.engine.at(self.now, self._resume)

    def _resume(self) -> None:
        assert self._generator is not None
        for parked in self._generator:
            if not parked:
                self.machine.engine.at(self.now, self._resume)
            return
        self.finished.set(self)

    def catch_up(self) -> Steps:
        """Let everything else come first that happens before this thread's instant."""
        if self.machine.engine.is_before(self.now):
            yield None

    def wake(self) -> None:
        """Resume a parked thread once the events of the present instant are done."""
        self.machine.engine.at(self.machine.engine.now, self._resume)

    # -- Chance

    def begin_step(self, step: int) -> None:
        """Say which step follows: each draws numbers of its own."""
        self.step = step
        self._scope = (mixed(self._identity, step), {})

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Count events on their own, so that more or fewer of them change no number outside of the scope."""
        outer = self._scope
        self._scope = (self.identity(name), {})
        yield
        self._scope = outer

    def identity(self, name: str) -> int:
        """Return a number for the next event of a name in this scope."""
        scope, drawn = self._scope
        count = drawn.get(name, 0)
        drawn[name] = count + 1
        return event_number(scope, number_of(name), count)

    def jittered(self, ns: float, name: str, spread: float | None = None) -> int:
        """Return a duration around ``ns`` that belongs to this thread, step, scope, name and occurrence."""
        spread = self.machine.spread if spread is None else spread
        return self.drawn(ns, spread, self.identity(name))

    def drawn(self, ns: float, spread: float, identity: int) -> int:
        """Return a duration around ``ns`` that belongs to an identity, 64 bits of `mixed` or `identity`."""
        if not self.machine.spread:
            return round(ns)
        return max(1, round(ns * factor(spread, identity)))

    # -- What it does

    @property
    def op(self) -> str:
        """The innermost range, '' outside of all."""
        return self.stack[-1] if self.stack else ""

    @contextmanager
    def range(self, name: str, detail: str = "") -> Iterator[None]:
        """Push a range, and pop it at the end; its text is the op's name and a detail of the call."""
        if not self.machine.annotated:
            with self.scope(name):
                yield
            return
        start = self.now
        self.stack.append(name)
        with self.scope(name):
            self.host(150, "push", jitter=False)
            yield
            self.host(100, "pop", jitter=False)
        self.stack.pop()
        self.machine.ranges.append((start, self.now, name + detail, self, len(self.stack)))

    def host(self, ns: float, name: str = "host", *, jitter: bool = True) -> None:
        """Run host code."""
        length = self.jittered(ns, name) if jitter else round(ns)
        if self.loading:
            self.spend(length, Cause.LOADING, self.op)
        elif self.stack:
            self.spend(length, Cause.OP, self.op)
        else:
            self.spend(length, Cause.HOST, name)

    def spend(self, ns: int, cause: Cause, name: str) -> None:
        """Let time pass for a cause."""
        self.timeline.append(Segment(self.now, self.now + ns, cause, name))
        self.now += ns

    def until(self, time: int, cause: Cause, name: str, release: Release | None) -> None:
        """Let time pass up to an instant, at which ``release`` ended a wait."""
        self.timeline.append(Segment(self.now, time, cause, name, release))
        self.now = time

    def os_call(self, name: str, ns: float, *, cause: Cause = Cause.OS) -> None:
        """Call the operating system, which takes its time and waits for nobody."""
        start = self.now
        self.spend(self.jittered(ns, name), self._cause(cause), name)
        self.machine.os_calls.append((start, self.now, name, self))

    def _cause(self, cause: Cause) -> Cause:
        return Cause.LOADING if self.loading and cause is Cause.OS else cause

    def wait_flag(
        self, flag: Flag, name: str, *, cause: Cause = Cause.OS, slice_ns: int = 0
    ) -> Steps:
        """Wait for a flag in calls of the operating system; ``slice_ns``: the longest of them."""
        yield from self.catch_up()
        start = self.now
        while flag.release is None:
            flag.when_set(self._resume)
            yield PARK
        end = max(start, flag.release.time)
        if end == start:
            return
        end += self.jittered(WAKE_NS, "wake")
        edges = [*range(start, end, slice_ns), end] if slice_ns else [start, end]
        for first, last in itertools.pairwise(edges):
            self.machine.os_calls.append((first, last, name, self))
        self.until(end, self._cause(cause), name, flag.release)

    def acquire(self, lock: Lock, name: str, cause: Cause, slice_ns: int = 0) -> Steps:
        """Take a lock, or wait for it."""
        yield from self.catch_up()
        if lock.holder is None:
            lock.holder = self
            return
        mine = Flag()
        lock.queue.append((self, mine))
        yield from self.wait_flag(mine, name, cause=cause, slice_ns=slice_ns)

    def release(self, lock: Lock) -> Steps:
        """Give a lock to who has waited longest."""
        yield from self.catch_up()
        lock.holder = None
        if lock.queue:
            lock.holder, flag = lock.queue.popleft()
            flag.set(self)

    def take_python_lock(self) -> Steps:
        """Take Python's lock as CPython does: in waits of at most the switch interval."""
        wait = "pthread_cond_timedwait"
        return self.acquire(
            self.process.python_lock, wait, Cause.PYTHON_LOCK, slice_ns=SWITCH_INTERVAL_NS
        )

    # -- Waiting for GPUs

    def until_ended(self, works: list[Work]) -> Steps:
        """Park until the end of all this work is known; its ends may lie ahead of this thread's time."""
        for work in works:
            while work.end < 0:
                work.ended.append(self.wake)
                yield PARK

    def segment_at(self, time: int) -> Segment | None:
        """Return the segment that covers the instant just before a time."""
        index = bisect_right(self.timeline, time - 1, key=lambda segment: segment.start) - 1
        return self.timeline[index] if index >= 0 else None
