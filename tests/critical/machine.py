"""A machine that runs programs of known costs, and records what a profiler would see of them.

Every cost has a number and, of the first run, an op and a kind. The machine can run a program again
with some costs at 0: that is the program without an op.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from critical.records import Records, thread

ENGINE = "autograd::engine::evaluate_function: {}Backward0"
MAIN = 1
ENGINE_THREAD = 2


@dataclass
class Activity:
    start: int
    end: int


@dataclass
class Rank:
    """A process: its clock, its streams, and the events that it recorded."""

    number: int
    now: int
    on: int = MAIN
    streams: dict[int, list[Activity]] = field(default_factory=dict)
    events: list[Activity | None] = field(default_factory=list)
    awaited: dict[int, list[Activity]] = field(default_factory=dict)

    @property
    def thread(self) -> int:
        return thread(self.number, self.on)


class Machine:
    """Runs programs: a list of rounds, in each of which every rank has a list of steps.

    ``gone`` are the numbers of the costs that are 0.
    """

    def __init__(self, gone: frozenset[int] = frozenset()) -> None:
        self.records, self.gone = Records(), gone
        self.labels: list[tuple[str, str]] = []
        self.times: list[int] = []

    def cost(self, ns: int, op: str, kind: str) -> int:
        self.labels.append((op, kind))
        return 0 if len(self.labels) - 1 in self.gone else ns

    @property
    def span(self) -> int:
        return max(self.times) - min(self.times)

    def run(self, program: list[tuple[list, list]], starts: tuple[int, int] = (0, 0)) -> Machine:
        ranks = [Rank(n, start) for n, start in enumerate(starts) if any(r[n] for r in program)]
        self.times += [rank.now for rank in ranks]
        for steps in program:
            collective = [
                begun
                for rank in ranks
                for step in steps[rank.number]
                if (begun := self.step(rank, step)) is not None
            ]
            if collective:
                met = max(activity.start for activity, *_ in collective)
                for activity, rank, call, op, ns in collective:
                    activity.end = met + self.cost(ns, op, "collective")
                    self.times.append(activity.end)
                    self.records.activity(
                        call, activity.start, activity.end, 20, of=rank.number,
                        name="ncclDevKernel_AllReduce_Sum_f32_RING_LL",
                    )  # fmt: skip
        return self

    def step(self, rank: Rank, step: tuple):
        what, op, *costs = step
        start = rank.now
        result = getattr(self, what)(rank, op, *costs)
        self.records.range(rank.thread, start, rank.now, op)
        self.times.append(rank.now)
        return result

    # -- steps

    def code(self, rank: Rank, op: str, ns: int) -> None:
        rank.now += self.cost(ns, op, "host code")

    def called(self, rank: Rank, op: str, host: int, ns: int, name: str) -> int:
        """Run code and then an API call; return its number."""
        self.code(rank, op, host)
        start = rank.now
        rank.now += self.cost(ns, op, "API call")
        return self.records.call(rank.thread, start, rank.now, name)

    def begin(self, rank: Rank, op: str, stream: int, issued: int, gap: int, also=()) -> Activity:
        """Begin an activity after all that it waits for."""
        before = [*rank.streams.setdefault(stream, [])[-1:], *rank.awaited.pop(stream, []), *also]
        latest = max((activity.end for activity in before), default=-1)
        kind = "launch latency" if issued > latest else "device gap"
        start = max(issued, latest) + self.cost(gap, op, kind)
        activity = Activity(start, start)
        rank.streams[stream].append(activity)
        return activity

    def launch(self, rank: Rank, op: str, *costs: int) -> None:
        """Launch a kernel: code, call, stream, gap, kernel."""
        host, ns, stream, gap, work = costs
        call = self.called(rank, op, host, ns, "cudaLaunchKernel")
        activity = self.begin(rank, op, stream, rank.now, gap)
        activity.end += self.cost(work, op, "kernel")
        self.times.append(activity.end)
        self.records.activity(call, activity.start, activity.end, stream, of=rank.number)

    def graph(self, rank: Rank, op: str, host: int, ns: int, works: list[tuple[int, int, int]]):
        call = self.called(rank, op, host, ns, "cudaGraphLaunch")
        issued, before = rank.now, []
        for stream, gap, work in works:
            activity = self.begin(rank, op, stream, issued, gap, before)
            activity.end += self.cost(work, op, "kernel")
            before = [activity]
            self.times.append(activity.end)
            self.records.activity(call, activity.start, activity.end, stream, of=rank.number)

    def collective(self, rank: Rank, op: str, host: int, ns: int, gap: int, work: int):
        call = self.called(rank, op, host, ns, "cudaLaunchKernel")
        return self.begin(rank, op, 20, rank.now, gap), rank, call, op, work

    def wait_for(self, rank: Rank, op: str, activity: Activity | None, tail: int, name: str) -> int:
        start = rank.now
        done = max(start, activity.end if activity else start)
        rank.now = done + self.cost(tail, op, "synchronization")
        return self.records.call(rank.thread, start, rank.now, name)

    def copy(self, rank: Rank, op: str, stream: int, gap: int, work: int, tail: int) -> None:
        """Copy to the host; the call returns when the copy is done."""
        start = rank.now
        activity = self.begin(rank, op, stream, start, gap)
        activity.end += self.cost(work, op, "memcpy")
        rank.now = activity.end + self.cost(tail, op, "synchronization")
        call = self.records.call(rank.thread, start, rank.now, "cudaMemcpy")
        self.records.activity(
            call, activity.start, activity.end, stream, of=rank.number, kind="memcpy", copy_kind=2
        )

    def sync(self, rank: Rank, op: str, stream: int, tail: int) -> None:
        """Wait for a stream."""
        last = (rank.streams.get(stream) or [None])[-1]
        call = self.wait_for(rank, op, last, tail, "cudaStreamSynchronize")
        self.records.wait(call, "stream", stream=stream, of=rank.number)

    def sync_all(self, rank: Rank, op: str, tail: int) -> None:
        """Wait for the device."""
        work = [activity for stream in rank.streams.values() for activity in stream]
        last = max(work, key=lambda activity: activity.end, default=None)
        call = self.wait_for(rank, op, last, tail, "cudaDeviceSynchronize")
        self.records.wait(call, "event", of=rank.number)  # old versions of nsys write this kind

    def record(self, rank: Rank, op: str, ns: int, stream: int) -> None:
        """Record the next event on a stream."""
        rank.events.append((rank.streams.get(stream) or [None])[-1])
        call = self.called(rank, op, 0, ns, "cudaEventRecord")
        event = len(rank.events)
        self.records.wait(call, "event_record", stream=stream, event=event, of=rank.number)

    def wait_event(self, rank: Rank, op: str, ns: int, stream: int) -> None:
        """Let a stream wait for the event that was recorded last."""
        if not rank.events:
            return self.code(rank, op, ns)
        if last := rank.events[-1]:
            rank.awaited.setdefault(stream, []).append(last)
        call = self.called(rank, op, 0, ns, "cudaStreamWaitEvent")
        event = len(rank.events)
        self.records.wait(call, "stream_wait", stream=stream, event=event, of=rank.number)
        return None

    def sync_event(self, rank: Rank, op: str, tail: int) -> None:
        """Wait on the host for the event that was recorded last."""
        if not rank.events:
            return self.code(rank, op, tail)
        call = self.wait_for(rank, op, rank.events[-1], tail, "cudaEventSynchronize")
        self.records.wait(call, "event", event=len(rank.events), of=rank.number)
        return None

    def backward(self, rank: Rank, op: str, before: int, steps: list[tuple], after: int) -> None:
        """Let the engine's thread run steps while this thread waits."""
        self.code(rank, op, before)
        rank.on = ENGINE_THREAD
        for n, (name, *costs, rest) in enumerate(steps):
            if n:
                rank.now += self.cost(rest, "", "host code")
            self.step(rank, ("launch", ENGINE.format(name), *costs))
        rank.on = MAIN
        self.code(rank, op, after)
