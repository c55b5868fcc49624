"""The work of a worker on one report: whole or, if it is larger than the memory limit, window by window."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from bridge import importers, plugins
from bridge.analyze.core import no_timeline
from bridge.importers.errors import NoSuchReport, ReportError
from bridge.importers.identity import identity
from bridge.importers.nsys import export
from bridge.importers.nsys.export_cache import read_export
from bridge.importers.remote import Downloads, errors_name_urls
from bridge.importers.sqlite_columns import THREADS
from bridge.report import join
from bridge.scale import malloc
from bridge.scale.aggregates import Aggregates, aggregates, undeclared_domains, without_domains
from bridge.scale.task import FailedTask, Task
from bridge.scale.windows import window
from bridge.scale.windows.aggregation import aggregated
from bridge.scale.windows.window import WindowsError, why_not

LOG = logging.getLogger("bridge.scale")


def aggregate_report(task: Task, folder: str | None = None) -> Aggregates | FailedTask:
    """Load, join and aggregate one report; return a FailedTask if it cannot be read.

    A report at a URL is fetched into a new folder in ``folder``.
    """
    try:
        with _threads(task.work.threads), Downloads(folder) as downloads:
            fetched = replace(task, path=downloads.path(task.path))
            malloc.keep_for([fetched.file])
            with errors_name_urls(fetched.file):
                return _aggregate(fetched)
    except ReportError as error:
        LOG.debug("%s: left out", task.called, exc_info=True)
        return FailedTask(task.place, task.path, str(error))
    except MemoryError:
        LOG.debug("%s: left out", task.called, exc_info=True)
        return FailedTask(task.place, task.path, f"{task.called}: not enough memory to read it")


def _aggregate(task: Task) -> Aggregates:
    if task.work.memory:
        result = in_windows(task)
        if result is not None:
            return replace(result, known_by=_known_by(task)) if task.work.identify else result
    capture = importers.load(
        task.file,
        details=task.work.details,
        sidecar=task.work.sidecar,
        more_readers=plugins.readers,
    )
    if not no_timeline.has_timeline(capture):
        raise ReportError(f"{capture.source[0]}: of Nsight Compute; give it without --workers")
    capture = replace(capture, facts=(replace(capture.facts[0], path=task.given),))
    attribution_options = replace(task.work.attribution_options, place=task.place)
    undeclared = undeclared_domains(capture, attribution_options)
    report = join(
        capture,
        without_domains(attribution_options, undeclared) if undeclared else attribution_options,
    )
    result = replace(aggregates(report, task.place, task.work.tables), undeclared=undeclared)
    recordings = capture.facts[0].recordings
    return replace(result, known_by=_known_by(task, *recordings)) if task.work.identify else result


def _known_by(task: Task, *recordings: Path) -> str:
    return identity([task.file, *recordings], whole=task.work.whole)


@contextmanager
def _threads(most: int) -> Iterator[None]:
    """Limit the threads that read a file within the block."""
    before = THREADS.set(most)
    try:
        yield
    finally:
        THREADS.reset(before)


# -- Reports that may be larger than the memory limit


def in_windows(task: Task) -> Aggregates | None:
    """Aggregate a report within ``task.work.memory`` bytes; None if it fits without windows."""
    if not task.file.exists():
        raise NoSuchReport(task.file)
    if task.file.suffix not in export.SUFFIXES or window.is_export(task.file):
        return _in_windows(task, task.file)
    return read_export(task.file, lambda path: _in_windows(task, path), (export.SQLITE,))


def _in_windows(task: Task, path: Path) -> Aggregates | None:
    raw = task.work.attribution_options.raw
    count = window.count(path, task.work.tables, task.work.memory, raw=raw)
    LOG.debug("%s: %d windows for %d bytes", task.called, count, task.work.memory)
    if count == 1:
        return None
    for request in task.work.tables:
        if why := why_not(request):
            raise WindowsError(task.file.name, why)
    return aggregated(task, path, count)
