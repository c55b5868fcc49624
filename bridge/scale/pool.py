"""Workers as processes of our own: one that dies is replaced, and what it was at is tried again.

Not of `concurrent.futures`, which does not say whose task died with a process. Started afresh (spawn): a fork of a process with
threads may never wake up.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import TYPE_CHECKING

from bridge.scale.task import Broken, Task, done

if TYPE_CHECKING:
    from bridge.scale.aggregates import Aggregates

NAME = "bridge worker"
TRIES = 3
PATIENCE_S = 5.0  # for a worker to end


class Worker:
    """A process that does one task after the other, until it is told to end or its parent is gone."""

    def __init__(self, context: SpawnContext) -> None:
        self.connection, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=serve, args=(theirs,), name=NAME, daemon=True
        )
        with _uninterrupted():
            self.process.start()
        theirs.close()  # or its end would never be seen
        self.task: Task | None = None

    def start(self, task: Task) -> None:
        """Give it something to do; one that is dead already is found out when it is waited for."""
        self.task = task
        with suppress(OSError):
            self.connection.send(task)

    def answer(self) -> Aggregates | Broken | None:
        """Return what it made of its task, or None if it died."""
        try:
            found: Aggregates | Broken | Exception = self.connection.recv()
        except (EOFError, OSError):
            return None
        if isinstance(found, Exception):
            raise found
        self.task = None
        return found

    def end(self) -> str:
        """End it, whatever it is at, and return how it ended."""
        self.connection.close()
        self.process.terminate()
        self.process.join(PATIENCE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def in_processes(tasks: Iterable[Task], workers: int) -> Iterator[Aggregates | Broken]:
    """Yield what comes of each task, as soon as it is there; leaves no process behind, however it ends."""
    context = get_context("spawn")
    waiting, died = deque(tasks), dict[int, int]()
    busy: dict[object, Worker] = {}  # by their ends of the pipe
    idle = [Worker(context) for _ in range(min(workers, len(waiting)))]
    try:
        while waiting or busy:
            while waiting and idle:
                worker = idle.pop()
                worker.start(waiting.popleft())
                busy[worker.connection] = worker
            for ready in connection.wait([worker.connection for worker in busy.values()]):
                worker = busy[ready]
                task, found = worker.task, worker.answer()
                del busy[ready]
                if found is not None:
                    idle.append(worker)
                    yield found
                    continue
                how = worker.end()
                assert task is not None
                died[task.place] = died.get(task.place, 0) + 1
                if died[task.place] < TRIES:
                    waiting.append(task)
                    idle.append(Worker(context))
                else:
                    yield Broken(task.place, task.path, lost(task, how))
                    idle += [Worker(context)] if waiting else []
    finally:
        for worker in (*idle, *busy.values()):
            worker.end()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """What is started in the block never hears an interrupt, not even while it loads: its parent answers that."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def lost(task: Task, how: str, times: int = TRIES) -> str:
    """Return the line for a report that takes its worker down every time."""
    return (
        f"{task.path.name}: its worker died {times} times ({how}); is there memory enough?"
        " Fewer --workers leave each more"
    )


def serve(tasks: Connection) -> None:
    """Do what comes, in a process of its own; an interrupt is its parent's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            task = tasks.recv()
            try:
                found: Aggregates | Broken | Exception = done(task)
            except Exception as error:  # noqa: BLE001 - raised again by the parent
                found = error
            tasks.send(found)


def _end_with_parent() -> None:
    """End at once when the parent is gone, even killed: nobody waits for the answer."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
