"""A rank of a program: its main thread, its streams, and the parts that all programs share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simulated import fragments
from simulated.calls import D2H, H2D, Cuda, Event
from simulated.chance import mixed, number_of
from simulated.device import Blocking, Collective, Stream
from simulated.engine import US
from simulated.host import Flag, Lock, Process, Steps, Thread
from simulated.loading import BatchLoader
from simulated.machine import Machine
from simulated.plan import Op, Plan


class World:
    """What the ranks of a program share: the collectives."""

    def __init__(self, machine: Machine, plan: Plan) -> None:
        self.machine, self.plan = machine, plan
        self._barriers: dict[int, list[Flag]] = {}
        self._collectives: dict[tuple[int, int], Collective] = {}

    def barrier(self, step: int) -> list[Flag]:
        """Return the flags of a barrier of the hosts, one per rank."""
        return self._barriers.setdefault(step, [Flag() for _ in range(self.plan.ranks)])

    def collective(self, thread: Thread, step: int, number: int, ns: int) -> Collective:
        """Return the collective of a step; whoever asks first makes it."""
        key = (step, number)
        if key not in self._collectives:
            transfer = thread.drawn(
                ns, 0.04, mixed(self.machine.seed, number_of("collective"), step, number)
            )
            self._collectives[key] = Collective(self.plan.ranks, transfer)
        return self._collectives[key]


class Rank:
    """One rank: a main thread that drives one GPU."""

    def __init__(self, world: World, rank: int, process: Process) -> None:
        self.world, self.rank, self.process = world, rank, process
        self.machine, self.plan = world.machine, world.plan
        self.thread = process.thread("main" if not self.plan.one_process else f"rank {rank}")
        device = 0 if self.plan.visible_devices and not self.plan.one_process else rank
        self.context = self.machine.context(process, rank, device)
        self.context.per_thread = self.plan.stream == "per_thread"
        self.cuda = Cuda(self.thread, self.context)
        self.stream = self._stream(self.plan.stream)
        self.side = self.context.stream(Blocking.NON_BLOCKING)
        self.loader: BatchLoader | None = None
        self.pair: list[Stream] = []  # of the fragment `default_stream`
        self.inputs = self.context.stream(Blocking.NON_BLOCKING)
        self.mutex = Lock()
        self.value: Event | None = None  # of the fragment `late_value`
        self.calls = 0  # of ops, for their sequence numbers
        slow = self.plan.extra.get("late_rank_gpu", {})
        self.slowness = slow.get("factor", 1.0) if slow.get("rank") == rank else 1.0
        self._events = self._fetched = 0

    def _stream(self, kind: str) -> Stream:
        if kind == "default":
            return self.context.default
        if kind == "per_thread":
            return self.context.stream(Blocking.BLOCKING)
        return self.context.stream(Blocking[kind.upper()])

    def event(self) -> Event:
        """Return a new event."""
        self._events += 1
        return Event(self._events)

    def run(self) -> None:
        """Let the rank begin."""
        self.thread.run(self.main())

    def main(self) -> Steps:
        """Run the program of this rank."""
        yield from self.start_up()
        for number in range(1, self.plan.iterations + 1):
            self.thread.begin_step(number)
            start = self.thread.now
            with self.step_range(number):
                if number == 1:
                    yield from self.hook("first step")
                yield from self.iteration(number)
            self.machine.steps.append((self.rank, number, start, self.thread.now))
            self.thread.host(20 * US, "loop")
            yield from self.hook("between steps", number)
            yield from self.between(number)
        self.thread.begin_step(self.plan.iterations + 1)
        yield from self.end()

    def iteration(self, number: int) -> Steps:
        """Run an iteration."""
        raise NotImplementedError

    def between(self, number: int) -> Steps:
        """Run what follows an iteration and is none."""
        yield from ()

    @contextmanager
    def step_range(self, number: int) -> Iterator[None]:
        """Push the range that names the step, where the program has such ranges."""
        if not self.plan.step_ranges:
            yield
            return
        with self.thread.range(self.plan.step_ranges.format(number)):
            yield

    def hook(self, name: str, *details: int) -> Steps:
        """Run what troubles add at a place of the program."""
        for trouble, numbers in self.plan.extra.items():
            fragment = fragments.AT.get((name, trouble))
            if fragment is not None:
                with self.thread.scope(trouble):
                    yield from fragment(self, numbers, *details)

    # -- Parts

    def start_up(self) -> Steps:
        """Import, create the context, load the weights."""
        thread, plan = self.thread, self.plan
        yield from self.hook("begin")
        thread.os_call("open64", 30 * US)
        thread.host(plan.start_ns, "import")
        thread.os_call("read", plan.read_ns)
        for _ in range(3):
            yield from self.cuda.malloc()
        pinned = plan.weights_pinned
        yield from self.cuda.copy(self.stream, H2D, plan.weights_bytes, pinned=pinned)
        yield from self.cuda.fill(self.stream, 1 << 20)
        if plan.loader:
            self.loader = BatchLoader(plan.loader, plan.iterations, thread, plan.pytorch)
        yield from self.hook("threads")

    def copy_input(self) -> Steps:
        """Copy a batch to the device."""
        plan = self.plan
        with self.thread.range("aten::to" if plan.pytorch else "upload"):
            self.thread.host(8 * US, "to")
            synchronous = plan.input_blocking and plan.plain_copies
            stream = self.inputs if plan.input_beside else self.stream
            yield from self.cuda.copy(
                stream,
                H2D,
                plan.input_bytes,
                pinned=plan.input_pinned,
                blocking=synchronous,
            )
            if plan.input_blocking and not synchronous:
                yield from self.cuda.stream_sync(self.stream)
            if plan.input_beside:
                yield from self.order(self.inputs, self.stream)

    def order(self, first: Stream, then: Stream, cuda: Cuda | None = None) -> Steps:
        """Let the later work of a stream wait for what another one holds now."""
        cuda, event = cuda or self.cuda, self.event()
        yield from cuda.event_record(first, event)
        yield from cuda.stream_wait(then, event)

    def ops(
        self, ops: list[Op], cuda: Cuda, place: str, *, first: int = 0, hooks: bool = True
    ) -> Steps:
        """Run ops: the host code of each, then its launches; ``first`` is the index of the first op."""
        thread = cuda.thread
        for index, op in enumerate(ops, first):
            with thread.range(op.name, self.detail()):
                thread.host(op.host_ns)
                for number, (kernel, ns) in enumerate(op.kernels):
                    identity = self.kernel_identity(place, thread.step, index, number)
                    ns_here = ns * self.slowness
                    yield from cuda.launch(self.stream, kernel, ns_here, identity=identity)
            if hooks:
                yield from self.hook(f"after {place} op", index)

    def replay(self) -> Steps:
        """Launch all ops of an iteration as one graph."""
        plan, step = self.plan, self.thread.step
        passes = (
            ("forward", plan.forward),
            ("backward", plan.backward),
            ("optimizer", plan.optimizer),
        )
        nodes = [
            (kernel, ns * self.slowness, self.kernel_identity(place, step, index, number))
            for place, ops in passes
            for index, op in enumerate(ops)
            for number, (kernel, ns) in enumerate(op.kernels)
        ]
        with self.thread.range("CUDAGraph.replay" if plan.pytorch else "replay"):
            self.thread.host(20 * US, "replay")
            if step == 1:
                yield from self.cuda.instantiate(nodes)
            yield from self.cuda.graph(self.stream, 1, nodes)

    def kernel_identity(self, place: str, step: int, op: int, number: int) -> int:
        """Return the identity of a kernel, however it is launched."""
        return mixed(self.machine.seed, number_of(place), self.rank, step, op, number)

    def detail(self) -> str:
        """Return what the text of a range says of the call."""
        self.calls += 1
        return (
            f", seq = {self.calls}, op_id = {self.calls + 7}" if self.plan.sequence_numbers else ""
        )

    def fetch(self, op: str) -> Steps:
        """Fetch a value from the device, as `.item()` does."""
        self._fetched += 1
        if self._fetched % self.plan.keep:
            return
        with self.thread.range(op):
            self.thread.host(5 * US, "item")
            plain = self.plan.plain_copies
            yield from self.cuda.copy(self.stream, D2H, 4, pinned=False, blocking=plain)
            if not plain:
                yield from self.cuda.stream_sync(self.stream)

    def log(self, number: int) -> Steps:
        """Print a value now and then."""
        if self.plan.log_every and number % self.plan.log_every == 0:
            yield from self.fetch("aten::item" if self.plan.pytorch else "residual")
            self.thread.os_call("write", 20 * US)

    def end(self) -> Steps:
        """Wait for the GPU, and end."""
        yield from self.cuda.device_sync()
        yield from self.hook("end")
        self.thread.host(self.plan.end_ns, "shutdown")
        yield from self.cuda.free()
