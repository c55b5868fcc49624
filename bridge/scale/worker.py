"""The functions that a worker process calls; it loads only this module before it starts."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from bridge.knowledge.package import VERSION
from bridge.scale.task import FailedTask, Merge, Merged, Task

if TYPE_CHECKING:
    from bridge.scale.aggregates import Aggregates

    Outcome = Aggregates | FailedTask | Merged


def version() -> str:
    """Return the version of the package on the worker."""
    return VERSION


def run_task(task: Task | Merge, folder: str | None = None) -> Outcome:
    """Load, join and aggregate one report, a FailedTask if it cannot be read; or merge tables.

    A report at a URL is fetched into a new folder in ``folder``, by default that of temporary files.
    """
    if isinstance(task, Merge):
        from bridge.scale.merging import merged

        try:
            return Merged(task.level, task.number, (merged(task.parts),))
        except MemoryError as error:
            return task.lost(str(error))
    from bridge.scale.one_report import aggregate_report  # in the worker alone

    return aggregate_report(task, folder)


def run_on_dask(task: Task | Merge) -> Outcome:
    """Do the same in a worker of Dask, which fetches into its own folder: Dask deletes that if the worker dies."""
    worker = import_module("distributed").get_worker()
    return run_task(task, worker.local_directory)
