"""Workers of a Dask cluster: one started for the occasion, or one that runs already."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bridge import __version__
from bridge.scale.pool import lost
from bridge.scale.task import Broken, Task, done, version
from importers.errors import ReportError

if TYPE_CHECKING:
    from bridge.scale.aggregates import Aggregates

NEEDED = "pip install 'nsight-bridge[cluster]'"
PATIENCE_S = 60.0  # for the first answer: workers may still be starting
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
        there = asked.result(timeout=PATIENCE_S)
    except Exception as error:  # of any kind: it comes from another machine
        why = "no worker answers" if isinstance(error, TimeoutError) else f"its workers: {error}"
        raise NoClusterError(
            f"{client.scheduler.address}: {why}; is nsight-bridge {__version__} installed there?"
        ) from error
    finally:
        asked.cancel()
    if there != __version__:
        raise NoClusterError(
            f"{client.scheduler.address}: its workers have nsight-bridge {there}, this is {__version__}"
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
