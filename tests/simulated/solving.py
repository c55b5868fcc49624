"""A solver with iterations, on one GPU or on several that exchange their borders, and a server of requests."""

from __future__ import annotations

from simulated.calls import D2H, PEER, Cuda
from simulated.device import Blocking, Stream
from simulated.engine import US
from simulated.host import Process, Steps
from simulated.ranks import Rank, World

HALO_BYTES = 256 << 10


class SolverRank(Rank):
    """A solver on one GPU."""

    def iteration(self, number: int) -> Steps:
        yield from self.hook("before step", number)
        if self.plan.graph:
            yield from self.replay()
        else:
            yield from self.ops(self.plan.forward, self.cuda, "forward")
        yield from self.hook("after forward", number)
        yield from self.hook("in step", number)
        yield from self.log(number)


class ServingRank(Rank):
    """A server that answers one request after the other; requests wait for it."""

    def iteration(self, number: int) -> Steps:
        thread = self.thread
        thread.os_call("recvfrom", 15 * US)
        yield from self.hook("before step", number)
        with thread.range("parse request"):
            thread.host(60 * US, "parse")
        yield from self.copy_input()
        with thread.range("forward"):
            if self.plan.graph:
                yield from self.replay()
            else:
                yield from self.ops(self.plan.forward, self.cuda, "forward")
        yield from self.hook("after forward", number)
        yield from self.hook("in step", number)
        with thread.range("answer"):
            yield from self.cuda.copy(self.stream, D2H, 64 << 10)
            yield from self.cuda.stream_sync(self.stream)
            thread.host(30 * US, "answer")
            thread.os_call("sendto", 20 * US)


class SeveralGpus(Rank):
    """A thread that drives several GPUs in turn."""

    def __init__(self, world: World, rank: int, process: Process) -> None:
        super().__init__(world, rank, process)
        contexts = [self.machine.context(process, gpu) for gpu in range(self.plan.stages)]
        self.cudas = [self.cuda, *(Cuda(self.thread, context) for context in contexts[1:])]
        later = [context.stream(Blocking.NON_BLOCKING) for context in contexts[1:]]
        self.streams: list[Stream] = [self.stream, *later]

    def select(self, gpu: int) -> Steps:
        """Make a GPU the present one."""
        yield from self.cudas[gpu].call(self.cuda.names["set_device"], 0.7 * US)

    def send(self, source: int, target: int, size: int) -> Steps:
        """Copy to another GPU, whose later work waits for it."""
        event = self.event()
        stream = self.streams[source]
        yield from self.cudas[source].copy(stream, PEER, size, peer=target)
        yield from self.cudas[source].event_record(stream, event)
        yield from self.select(target)
        yield from self.cudas[target].stream_wait(self.streams[target], event)

    def kernels(self, gpu: int, place: str, first: int, last: int, part: float) -> Steps:
        """Launch the kernels of some ops on a GPU, a part of each."""
        ops = self.plan.forward if place == "forward" else self.plan.backward
        cuda, thread = self.cudas[gpu], self.thread
        for index in range(first, last):
            op = ops[index]
            with thread.range(op.name, self.detail()):
                thread.host(op.host_ns)
                for kernel, ns in op.kernels:
                    yield from cuda.launch(self.streams[gpu], kernel, ns * part)

    def end(self) -> Steps:
        for gpu in range(1, self.plan.stages):
            yield from self.select(gpu)
            yield from self.cudas[gpu].device_sync()
        yield from self.select(0)
        yield from super().end()


class MultiRank(SeveralGpus):
    """A solver on several GPUs: each computes its share, then they exchange borders."""

    def iteration(self, number: int) -> Steps:
        yield from self.hook("before step", number)
        for gpu, share in enumerate(self.plan.shares):
            with self.thread.scope(f"gpu {gpu}"):
                yield from self.select(gpu)
                yield from self.kernels(gpu, "forward", 0, len(self.plan.forward), share)
        for gpu in range(self.plan.stages):
            with self.thread.scope(f"border {gpu}"):
                yield from self.select(gpu)
                yield from self.send(gpu, (gpu + 1) % self.plan.stages, HALO_BYTES)
        yield from self.select(0)
        yield from self.hook("after forward", number)
        yield from self.hook("in step", number)
        yield from self.log(number)


class PipelineRank(SeveralGpus):
    """The training of a model whose layers lie on several GPUs, in micro-batches (as GPipe does it)."""

    def iteration(self, number: int) -> Steps:
        yield from self.hook("before step", number)
        stages, batches = self.plan.stages, self.plan.micro_batches
        count = len(self.plan.forward)
        edges = [count * stage // stages for stage in range(stages + 1)]
        for batch in range(batches):
            for stage in range(stages):
                with self.thread.scope(f"forward {batch} {stage}"):
                    yield from self.select(stage)
                    first, last = edges[stage], edges[stage + 1]
                    yield from self.kernels(stage, "forward", first, last, 1 / batches)
                    if stage + 1 < stages:
                        yield from self.send(stage, stage + 1, (8 << 20) // batches)
        for batch in range(batches):
            for stage in reversed(range(stages)):
                with self.thread.scope(f"backward {batch} {stage}"):
                    yield from self.select(stage)
                    first, last = count - edges[stage + 1], count - edges[stage]
                    yield from self.kernels(stage, "backward", first, last, 1 / batches)
                    if stage:
                        yield from self.send(stage, stage - 1, (8 << 20) // batches)
        yield from self.select(0)
        yield from self.hook("in step", number)
        yield from self.log(number)
