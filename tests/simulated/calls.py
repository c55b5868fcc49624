"""CUDA API calls of a thread: what each costs the host, what it issues and what it waits for.

From the documentation of the runtime API ("API synchronization behavior"): a copy from pageable memory to a device
returns when the memory is staged, one to pageable memory when it is done; an asynchronous copy of pinned memory
returns at once; a synchronous copy (`cudaMemcpy`) waits for its stream first, and for the copy. `cudaFree` waits for
the device. A launch waits while `QUEUE_DEPTH` launches of its stream have not begun. The first call of a process
creates its context; the first launch of a kernel loads its module.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from simulated.device import (
    NODE_GAP_NS,
    QUEUE_DEPTH,
    Blocking,
    Collective,
    Context,
    Kind,
    Release,
    Stream,
    Work,
)
from simulated.engine import MS, US
from simulated.host import PARK, Cause, Steps, Thread

NONE = 2**32 - 1
H2D, D2H, D2D, PEER = 1, 2, 8, 10
ENGINES = {H2D: "h2d", D2H: "d2h", PEER: "peer", D2D: ""}
EVENT_SYNC, STREAM_WAIT, STREAM_SYNC, CONTEXT_SYNC = 1, 2, 3, 4
OUT_OF_MEMORY, NOT_READY = 2, 600
NAMES = {
    "launch": "cudaLaunchKernel_v7000",
    "memcpy": "cudaMemcpy_v3020",
    "memcpy_async": "cudaMemcpyAsync_v3020",
    "memset_async": "cudaMemsetAsync_v3020",
    "malloc": "cudaMalloc_v3020",
    "free": "cudaFree_v3020",
    "stream_sync": "cudaStreamSynchronize_v3020",
    "device_sync": "cudaDeviceSynchronize_v3020",
    "event_sync": "cudaEventSynchronize_v3020",
    "event_query": "cudaEventQuery_v3020",
    "event_record": "cudaEventRecord_v3020",
    "stream_wait": "cudaStreamWaitEvent_v3020",
    "graph_launch": "cudaGraphLaunch_v10000",
    "graph_instantiate": "cudaGraphInstantiate_v12000",
    "host_alloc": "cudaHostAlloc_v3020",
    "free_host": "cudaFreeHost_v3020",
    "memcpy_peer": "cudaMemcpyPeerAsync_v4000",
    "prefetch": "cudaMemPrefetchAsync_v8000",
    "set_device": "cudaSetDevice_v3020",
}
# The names of calls of programs that are compiled for per-thread default streams.
PER_THREAD_NAMES = NAMES | {
    "launch": "cudaLaunchKernel_ptsz_v7000",
    "memcpy": "cudaMemcpy_ptds_v7000",
    "memcpy_async": "cudaMemcpyAsync_ptsz_v7000",
    "memset_async": "cudaMemsetAsync_ptsz_v7000",
    "stream_sync": "cudaStreamSynchronize_ptsz_v7000",
    "event_record": "cudaEventRecord_ptsz_v7000",
    "stream_wait": "cudaStreamWaitEvent_ptsz_v7000",
    "graph_launch": "cudaGraphLaunch_ptsz_v10000",
}
MANAGED_H2D, FAULTS = 11, 16


@dataclass
class Costs:
    """What a machine's calls and copies cost: ns, and bytes per ns (which are GB/s)."""

    launch_ns: int = 5 * US
    latency_ns: int = 3 * US
    call_ns: int = 2 * US
    copy_call_ns: int = 6 * US
    sync_ns: int = (
        4 * US
    )  # from the end of the work until the call returns, or of a call without a wait
    malloc_ns: int = 120 * US
    fault_bandwidth: float = 2.5  # of pages that a kernel faults on
    context_ns: int = 45 * MS
    load_ns: int = 250 * US  # a kernel's module at its first launch
    bandwidths: dict[tuple[int, bool], float] = field(
        default_factory=lambda: {
            (H2D, True): 12.0,
            (H2D, False): 4.0,
            (D2H, True): 12.0,
            (D2H, False): 3.0,
            (PEER, True): 20.0,
            (D2D, True): 600.0,
        }
    )


@dataclass(eq=False)
class Event:
    """An event as it was recorded last."""

    number: int
    after: Work | None = None
    stream: Stream | None = None


class Cuda:
    """The CUDA calls of a thread on one context."""

    def __init__(self, thread: Thread, context: Context) -> None:
        self.thread, self.context = thread, context
        self.process, self.machine = thread.process, thread.machine
        self.costs = self.machine.costs
        self.names = PER_THREAD_NAMES if context.per_thread else NAMES
        self.share = 1.0  # of the GPU that a kernel of this thread fills
        self.flush_ns = 0.0  # what the profiler's next flush takes, inside of the next launch

    # -- The frame of every call

    def _enter(self) -> int:
        """Return the correlation id of a call that begins now."""
        self.process.correlation += 1
        return self.process.correlation

    def _record(self, name: str, start: int, correlation: int, result: int = 0) -> None:
        self.machine.calls.append((start, self.thread.now, name, self.thread, correlation, result))

    def _spend(self, ns: float, name: str, part: str = "") -> None:
        """Spend time in a call; ``part`` of it has random numbers of its own."""
        thread = self.thread
        length = thread.jittered(ns, part or name)
        thread.spend(length, Cause.LOADING if thread.loading else Cause.API, name)

    def _first_call(self, name: str) -> None:
        """Create the context if this is the first call on it."""
        if self.context not in self.machine.created:
            self.machine.created.add(self.context)
            self._spend(self.costs.context_ns, name)

    def call(self, name: str, ns: float, *, result: int = 0) -> Steps:
        """Make a call that issues nothing and waits for nothing."""
        yield from self.thread.catch_up()
        start, correlation = self.thread.now, self._enter()
        self._first_call(name)
        self._spend(ns, name)
        self._record(name, start, correlation, result)

    # -- Work

    def launch(
        self,
        stream: Stream,
        kernel: str,
        ns: float,
        *,
        collective: Collective | None = None,
        identity: int = 0,
    ) -> Steps:
        """Launch a kernel, whose duration belongs to ``identity`` or else to this launch."""
        thread, name = self.thread, self.names["launch"]
        yield from thread.catch_up()
        start, correlation = thread.now, self._enter()
        self._first_call(name)
        if kernel not in self.process.modules:
            self.process.modules.add(kernel)
            self._spend(self.costs.load_ns, name, f"load {kernel}")
        yield from self._queue_slot(stream, name)
        self._flush()
        self._spend(self.costs.launch_ns, name)
        self._record(name, start, correlation)
        duration = thread.drawn(ns, self.machine.spread, identity or thread.identity(kernel))
        kind = Kind.COMMUNICATION if collective else Kind.COMPUTE
        work = Work(kind, kernel, stream, duration, correlation, op=thread.op)
        work.collective, work.share = collective, self.share
        self._submit(work)

    def _submit(self, work: Work, gap: int | None = None) -> None:
        thread = self.thread
        base = self.costs.latency_ns  # below 0 where work begins before its call returns
        latency = thread.jittered(abs(base), "latency", 0.1) * (1 if base > 0 else -1)
        work.step = thread.step
        issued = Release(thread.now, thread=thread)
        gpu = self.context.gpu
        if gap is None:
            gpu.submit(work, issued, latency)
        else:
            gpu.submit(work, issued, latency, gap=gap)

    def _flush(self) -> None:
        """Let the profiler write its buffers, where that is due."""
        if self.flush_ns:
            start = self.thread.now
            self.thread.spend(self.thread.jittered(self.flush_ns, "flush"), Cause.PROFILER, "flush")
            row = (start, self.thread.now, "CUPTI: Buffer flush", self.thread)
            self.machine.overhead.append(row)
            self.flush_ns = 0.0

    def _queue_slot(self, stream: Stream, name: str) -> Steps:
        """Wait while the stream holds as many launches that have not begun as it can."""
        if len(stream.heads) < QUEUE_DEPTH:
            return
        oldest, thread = stream.heads[-QUEUE_DEPTH], self.thread
        while oldest.start < 0:
            oldest.started.append(thread.wake)
            yield PARK
        if oldest.start > thread.now:
            thread.until(oldest.start, Cause.API, name, oldest.release)

    def instantiate(self, nodes: list[tuple[str, float, int]]) -> Steps:
        """Instantiate a graph, and load the kernels of its nodes."""
        thread, name = self.thread, NAMES["graph_instantiate"]
        yield from thread.catch_up()
        start, correlation = thread.now, self._enter()
        self._spend(self.costs.call_ns * (10 + len(nodes)), name)
        for kernel in dict.fromkeys(kernel for kernel, _, _ in nodes):
            if kernel not in self.process.modules:
                self.process.modules.add(kernel)
                self._spend(self.costs.load_ns, name, f"load {kernel}")
        self._record(name, start, correlation)

    def graph(self, stream: Stream, graph: int, nodes: list[tuple[str, float, int]]) -> Steps:
        """Launch a graph whose nodes form a chain: kernels, with their durations and identities."""
        thread, name = self.thread, self.names["graph_launch"]
        yield from thread.catch_up()
        start, correlation = thread.now, self._enter()
        self._first_call(name)
        yield from self._queue_slot(stream, name)
        self._spend(self.costs.launch_ns + 50 * len(nodes), name)
        self._record(name, start, correlation)
        for number, (kernel, ns, identity) in enumerate(nodes):
            duration = thread.drawn(ns, self.machine.spread, identity or thread.identity(kernel))
            work = Work(Kind.COMPUTE, kernel, stream, duration, correlation, op=thread.op)
            work.graph, work.node = graph, graph << 32 | number + 1
            self._submit(work, NODE_GAP_NS if number else None)

    def fill(self, stream: Stream, size: int) -> Steps:
        """Fill memory (cudaMemsetAsync)."""
        thread, name = self.thread, self.names["memset_async"]
        yield from thread.catch_up()
        start, correlation = thread.now, self._enter()
        self._first_call(name)
        yield from self._queue_slot(stream, name)
        self._spend(self.costs.launch_ns, name)
        self._record(name, start, correlation)
        duration = thread.jittered(1_000 + size / 600, "[memset]")
        work = Work(Kind.FILL, "[memset]", stream, duration, correlation, op=thread.op)
        work.bytes = size
        self._submit(work)

    def copy(
        self,
        stream: Stream,
        kind: int,
        size: int,
        *,
        pinned: bool = True,
        blocking: bool = False,
        peer: int = -1,
    ) -> Steps:
        """Copy memory; ``peer``: the other device of a peer copy.

        ``blocking``: with cudaMemcpy, which works in the default stream: the legacy one or that of the thread.
        """
        assert not blocking or stream is self.context.default or self.context.per_thread
        thread, costs = self.thread, self.costs
        key = "memcpy_peer" if kind == PEER else "memcpy" if blocking else "memcpy_async"
        name = self.names[key]
        yield from thread.catch_up()
        start, correlation = thread.now, self._enter()
        self._first_call(name)
        pinned = pinned or kind not in {H2D, D2H}
        if blocking and kind == H2D and not pinned and stream.last:
            yield from self._wait(stream_works(stream), name)
        yield from self._queue_slot(stream, name)
        self._spend(costs.copy_call_ns, name)
        device_ns = 1_200 + size / costs.bandwidths[kind, pinned]
        if kind == H2D and not pinned:
            self._spend(device_ns, name, f"staging of {name}")
        label = f"[memcpy {kind}]"
        work = Work(Kind.COPY, label, stream, thread.jittered(device_ns, label), correlation)
        work.engine, work.bytes, work.copy_kind, work.pinned = ENGINES[kind], size, kind, pinned
        work.op, work.peer = thread.op, peer
        self._submit(work)
        waits = (blocking and not (kind == H2D and not pinned) and kind != D2D) or (
            kind == D2H and not pinned
        )
        if waits:
            yield from self._wait([work], name)
        self._record(name, start, correlation)

    def managed_kernel(
        self, stream: Stream, kernel: str, ns: float, *, faulting: int, prefetched: int
    ) -> Steps:
        """Launch a kernel that reads managed memory of the host.

        ``faulting`` bytes come page by page while it runs, which makes it longer; ``prefetched`` bytes are copied
        before it (cudaMemPrefetchAsync). Both are recorded as copies without a call, a stream and a context.
        """
        if prefetched:
            yield from self.call(self.names["prefetch"], self.costs.copy_call_ns)
            copy_ns = prefetched / self.costs.bandwidths[H2D, True]
            copy = Work(Kind.COPY, "[prefetch]", stream, round(copy_ns), 0, engine="h2d")
            copy.bytes, copy.copy_kind = prefetched, MANAGED_H2D
            self._submit(copy)
        yield from self.launch(stream, kernel, ns + faulting / self.costs.fault_bandwidth)
        if faulting:
            self._add_faults(stream.works[-1], faulting)

    def _add_faults(self, kernel: Work, size: int) -> None:
        """Record the pages that come while a kernel runs, once its times are known."""

        def add() -> None:
            length = (kernel.end - kernel.start) // (FAULTS + 1)
            for number in range(FAULTS):
                page = Work(Kind.COPY, "[page fault]", kernel.stream, length, 0, op=kernel.op)
                page.start = kernel.start + number * length + 1_000
                page.end = page.start + length * 3 // 4
                page.bytes, page.copy_kind = size // FAULTS, MANAGED_H2D
                kernel.stream.context.gpu.works.append(page)

        if kernel.end >= 0:
            add()
        else:
            kernel.ended.append(add)

    # -- Synchronization

    def _wait(self, works: list[Work], name: str) -> Steps:
        """Wait inside of a call until work has ended."""
        thread = self.thread
        yield from thread.until_ended(works)
        last = max(works, key=lambda work: work.end, default=None)
        cost = thread.jittered(self.costs.sync_ns, f"return of {name}")
        if last is not None and last.end > thread.now:
            thread.until(last.end + cost, Cause.API, name, Release(last.end, last))
        else:
            thread.spend(cost, Cause.API, name)

    def _synchronize(
        self, key: str, works: list[Work], kind: int, stream: int = NONE, event: int = NONE
    ) -> Steps:
        thread, name = self.thread, self.names[key]
        start, correlation = thread.now, self._enter()
        self._first_call(name)
        self._spend(800, name)
        begun = thread.now
        yield from self._wait(works, name)
        self._record(name, start, correlation)
        self._sync_record(begun, thread.now, stream, event, kind, correlation)

    def _sync_record(
        self, start: int, end: int, stream: int, event: int, kind: int, correlation: int
    ) -> None:
        row = (start, end, self.context, stream, event, kind, correlation)
        self.machine.syncs.append(row)

    def stream_sync(self, stream: Stream) -> Steps:
        """Wait for all work of a stream."""
        yield from self.thread.catch_up()
        works = stream_works(stream)
        yield from self._synchronize("stream_sync", works, STREAM_SYNC, stream=stream.number)

    def device_sync(self) -> Steps:
        """Wait for all work of the context."""
        yield from self.thread.catch_up()
        yield from self._synchronize("device_sync", self.context.pending(), CONTEXT_SYNC)

    def event_record(self, stream: Stream, event: Event) -> Steps:
        """Record an event in a stream."""
        yield from self.call(self.names["event_record"], self.costs.call_ns)
        event.after, event.stream = stream.last, stream
        row = (self.context, stream.number, event.number, self.process.correlation)
        self.machine.events.append(row)

    def stream_wait(self, stream: Stream, event: Event) -> Steps:
        """Let all later work of a stream wait for an event."""
        yield from self.call(self.names["stream_wait"], self.costs.call_ns)
        if event.after is not None:
            stream.awaited.append(event.after)
        now = self.thread.now
        correlation = self.process.correlation
        self._sync_record(
            now - 600, now - 100, stream.number, event.number, STREAM_WAIT, correlation
        )

    def event_sync(self, event: Event) -> Steps:
        """Wait for an event."""
        yield from self.thread.catch_up()
        works = [event.after] if event.after else []
        yield from self._synchronize("event_sync", works, EVENT_SYNC, event=event.number)

    def poll(self, event: Event, pause_ns: int) -> Steps:
        """Ask for an event until it has come (cudaEventQuery), with host code between."""
        thread, name = self.thread, NAMES["event_query"]
        while True:
            yield from thread.catch_up()
            if event.after is not None:
                yield from thread.until_ended([event.after])
            start, correlation = thread.now, self._enter()
            done = event.after is None or event.after.end <= start
            length = thread.jittered(self.costs.call_ns, name)
            release = Release(event.after.end, event.after) if done and event.after else None
            thread.until(start + length, Cause.API, name, release)
            self._record(name, start, correlation, 0 if done else NOT_READY)
            if done:
                self._sync_record(
                    start + 200, thread.now, NONE, event.number, EVENT_SYNC, correlation
                )
                return
            thread.host(pause_ns, "polling", jitter=False)

    # -- Memory

    def malloc(self, *, fails: bool = False) -> Steps:
        """Allocate memory of the device."""
        result = OUT_OF_MEMORY if fails else 0
        yield from self.call(NAMES["malloc"], self.costs.malloc_ns, result=result)

    def free(self) -> Steps:
        """Release memory of the device, which waits for all of its work."""
        yield from self.thread.catch_up()
        start, correlation, name = self.thread.now, self._enter(), NAMES["free"]
        yield from self._wait(self.context.pending(), name)
        self._spend(self.costs.malloc_ns, name)
        self._record(name, start, correlation)


def stream_works(stream: Stream) -> list[Work]:
    """Return what a wait for a stream waits for; for the legacy default stream also all blocking streams."""
    works = [stream.works[-1]] if stream.works else []
    if stream.blocking is Blocking.LEGACY_DEFAULT:
        others = (s for s in stream.context.streams if s.blocking is Blocking.BLOCKING)
        works += [s.works[-1] for s in others if s.works]
    return works
