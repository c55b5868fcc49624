"""Worker processes: a worker that dies is replaced, and its task is tried again.

`concurrent.futures` is not used because it does not tell which task died with a process. Processes
are spawned: a forked process whose parent has threads may deadlock.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing import connection, get_context, parent_process
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import TYPE_CHECKING, Any

from bridge.importers.errors import ReportError
from bridge.knowledge.package import VERSION
from bridge.scale import debugging
from bridge.scale.task import Merge, Task
from bridge.scale.worker import run_on_dask, run_task, version

if TYPE_CHECKING:
    from bridge.scale.worker import Outcome

Waiting = deque[Task | Merge]

LOG = logging.getLogger("bridge.scale")

# -- Workers of a Dask cluster that runs already


NEEDED = "pip install 'nsight-bridge[cluster]'"
CLUSTER_PATIENCE_S = 60.0  # for the first answer: workers may still be starting
DASK = "distributed"  # loaded at use: it takes a second, and few have it


class NoClusterError(ReportError):
    """Dask is missing, or there is no scheduler at the address."""


def available() -> bool:
    """Tell whether Dask's distributed is installed."""
    return find_spec(DASK) is not None


def on_cluster(tasks: Waiting, address: str) -> Iterator[Outcome]:
    """Yield the outcome of each task as it ends, from the cluster of a scheduler; tasks may be added meanwhile."""
    if not available():
        raise NoClusterError(f"--workers ADDRESS needs Dask: {NEEDED}")
    yield from _computed(import_module(DASK), tasks, address)


def _computed(dask: Any, tasks: Waiting, cluster: Any) -> Iterator[Outcome]:
    try:
        client = dask.Client(cluster)
    except (OSError, ValueError) as error:
        raise NoClusterError(f"{cluster}: no scheduler answers there") from error
    with client:  # at whose end the scheduler drops what is not done
        _ready(client)
        of = _submitted(client, tasks)
        ended = dask.as_completed(list(of))
        for future in ended:
            yield _found(dask, future, of.pop(future))
            added = _submitted(client, tasks)
            of |= added
            ended.update(added)


def _submitted(client: Any, tasks: Waiting) -> dict[Any, Task | Merge]:
    """Submit all tasks that wait, merges before reports; return them by their futures."""
    some = [tasks.popleft() for _ in range(len(tasks))]
    found: dict[Any, Task | Merge] = {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sending large graph")  # of tables, as they must
        for priority, kind in enumerate((Task, Merge)):
            own = [task for task in some if isinstance(task, kind)]
            if own:
                futures = client.map(run_on_dask, own, pure=False, priority=priority)
                found.update(zip(futures, own, strict=True))
    return found


def _ready(client: Any) -> None:
    """Wait for a worker that has this package. Raises NoClusterError if no worker comes, or none has it."""
    answer = client.submit(version, pure=False)
    try:
        worker_version = answer.result(timeout=CLUSTER_PATIENCE_S)
    except Exception as error:  # of any kind: it comes from another machine
        why = "no worker answers" if isinstance(error, TimeoutError) else f"its workers: {error}"
        raise NoClusterError(
            f"{client.scheduler.address}: {why}; is nsight-bridge {VERSION} installed there?"
        ) from error
    finally:
        answer.cancel()
    if worker_version != VERSION:
        raise NoClusterError(
            f"{client.scheduler.address}: its workers have nsight-bridge {worker_version}, this is {VERSION}"
        )


def _found(dask: Any, future: Any, task: Task | Merge) -> Outcome:
    try:
        result: Outcome = future.result()
    except dask.KilledWorker as error:
        return task.lost(lost_workers("as Dask counts", error.allowed_failures + 1))
    except CancelledError as error:
        raise NoClusterError(
            "the scheduler is gone; is its machine up, and memory enough?"
        ) from error
    return result


# -- Worker processes


NAME = "bridge worker"
TRIES = 3
PATIENCE_S = 5.0  # for a worker to end


class Worker:
    """A process that runs one task after the other until it is told to end or its parent ends."""

    def __init__(self, context: SpawnContext, folder: str | None = None) -> None:
        self.connection, other = context.Pipe()
        self.process: SpawnProcess = context.Process(
            target=serve, args=(other, folder), name=NAME, daemon=True
        )
        with _uninterrupted():
            self.process.start()
        other.close()  # or its end would never be seen
        self.task: Task | Merge | None = None

    def start(self, task: Task | Merge) -> None:
        """Send a task; a worker that is already dead is noticed when its answer is awaited."""
        self.task = task
        with suppress(OSError):
            self.connection.send(task)

    def answer(self) -> Outcome | None:
        """Return the outcome of the task, None if the worker died."""
        try:
            result: Outcome | Exception = self.connection.recv()
        except (EOFError, OSError):
            return None
        if isinstance(result, Exception):
            raise result
        self.task = None
        return result

    def end(self) -> str:
        """Terminate the process and return how it ended."""
        self.connection.close()
        self.process.terminate()
        self.process.join(PATIENCE_S)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        code = self.process.exitcode or 0
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def in_processes(tasks: Waiting, workers: int) -> Iterator[Outcome]:
    """Yield the outcome of each task as it ends; tasks may be added meanwhile.

    Leaves no process behind, however the iteration ends.
    """
    # The folder for what workers fetch is deleted here: a worker may be killed while it fetches.
    with tempfile.TemporaryDirectory(prefix="bridge-workers-") as folder:
        start = partial(Worker, get_context("spawn"), folder)
        yield from _outcomes(tasks, workers, start)


def _outcomes(waiting: Waiting, workers: int, start: Callable[[], Worker]) -> Iterator[Outcome]:
    died = Counter[int]()  # by the identity of the task, which lives as long as it is tried
    busy: dict[object, Worker] = {}  # by their ends of the pipe
    idle: list[Worker] = []
    try:
        while waiting or busy:
            while waiting and len(busy) < workers:
                worker = idle.pop() if idle else start()
                worker.start(waiting.popleft())
                busy[worker.connection] = worker
            for ready in connection.wait([worker.connection for worker in busy.values()]):
                worker = busy[ready]
                task, result = worker.task, worker.answer()
                del busy[ready]
                if result is not None:
                    idle.append(worker)
                    died.pop(id(task), None)
                    yield result
                    continue
                ending = worker.end()
                assert task is not None
                died[id(task)] += 1
                LOG.debug("%s: its worker died: %s", task.called, ending)
                if died[id(task)] < TRIES:
                    waiting.append(task)
                else:
                    yield task.lost(lost_workers(ending))
    finally:
        for worker in (*idle, *busy.values()):
            worker.end()


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Processes that are started in the block ignore interrupts, even while they load: the parent handles them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def lost_workers(ending: str, times: int = TRIES) -> str:
    """Return what is said of a report that makes its worker die every time."""
    return (
        f"its worker died {times} times ({ending}); is there memory enough?"
        " Fewer --workers leave each more"
    )


def serve(tasks: Connection, folder: str | None = None) -> None:
    """Run the tasks that arrive, in a worker process; the parent handles interrupts, and deletes ``folder``."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)  # what a task has begun is cleaned up
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with _logged_if_asked(), suppress(EOFError, OSError):
        while True:
            task = tasks.recv()
            try:
                result: Outcome | Exception = run_task(task, folder)
            except Exception as error:  # noqa: BLE001 - raised again by the parent
                result = error
            tasks.send(result)


def _leave(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def _logged_if_asked() -> AbstractContextManager[None]:
    """Print the log of this process if the command that started it prints its own."""
    return debugging.logged(f"worker {os.getpid()}: ") if debugging.is_on() else nullcontext()


def _end_with_parent() -> None:
    """End at once when the parent is gone, even if it was killed."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
