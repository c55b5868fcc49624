"""Reports become aggregates in this process, in worker processes, or on a cluster, with equal results."""

from __future__ import annotations

import glob
import logging
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bridge.importers import check_distinct, remote
from bridge.importers.column_files import ARROW_FOLDER, FOLDERS, PARQUET_FOLDER, is_columnar
from bridge.importers.errors import ReportError
from bridge.importers.records import record
from bridge.importers.remote import Location, Url, location
from bridge.join.options import AttributionOptions
from bridge.scale import pool
from bridge.scale.aggregates import Aggregates
from bridge.scale.combined import CombinedReport, combine
from bridge.scale.requests import mergeable, whole_tables
from bridge.scale.spool import Spool
from bridge.scale.task import FailedTask, Merged, Task, Work
from bridge.scale.tree import Tree
from bridge.scale.worker import run_task

if TYPE_CHECKING:
    from bridge.scale.worker import Outcome

LOG = logging.getLogger("bridge.scale")

# -- Files that names, patterns and folders stand for


# A report and its export are one capture: the first suffix that exists counts. Parquet needs a further package.
SUFFIXES = (
    ".sqlite",
    ARROW_FOLDER,
    ".arrows",
    ".nsys-rep",
    ".qdrep",
    PARQUET_FOLDER,
    ".pt.trace.json",
    ".pt.trace.json.gz",
)
MARKS = frozenset("*?[")


def expand_paths(paths: Iterable[str | Location]) -> list[Location]:
    """Return the reports that names, patterns and folders stand for; those of one pattern or folder sorted by name.

    An existing file is taken by its name, even if it contains ``*``. ``**`` searches folders
    recursively; a folder stands for the reports directly in it, or is a report itself, of one file
    per table. A folder without reports and a pattern without matches are returned unchanged, so
    that reading them fails with a message. URLs are taken in the same way.
    """
    return [file for path in map(location, paths) for file in _expand(path)]


def _expand(report: Location) -> Iterator[Location]:
    yield from _expand_url(report) if isinstance(report, Url) else _expand_path(report)


def _expand_url(url: Url) -> Sequence[Url]:
    """Return the reports of a URL. The name of a file or of a folder of tables is not looked up."""
    if url.is_pattern:
        found = remote.matches(url)
        tables = tuple(f"{file.path}/" for file in found if file.is_columnar)
        return [file for file in found if not file.path.startswith(tables)] or [url]
    inside = None if url.name.endswith(SUFFIXES) else remote.listed(url)
    return [url] if inside is None else _one_per_capture(inside) or [url]


def _expand_path(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from _reports(path) or [path]
    elif path.exists() or not MARKS.intersection(str(path)):
        yield path
    else:
        values = sorted(Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207 - any path, absolute too
        yield from _without_tables([file for file in values if _is_report(file)]) or [path]


def _reports(folder: Path) -> list[Path]:
    """Return the reports in a folder, one per capture."""
    return _one_per_capture(sorted(path for path in folder.iterdir() if _is_report(path)))


File = TypeVar("File", Path, Url)


def _one_per_capture(files: Sequence[File]) -> list[File]:
    """Return those of the files that are reports, one per capture, in their order."""
    captures: dict[str, File] = {}
    for suffix in SUFFIXES:
        for file in files:
            if file.name.endswith(suffix) and not file.name.startswith("."):
                captures.setdefault(file.name.removesuffix(suffix), file)
    return sorted(captures.values(), key=lambda file: file.name)


def _is_report(path: Path) -> bool:
    """Return whether a path is a file, or a folder called like one of nsys that has tables."""
    return path.is_file() or (path.name.endswith(FOLDERS) and is_columnar(path))


def _without_tables(paths: Sequence[Path]) -> list[Path]:
    """Return the paths without files of which the folder is one of them."""
    return [path for path in paths if path.parent not in paths]


# -- Running the tasks


@record
class Workers:
    """The number of worker processes (1: this process), or the address of a Dask scheduler."""

    count: int
    scheduler: str | None = None

    @property
    def threads(self) -> int:
        """The number of threads that each worker may read a file with: its share of the cores; 1 on a cluster."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        return 1 if self.scheduler else max(1, cores // self.count)

    def run(self, tasks: pool.Waiting) -> Iterator[Outcome]:
        """Yield what comes of each task, in the order in which they end; tasks may be added meanwhile."""
        LOG.debug("%d reports; %d workers, scheduler: %s", len(tasks), self.count, self.scheduler)
        if self.scheduler:
            return pool.on_cluster(tasks, self.scheduler)
        if self.count == 1 or len(tasks) == 1:
            return _here(tasks)
        return pool.in_processes(tasks, self.count)


def _here(tasks: pool.Waiting) -> Iterator[Outcome]:
    while tasks:
        yield run_task(tasks.popleft())


def tasks_of(paths: Sequence[Location], work: Work) -> list[Task]:
    """Return one task per report. Raises ReportError for a report that is given twice."""
    check_distinct(paths)
    return [
        Task(place, path if isinstance(path, Url) else path.absolute(), remote.given(path), work)
        for place, path in enumerate(paths)
    ]


def run(
    tasks: Sequence[Task], workers: Workers, on_outcome: Callable[[Aggregates | FailedTask], None]
) -> CombinedReport:
    """Run all tasks and return one report.

    ``on_outcome`` is called with the outcome of each task, in the order in which they end, and may
    raise. Raises ReportError if no report could be read.
    """
    parts: list[Aggregates] = []
    spool, tree = Spool(), Tree(len(tasks), tasks[0].work.merged if tasks else ())
    waiting: pool.Waiting = deque(tasks)
    with closing(_iterated(workers, waiting)) as outcomes:
        for outcome in outcomes:
            if isinstance(outcome, Merged):
                waiting.extendleft(tree.ended(outcome.level, outcome.number, outcome.parts))
                continue
            on_outcome(outcome)
            tables = outcome.tables if isinstance(outcome, Aggregates) else None
            waiting.extendleft(tree.report(outcome.place, tables))
            if isinstance(outcome, Aggregates):
                spool.add(outcome.place, outcome.tables)
                parts.append(replace(outcome, tables={}))
    if not parts:
        raise ReportError(f"none of {len(tasks)} reports could be read")
    return combine(parts, tables=spool, merged=tree.parts)


def _iterated(workers: Workers, tasks: pool.Waiting) -> Generator[Outcome, None, None]:
    yield from workers.run(tasks)


def load(
    paths: Sequence[str | Path],
    tables: Sequence[str],
    workers: Workers,
    options: AttributionOptions,
    broken: Callable[[FailedTask], None] | None,
) -> CombinedReport:
    """Aggregate reports: `bridge.scale.load`."""
    parts = tuple(whole_tables(tables))
    work = Work(parts, options, threads=workers.threads, merged=mergeable(tables))

    def report_outcome(outcome: Aggregates | FailedTask) -> None:
        if isinstance(outcome, FailedTask):
            if broken is None:
                raise ReportError(outcome.line)
            broken(outcome)

    return run(tasks_of(expand_paths(paths), work), workers, report_outcome)
