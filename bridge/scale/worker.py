"""What a worker process calls: light, for it is all that a worker loads before it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.package import VERSION, importers_are_ours
from bridge.scale.task import Broken, Task

if TYPE_CHECKING:
    from bridge.scale.aggregates import Aggregates


def version() -> str:
    """Return which version a worker has."""
    return VERSION


def done(task: Task) -> Aggregates | Broken:
    """Load, join and aggregate one report; a report that cannot be read is told, not raised."""
    with importers_are_ours():
        from bridge.scale.work import work  # in the worker alone

        return work(task)
