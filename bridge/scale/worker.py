"""The functions that a worker process calls; it loads only this module before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.package import VERSION, importers_are_ours
from bridge.scale.task import FailedTask, Task

if TYPE_CHECKING:
    from bridge.scale.aggregates import Aggregates


def version() -> str:
    """Return the version of the package on the worker."""
    return VERSION


def run_task(task: Task) -> Aggregates | FailedTask:
    """Load, join and aggregate one report; return a FailedTask if it cannot be read."""
    with importers_are_ours():
        from bridge.scale.one_report import aggregate_report  # in the worker alone

        return aggregate_report(task)
