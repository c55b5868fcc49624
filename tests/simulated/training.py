"""The training of a model: batches, forward pass, backward pass, gradients over ranks, optimizer."""

from __future__ import annotations

import itertools

from simulated.calls import Cuda
from simulated.engine import US
from simulated.host import Flag, Process, Steps
from simulated.plan import Op
from simulated.ranks import Rank, World

VALIDATION_BATCHES = 3
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


class TrainingRank(Rank):
    """A rank of a training."""

    def __init__(self, world: World, rank: int, process: Process) -> None:
        super().__init__(world, rank, process)
        steps = self.plan.iterations + 1
        self._go, self._done = [Flag() for _ in range(steps)], [Flag() for _ in range(steps)]

    def start_up(self) -> Steps:
        yield from super().start_up()
        if self.plan.autograd_thread:
            autograd = self.process.thread("pt_autograd_0", creator=self.thread)
            autograd.run(self._autograd(Cuda(autograd, self.context)))

    def iteration(self, number: int) -> Steps:
        thread = self.thread
        yield from self.hook("before step", number)
        if self.loader:
            yield from self.loader.next(thread, number - 1)
        yield from self.copy_input()
        yield from self.hook("after input", number)
        if self.plan.graph:
            yield from self.replay()
            yield from self.hook("after forward", number)
            yield from self.hook("in step", number)
            yield from self.log(number)
            return
        with thread.range("forward"):
            yield from self.ops(self.plan.forward, self.cuda, "forward")
        yield from self.hook("after forward", number)
        with thread.range("backward"):
            yield from self._backward_pass(number)
        yield from self.hook("before optimizer", number)
        with thread.range("Optimizer.step#Adam.step" if self.plan.pytorch else "optimizer"):
            yield from self.ops(self.plan.optimizer, self.cuda, "optimizer", hooks=False)
        yield from self.hook("in step", number)
        yield from self.log(number)

    def between(self, number: int) -> Steps:
        """Validate now and then: some batches, forward alone."""
        if not self.plan.validate_every or number % self.plan.validate_every:
            return
        self.thread.begin_step(-number)  # which is no iteration
        with self.thread.range("validation"):
            for batch in range(VALIDATION_BATCHES):
                with self.thread.scope(f"batch {batch}"):
                    yield from self.copy_input()
                    yield from self.ops(
                        self.plan.forward, self.cuda, f"validation {batch}", hooks=False
                    )
            yield from self.fetch("aten::item" if self.plan.pytorch else "accuracy")

    # -- The backward pass

    def _backward_pass(self, number: int) -> Steps:
        if not self.plan.autograd_thread:
            yield from self._backward(number, self.cuda)
            return
        self.thread.host(10 * US, "call autograd")
        self._go[number].set(self.thread)
        yield from self.thread.wait_flag(self._done[number], "pthread_cond_wait")

    def _autograd(self, cuda: Cuda) -> Steps:
        for number in range(1, self.plan.iterations + 1):
            yield from cuda.thread.wait_flag(self._go[number], "pthread_cond_wait")
            cuda.thread.begin_step(number)
            yield from self._backward(number, cuda)
            self._done[number].set(cuda.thread)

    def _backward(self, number: int, cuda: Cuda) -> Steps:
        plan = self.plan
        buckets = plan.buckets if plan.bucket_ns and plan.ranks > 1 else 0
        if not buckets:
            yield from self.ops(plan.backward, cuda, "backward", hooks=False)
            return
        first = 0
        for bucket, ops in enumerate(split(plan.backward, buckets)):
            yield from self.ops(ops, cuda, "backward", first=first, hooks=False)
            first += len(ops)
            if plan.overlap:
                yield from self.reduce(number, bucket, cuda)
        if plan.overlap:
            yield from self.order(self.side, self.stream, cuda)
        else:
            for bucket in range(buckets):
                yield from self._all_reduce(number, bucket, cuda)

    def reduce(self, number: int, bucket: int, cuda: Cuda) -> Steps:
        """Reduce a bucket of gradients in the side stream, once they are there."""
        yield from self.order(self.stream, self.side, cuda)
        yield from self._all_reduce(number, bucket, cuda)

    def _all_reduce(self, number: int, bucket: int, cuda: Cuda) -> Steps:
        ns = self.plan.bucket_ns // self.plan.buckets
        collective = self.world.collective(cuda.thread, number, bucket, ns)
        stream = self.side if self.plan.overlap else self.stream
        with cuda.thread.range("nccl:all_reduce"):
            cuda.thread.host(10 * US, "nccl")
            yield from cuda.launch(stream, ALL_REDUCE, ns, collective=collective)


def split(ops: list[Op], parts: int) -> list[list[Op]]:
    """Return consecutive parts of about equal length."""
    edges = [len(ops) * part // parts for part in range(parts + 1)]
    return [ops[first:last] for first, last in itertools.pairwise(edges)]
