"""Loading of batches: workers that fill a bounded queue, or the main thread itself."""

from __future__ import annotations

from simulated.chance import mixed, number_of
from simulated.engine import US
from simulated.host import Cause, Flag, Steps, Thread
from simulated.plan import Loader

NEXT = {
    True: "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    False: "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
}


class BatchLoader:
    """Gives batches in order; at most ``workers × prefetch`` are loaded ahead of the consumer."""

    def __init__(self, loader: Loader, batches: int, creator: Thread, pytorch: bool) -> None:
        self.loader = loader
        self.ready = [Flag() for _ in range(batches)]
        self.taken = [Flag() for _ in range(batches)]
        self.op = NEXT[loader.workers > 0] if pytorch else "load batch"
        for worker in range(loader.workers):
            thread = self._worker_thread(worker, creator)
            thread.run(self._work(thread, worker))

    def _worker_thread(self, worker: int, creator: Thread) -> Thread:
        if not self.loader.processes:
            return creator.process.thread(f"loader {worker}", creator=creator)
        name = f"{creator.process.name} loader {worker}"
        process = creator.machine.process(name, recorded=self.loader.recorded)
        return process.thread("main", creator=creator)

    def _work(self, thread: Thread, worker: int) -> Steps:
        ahead = self.loader.workers * self.loader.prefetch
        thread.loading = True
        for batch in range(worker, len(self.ready), self.loader.workers):
            if batch >= ahead:
                yield from thread.wait_flag(self.taken[batch - ahead], "sem_wait")
            self._load(thread, batch)
            self.ready[batch].set(thread)
            yield None

    def _load(self, thread: Thread, batch: int) -> None:
        """Read and decode a batch; what it takes belongs to the batch, whoever loads it."""
        every = self.loader.spike_every
        factor = self.loader.spike if every and batch % every == every - 1 else 1.0
        rank = thread.process.rank
        identity = mixed(thread.machine.seed, number_of("batch"), rank, batch)
        total = thread.drawn(self.loader.load_ns * factor, 0.05, identity)
        thread.begin_step(batch)
        with thread.range("decode"):
            thread.os_call("read", total * 0.1)
            thread.spend(round(total * 0.9), Cause.LOADING, "decode")

    def next(self, thread: Thread, batch: int) -> Steps:
        """Fetch a batch in the consumer."""
        with thread.range(self.op):
            thread.loading = True
            if self.loader.workers:
                wait = "poll" if self.loader.processes else "pthread_cond_timedwait"
                yield from thread.wait_flag(self.ready[batch], wait, cause=Cause.LOADING)
                thread.host(40 * US, "unpickle")
            else:
                self._load_here(thread, batch)
            thread.loading = False
        self.taken[batch].set(thread)

    def _load_here(self, thread: Thread, batch: int) -> None:
        rank = thread.process.rank
        identity = mixed(thread.machine.seed, number_of("batch"), rank, batch)
        total = thread.drawn(self.loader.load_ns, 0.05, identity)
        thread.os_call("read", total * 0.1)
        thread.spend(round(total * 0.9), Cause.LOADING, thread.op)
