"""The work of one worker on one report that may be larger than its memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridge.scale.aggregates import Aggregates
from bridge.scale.task import Task
from bridge.scale.windowed import part
from bridge.scale.windowed.aggregating import aggregated
from bridge.scale.windowed.asking import why_not
from bridge.scale.windowed.part import WindowsError
from importers.errors import NotAReport
from importers.nsys import export


def in_windows(task: Task) -> Aggregates | None:
    """Aggregate a report within ``task.memory`` bytes; None for one that fits as it is."""
    if not task.path.is_file():
        raise NotAReport(f"{task.path}: no such file; is the name right?")
    with _export(task.path) as path:
        count = part.count(path, task.tables, task.memory)
        if count == 1:
            return None
        for one in task.tables:
            if why := why_not(one):
                raise WindowsError(task.path.name, why)
        return aggregated(task, path, count)


@contextmanager
def _export(path: Path) -> Iterator[Path]:
    if path.suffix in export.SUFFIXES and not part.is_export(path):
        with export.exported(path) as made:
            yield made
    else:
        yield path
