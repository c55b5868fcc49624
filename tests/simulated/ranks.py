"""A rank of a program: its main thread, its streams, and the parts that all programs share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simulated import fragments
from simulated.calls import D2H, H2D, NAMES, Cuda, Event
from simulated.chance import mixed, number_of
from simulated.device import Blocking, Collective, Stream
from simulated.engine import MS, US
from simulated.host import Process, Steps, Thread
from simulated.loading import BatchLoader
from simulated.machine import Machine
from simulated.plan import Op, Plan


class World:
    """What the ranks of a program share: the collectives."""

    def __init__(self, machine: Machine, plan: Plan) -> None:
        self.machine, self.plan = machine, plan
        self._collectives: dict[tuple[int, int], Collective] = {}

    def collective(self, thread: Thread, step: int, number: int, ns: int) -> Collective:
        """Return the collective of a step; whoever asks first makes it."""
        key = (step, number)
        if key not in self._collectives:
            transfer = thread.drawn(ns, 0.04, mixed(number_of("collective"), step, number))
            self._collectives[key] = Collective(self.plan.ranks, transfer)
        return self._collectives[key]


class Rank:
    """One rank: a main thread that drives one GPU."""

    def __init__(self, world: World, rank: int, process: Process) -> None:
        self.world, self.rank, self.process = world, rank, process
        self.machine, self.plan = world.machine, world.plan
        self.thread = process.thread("main" if not self.plan.one_process else f"rank {rank}")
        self.context = self.machine.context(process, rank)
        self.cuda = Cuda(self.thread, self.context)
        self.stream = self._stream(self.plan.stream)
        self.side = self.context.stream(Blocking.NON_BLOCKING)
        self.loader: BatchLoader | None = None
        self.calls = 0  # of ops, for their sequence numbers
        self._events = 0

    def _stream(self, kind: str) -> Stream:
        if kind == "default":
            return self.context.default
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
            with self.step_range(number):
                yield from self.iteration(number)
            self.thread.host(20 * US, "loop")
        self.thread.begin_step(self.plan.iterations + 1)
        yield from self.end()

    def iteration(self, number: int) -> Steps:
        """Run an iteration."""
        raise NotImplementedError

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
        yield from self.cuda.copy(self.stream, H2D, plan.weights_bytes, pinned=False)
        yield from self.cuda.fill(self.stream, 1 << 20)
        if plan.loader:
            self.loader = BatchLoader(plan.loader, plan.iterations, thread, plan.pytorch)
        yield from self.hook("threads")

    def copy_input(self) -> Steps:
        """Copy a batch to the device."""
        plan = self.plan
        with self.thread.range("aten::to" if plan.pytorch else "upload"):
            self.thread.host(8 * US, "to")
            synchronous = plan.input_blocking and not plan.pytorch
            yield from self.cuda.copy(
                self.stream,
                H2D,
                plan.input_bytes,
                pinned=plan.input_pinned,
                blocking=synchronous,
            )
            if plan.input_blocking and plan.pytorch:
                yield from self.cuda.stream_sync(self.stream)

    def ops(self, ops: list[Op], cuda: Cuda, place: str) -> Steps:
        """Run ops: the host code of each, then its launches."""
        thread = cuda.thread
        for index, op in enumerate(ops):
            with thread.range(op.name, self.detail()):
                thread.host(op.host_ns)
                for kernel, ns in op.kernels:
                    yield from cuda.launch(self.stream, kernel, ns)
            if place:
                yield from self.hook(f"after {place} op", index)

    def detail(self) -> str:
        """Return what the text of a range says of the call."""
        self.calls += 1
        return (
            f", seq = {self.calls}, op_id = {self.calls + 7}" if self.plan.sequence_numbers else ""
        )

    def fetch(self, op: str) -> Steps:
        """Fetch a value from the device, as `.item()` does."""
        with self.thread.range(op):
            self.thread.host(5 * US, "item")
            yield from self.cuda.copy(self.stream, D2H, 4, pinned=False)
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


__all__ = ["MS", "NAMES", "Rank", "World"]
