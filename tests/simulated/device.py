"""GPUs: streams, copy engines, collectives, and when each piece of work begins and ends.

The rules, from CUDA's documentation (programming guide: asynchronous concurrent execution, streams, events; runtime
API: API synchronization behavior, stream synchronization behavior):

- Work of a stream runs in order; between two pieces lies a gap of about 1 µs.
- Work begins no sooner than `launch_latency` after the return of the call that issued it.
- The legacy default stream waits for all work in blocking streams of its context, and these wait for it; streams
  created as non-blocking do neither.
- A GPU has one engine for each direction of copies (to the device, to the host, to a peer); an engine takes copies
  in the order in which they become ready. Copies inside of one device, fills and kernels share no engine.
- A collective ends on every rank a transfer after its last rank has begun.
- Kernels of different processes never run at once (`Gpu.shared`); a change between them costs `switch_ns`.
- Where `Gpu.crowding` is set, a kernel that begins while others run takes longer by the excess of their shares of
  the GPU over one, fixed when it begins. By default nothing is slowed down.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING

from simulated.engine import US, Engine

if TYPE_CHECKING:
    from simulated.host import Process, Thread

GAP_NS = 1 * US  # between two pieces of work of a stream
NODE_GAP_NS = 300  # between two nodes of a graph
CROSS_NS = 1_500  # from the end of work to the begin of what waits for it in another stream
QUEUE_DEPTH = 1024  # launches of a stream that have not begun


class Kind(Enum):
    """What a piece of work is, as the states of a GPU call it."""

    COMPUTE = "compute"
    COMMUNICATION = "communication"
    COPY = "copy"
    FILL = "other"
    GRAPH = "graph"


class Blocking(Enum):
    """How a stream stands to the legacy default stream; the values are the flags in exports."""

    BLOCKING = 1
    NON_BLOCKING = 2
    LEGACY_DEFAULT = 3


@dataclass(slots=True)
class Release:
    """What let something happen: the end of work, or an instant of a thread (its call, its signal)."""

    time: int
    work: Work | None = None
    thread: Thread | None = None  # the instant is `time`


@dataclass(slots=True, eq=False)
class Work:
    """A piece of work on a GPU. Times are -1 until they are known."""

    kind: Kind
    name: str
    stream: Stream
    duration: int
    correlation: int
    engine: str = ""  # the copy engine: h2d, d2h, peer; "" for none
    bytes: int = 0
    copy_kind: int = 0
    pinned: bool = True
    peer: int = -1  # the device of the other end of a peer copy
    share: float = 1.0  # of the GPU, for crowding
    collective: Collective | None = None
    op: str = ""
    step: int = 0  # of the thread that issued it
    node: int = 0  # of a graph's nodes, the id; 0: no node
    graph: int = 0
    start: int = -1
    end: int = -1
    ready: int = 0
    release: Release | None = None
    missing: int = 0  # predecessors whose end is unknown
    dependents: list[Work] = field(default_factory=list)
    started: list[Callable[[], None]] = field(default_factory=list)
    ended: list[Callable[[], None]] = field(default_factory=list)


class Stream:
    """A stream of a context: its work in order of issue."""

    def __init__(self, context: Context, number: int, blocking: Blocking) -> None:
        self.context, self.number, self.blocking = context, number, blocking
        self.works: list[Work] = []
        self.heads: list[Work] = []  # the first of each call, a graph's nodes being of one
        self.awaited: list[Work] = []  # of other streams, which the next work waits for

    @property
    def last(self) -> Work | None:
        """The work that was issued last."""
        return self.works[-1] if self.works else None


class Context:
    """A process's context on a GPU, with its legacy default stream (number 7, as nsys shows it)."""

    def __init__(self, gpu: Gpu, process: Process, number: int, device: int) -> None:
        self.gpu, self.process, self.number, self.device = gpu, process, number, device
        self.per_thread = False  # the program is compiled for per-thread default streams
        self.default = Stream(self, 7, Blocking.LEGACY_DEFAULT)
        self.streams = [self.default]

    def stream(self, blocking: Blocking = Blocking.NON_BLOCKING) -> Stream:
        """Return a new stream."""
        # Numbers 6 and 8 to 13 are streams of the driver's own, as in real exports.
        self.streams.append(Stream(self, 13 + len(self.streams), blocking))
        return self.streams[-1]

    def pending(self) -> list[Work]:
        """Return the last work of each stream."""
        return [stream.works[-1] for stream in self.streams if stream.works]


class Collective:
    """One collective over ranks: its members, and what it takes once all have begun."""

    def __init__(self, ranks: int, transfer_ns: int) -> None:
        self.ranks, self.transfer_ns = ranks, transfer_ns
        self.members: list[Work] = []

    def join(self, work: Work) -> bool:
        """Add a member that has begun; return whether it is the last one."""
        self.members.append(work)
        return len(self.members) == self.ranks

    @property
    def late(self) -> Work:
        """The member that began last."""
        return max(self.members, key=lambda work: work.start)


@dataclass(eq=False)
class _CopyEngine:
    free: int = 0
    last: Work | None = None


class Gpu:
    """A GPU: when work that is ready begins."""

    def __init__(self, engine: Engine, number: int, *, crowding: bool = False) -> None:
        self.engine, self.number, self.crowding = engine, number, crowding
        self.shared = False  # set once two processes have contexts here
        self.switch_ns = 10 * US
        self.works: list[Work] = []
        self._copies: dict[str, _CopyEngine] = {}
        self._running: list[Work] = []  # kernels, for crowding and sharing
        self._waiting: deque[Work] = deque()  # for the process that runs now
        self._resolved: deque[Work] = deque()
        self._draining = False

    def submit(self, work: Work, issued: Release, latency: int, *, gap: int = GAP_NS) -> None:
        """Issue work; ``issued`` is the return of the call."""
        stream = work.stream
        work.ready, work.release = issued.time + latency, issued
        if stream.works:
            self._after(work, stream.works[-1], gap)
        for other in _default_stream_order(stream):
            self._after(work, other, CROSS_NS)
        for other in stream.awaited:
            self._after(work, other, CROSS_NS)
        stream.awaited.clear()
        if not stream.works or stream.works[-1].correlation != work.correlation:
            stream.heads.append(work)
        stream.works.append(work)
        self.works.append(work)
        if not work.missing:
            self._begin(work)
            self._drain()

    def _after(self, work: Work, other: Work, gap: int) -> None:
        if other.end < 0:
            work.missing += 1
            other.dependents.append(work)
        elif other.end + gap > work.ready:
            work.ready, work.release = other.end + gap, Release(other.end, other)

    def _begin(self, work: Work) -> None:
        """Begin work that is ready, at once or, where others may come first, when its time has come."""
        if work.engine:
            self.engine.at(work.ready, lambda: self._begin_copy(work))
        elif (self.shared or self.crowding) and work.kind is not Kind.COPY:
            self.engine.at(work.ready, lambda: self._begin_kernel(work))
        else:
            self._run(work, work.ready)

    def _begin_copy(self, work: Work) -> None:
        copies = self._copies.setdefault(work.engine, _CopyEngine())
        start = work.ready
        if copies.free > start and copies.last:
            start, work.release = copies.free, Release(copies.free, copies.last)
        copies.last = work
        self._run(work, start)
        copies.free = work.end
        self._drain()

    def _begin_kernel(self, work: Work) -> None:
        now = self.engine.now
        self._running = [other for other in self._running if other.end < 0 or other.end > now]
        process = work.stream.context.process
        others = [o for o in self._running if o.stream.context.process is not process]
        if self.shared and (others or self._waiting):
            self._waiting.append(work)
            self._wake_when_free(others)
            return
        self._begin_now(work, now)
        self._drain()

    def _begin_now(self, work: Work, now: int) -> None:
        if self.crowding and not work.collective:
            total = work.share + sum(other.share for other in self._running)
            work.duration = round(work.duration * max(1.0, total))
        self._running.append(work)
        self._run(work, now)

    def _wake_when_free(self, others: list[Work]) -> None:
        if len(self._waiting) > 1:
            return  # somebody waits already
        if any(other.end < 0 for other in others):
            next(o for o in others if o.end < 0).ended.append(self._wake_when_free_again)
            return
        free = max((other.end for other in others), default=self.engine.now)
        self.engine.at(free + self.switch_ns, self._let_in)

    def _wake_when_free_again(self) -> None:
        self.engine.at(self.engine.now, self._let_in)

    def _let_in(self) -> None:
        """Begin what waits, up to the first work of another process than its own."""
        now = self.engine.now
        self._running = [other for other in self._running if other.end < 0 or other.end > now]
        first = self._waiting[0].stream.context.process
        others = [o for o in self._running if o.stream.context.process is not first]
        if others:
            ends = [other.end for other in others]
            if min(ends) < 0:
                next(o for o in others if o.end < 0).ended.append(self._wake_when_free_again)
            else:
                self.engine.at(max(ends) + self.switch_ns, self._let_in)
            return
        before = self._blocker(first)
        while self._waiting and self._waiting[0].stream.context.process is first:
            work = self._waiting.popleft()
            if before is not None:
                work.release = Release(before.end, before)
            self._begin_now(work, now)
        if self._waiting:
            running = [o.end for o in self._running if o.stream.context.process is first]
            self.engine.at(max(running) + self.switch_ns, self._let_in)
        self._drain()

    def _blocker(self, process: Process) -> Work | None:
        """Return the work of another process that ended last."""
        ended = (
            work
            for work in reversed(self.works)
            if work.release is not None
            and work.stream.context.process is not process
            and 0 <= work.end <= self.engine.now
        )
        # Of the last of several streams, which are near the end of the list.
        return max(islice(ended, 8), key=lambda work: work.end, default=None)

    def _run(self, work: Work, start: int) -> None:
        work.start = start
        for call in work.started:
            call()
        if work.collective is None:
            work.end = start + work.duration
            self._resolved.append(work)
        elif work.collective.join(work):
            end = work.collective.late.start + work.collective.transfer_ns
            for member in work.collective.members:
                member.end = end
                member.stream.context.gpu.finish(member)

    def finish(self, work: Work) -> None:
        """Let go on what waited for work whose end has become known."""
        self._resolved.append(work)
        self._drain()

    def _drain(self) -> None:
        if self._draining:
            return
        self._draining = True
        while self._resolved:
            work = self._resolved.popleft()
            for call in work.ended:
                call()
            for other in work.dependents:
                other.missing -= 1
                self._after(other, work, _gap(work, other))
                if not other.missing:
                    gpu = other.stream.context.gpu
                    gpu._begin(other)
                    if gpu is not self:
                        gpu._drain()
            work.dependents.clear()
        self._draining = False


def _gap(before: Work, after: Work) -> int:
    if before.stream is not after.stream:
        return CROSS_NS
    return NODE_GAP_NS if after.node and before.correlation == after.correlation else GAP_NS


def _default_stream_order(stream: Stream) -> list[Work]:
    """Return the work of other streams that new work waits for because of the legacy default stream."""
    context = stream.context
    if stream.blocking is Blocking.NON_BLOCKING:
        return []
    if stream.blocking is Blocking.BLOCKING:
        return [context.default.works[-1]] if context.default.works else []
    blocking = (s for s in context.streams if s.blocking is Blocking.BLOCKING)
    return [s.works[-1] for s in blocking if s.works]
