"""A machine: GPUs and processes, and everything that a profiler would have seen of them."""

from __future__ import annotations

from simulated.calls import Costs
from simulated.device import Blocking, Context, Gpu, Work
from simulated.engine import Engine
from simulated.host import Process, Thread


class Machine:
    """The machine that a program runs on, and the records of the run.

    Records are tuples: ``calls`` (start, end, name, thread, correlation, result), ``ranges`` (start, end, name,
    thread, depth), ``os_calls`` (start, end, name, thread), ``overhead`` (start, end, name, thread), ``syncs``
    (start, end, context, stream, event, kind, correlation), ``events`` (context, stream, event, correlation).
    """

    def __init__(
        self, seed: int, gpus: int = 1, *, costs: Costs | None = None, crowding: bool = False
    ) -> None:
        self.seed, self.costs, self.spread = seed, costs or Costs(), 0.03
        self.annotated = True
        self.engine = Engine()
        self.gpus = [Gpu(self.engine, number, crowding=crowding) for number in range(gpus)]
        self.processes: list[Process] = []
        self.created: set[Context] = set()
        self.calls: list[tuple[int, int, str, Thread, int, int]] = []
        self.ranges: list[tuple[int, int, str, Thread, int]] = []
        self.os_calls: list[tuple[int, int, str, Thread]] = []
        self.overhead: list[tuple[int, int, str, Thread]] = []
        self.syncs: list[tuple[int, int, Context, int, int, int, int]] = []
        self._last_events: dict[Thread, int] = {}
        self.steps: list[tuple[int, int, int, int]] = []  # rank, number, start, end on the host
        self.events: list[tuple[Context, int, int, int]] = []

    def process(self, name: str, *, recorded: bool = True) -> Process:
        """Return a new process. Processes that are not recorded leave no rows."""
        pid = 1_000 + 100 * len(self.processes)
        self.processes.append(Process(self, pid, name, recorded=recorded))
        return self.processes[-1]

    def context(self, process: Process, gpu: int, device: int | None = None) -> Context:
        """Return the context of a process on a GPU, which it calls ``device`` (by default by its number)."""
        if gpu not in process.contexts:
            number = len(process.contexts) + 1
            device = gpu if device is None else device
            where = self.gpus[gpu]
            owners = {
                c.process for p in self.processes for c in p.contexts.values() if c.gpu is where
            }
            process.contexts[gpu] = Context(where, process, number, device)
            where.shared = bool(owners - {process})
        return process.contexts[gpu]

    def run(self) -> None:
        """Run all threads to their ends."""
        self.engine.run()
        unfinished = [work for gpu in self.gpus for work in gpu.works if work.end < 0]
        if unfinished:
            raise RuntimeError(
                f"{len(unfinished)} pieces of work never ended: {unfinished[0].name}"
            )

    def last_events(self) -> dict[Thread, int]:
        """Return when the last recorded event of each thread ended."""
        if not self._last_events:
            for end, thread in (
                *((row[1], row[3]) for row in self.calls),
                *((row[1], row[3]) for row in self.ranges),
                *((row[1], row[3]) for row in self.os_calls),
            ):
                self._last_events[thread] = max(end, self._last_events.get(thread, 0))
        return self._last_events

    def works(self) -> list[Work]:
        """Return all work in order of begin."""
        return sorted((w for gpu in self.gpus for w in gpu.works), key=lambda work: work.start)


__all__ = ["Blocking", "Machine"]
