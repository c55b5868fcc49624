"""Workers of a Dask cluster: one started for the occasion, or one that runs already."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from bridge.fleet.pool import lost
from bridge.fleet.task import Broken, Task, done
from importers.errors import ReportError

if TYPE_CHECKING:
    from bridge.fleet.aggregates import Aggregates

NEEDED = "pip install 'nsight-bridge[cluster]'"
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
    with client:
        of = dict(zip(client.map(done, tasks, pure=False), tasks, strict=True))
        try:
            for future in dask.as_completed(list(of)):
                yield _found(dask, future, of[future])
        finally:
            client.cancel(list(of))


def _found(dask: Any, future: Any, task: Task) -> Aggregates | Broken:
    try:
        found: Aggregates | Broken = future.result()
    except dask.KilledWorker as error:
        times = error.allowed_failures + 1
        return Broken(task.place, task.path, lost(task, "as Dask counts", times))
    return found
