"""The work of one worker on one report, whole or, if it is larger than its memory, window by window."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import importers
from bridge.analyze.metrics import no_timeline
from bridge.report import join
from bridge.scale.aggregates import Aggregates, aggregates, undeclared_in, without
from bridge.scale.task import Broken, Task
from bridge.scale.windows import window
from bridge.scale.windows.aggregation import aggregated
from bridge.scale.windows.window import WindowsError, why_not
from importers.columns import THREADS
from importers.errors import NotAReport, ReportError
from importers.identity import identity
from importers.nsys import export


def work(task: Task) -> Aggregates | Broken:
    """Load, join and aggregate one report; one that cannot be read is told, in a line."""
    try:
        with _threads(task.threads):
            return _work(task)
    except ReportError as error:
        return Broken(task.place, task.path, str(error))
    except MemoryError:
        return Broken(task.place, task.path, f"{task.path.name}: not enough memory to read it")


def _work(task: Task) -> Aggregates:
    if task.memory:
        found = in_windows(task)
        if found is not None:
            return replace(found, known_by=_known_by(task)) if task.identify else found
    report = importers.load(task.path, details=task.details, sidecar=task.sidecar)
    if not no_timeline.has_timeline(report):
        raise ReportError(f"{report.source[0]}: of Nsight Compute; give it without --workers")
    report = replace(report, facts=(replace(report.facts[0], path=task.given),))
    choices = replace(task.choices, place=task.place)
    undeclared = undeclared_in(report, choices)
    joined = join(report, without(choices, undeclared) if undeclared else choices)
    found = replace(aggregates(joined, task.place, task.tables), undeclared=undeclared)
    recordings = report.facts[0].recordings
    return replace(found, known_by=_known_by(task, *recordings)) if task.identify else found


def _known_by(task: Task, *recordings: Path) -> str:
    return identity([task.path, *recordings], whole=task.whole)


@contextmanager
def _threads(most: int) -> Iterator[None]:
    """Within the block, no more threads read a file."""
    before = THREADS.set(most)
    try:
        yield
    finally:
        THREADS.reset(before)


# -- The work of one worker on one report that may be larger than its memory


def in_windows(task: Task) -> Aggregates | None:
    """Aggregate a report within ``task.memory`` bytes; None for one that fits as it is."""
    if not task.path.is_file():
        raise NotAReport(f"{task.path}: no such file; is the name right?")
    with _export(task.path) as path:
        count = window.count(path, task.tables, task.memory)
        if count == 1:
            return None
        for one in task.tables:
            if why := why_not(one):
                raise WindowsError(task.path.name, why)
        return aggregated(task, path, count)


@contextmanager
def _export(path: Path) -> Iterator[Path]:
    if path.suffix in export.SUFFIXES and not window.is_export(path):
        with export.exported(path) as made:
            yield made
    else:
        yield path
