"""Workers as processes of our own: one that dies is replaced, and what it was at is tried again.

Not of `concurrent.futures`, which does not say whose task died with a process. Started afresh (spawn): a fork of a process with
threads may never wake up.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import TYPE_CHECKING, Any

from bridge.package import VERSION
from bridge.scale.task import Broken, Task
from bridge.scale.worker import done, version
from importers.errors import ReportError

if TYPE_CHECKING:
    from bridge.scale.aggregates import Aggregates


# -- Workers of a Dask cluster: one started for the occasion, or one that runs already


NEEDED = "pip install 'nsight-bridge[cluster]'"
CLUSTER_PATIENCE_S = 60.0  # for the first answer: workers may still be starting
LOOPBACK = "127.0.0.1:0"  # any free port, and for nobody else
DASK = "distributed"  # loaded at use: it takes a second, and few have it


class NoClusterError(ReportError):
    """There is no Dask, or no scheduler at the address; the message says so in a line."""


def available() -> bool:
    """Tell whether Dask's distributed is installed."""
    return find_spec(DASK) is not None


def on_workers(tasks: Sequence[Task], workers: int) -> Iterator[Aggregates | Broken]:
    """Yield what comes of each task, as soon as it is there, on workers started for it, of one thread each."""
    dask: Any = import_module(DASK)
    try:
        started = dask.LocalCluster(
            n_workers=min(workers, len(tasks)),
            threads_per_worker=1,
            dashboard_address=LOOPBACK,
            silence_logs=logging.CRITICAL,
        )
    except (OSError, RuntimeError) as error:
        raise NoClusterError(f"Dask could not start {workers} workers: {error}") from error
    with started as cluster:
        yield from _computed(dask, tasks, cluster)


def on_cluster(tasks: Sequence[Task], address: str) -> Iterator[Aggregates | Broken]:
    """Yield what comes of each task, as soon as it is there, on the cluster of a scheduler."""
    if not available():
        raise NoClusterError(f"--scheduler needs Dask: {NEEDED}")
    yield from _computed(import_module(DASK), tasks, address)


def _computed(dask: Any, tasks: Sequence[Task], cluster: Any) -> Iterator[Aggregates | Broken]:
    try:
        client = dask.Client(cluster)
    except (OSError, ValueError) as error:
        raise NoClusterError(f"{cluster}: no scheduler answers there") from error
    with client:  # at whose end the scheduler drops what is not done
        _ready(client)
        of = dict(zip(client.map(done, tasks, pure=False), tasks, strict=True))
        for future in dask.as_completed(list(of)):
            yield _found(dask, future, of[future])


def _ready(client: Any) -> None:
    """Wait for a worker that knows this package; raises NoClusterError where none comes, or none does."""
    asked = client.submit(version, pure=False)
    try:
        there = asked.result(timeout=CLUSTER_PATIENCE_S)
    except Exception as error:  # of any kind: it comes from another machine
        why = "no worker answers" if isinstance(error, TimeoutError) else f"its workers: {error}"
        raise NoClusterError(
            f"{client.scheduler.address}: {why}; is nsight-bridge {VERSION} installed there?"
        ) from error
    finally:
        asked.cancel()
    if there != VERSION:
        raise NoClusterError(
            f"{client.scheduler.address}: its workers have nsight-bridge {there}, this is {VERSION}"
        )


def _found(dask: Any, future: Any, task: Task) -> Aggregates | Broken:
    try:
        found: Aggregates | Broken = future.result()
    except dask.KilledWorker as error:
        times = error.allowed_failures + 1
        return Broken(task.place, task.path, lost(task, "as Dask counts", times))
    except CancelledError as error:
        raise NoClusterError(
            "the scheduler is gone; is its machine up, and memory enough?"
        ) from error
    return found


# -- Workers as processes of our own: one that dies is replaced, and what it was at is tried again


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
