"""Reports become aggregates in this process, in worker processes, or on a cluster, with equal results."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from bridge.join.options import AttributionOptions
from bridge.scale import pool
from bridge.scale.aggregates import Aggregates
from bridge.scale.combined import CombinedReport, combine
from bridge.scale.requests import whole_tables
from bridge.scale.task import FailedTask, Task, Work
from bridge.scale.worker import run_task
from importers.column_files import ARROW_FOLDER, FOLDERS, PARQUET_FOLDER, is_columnar
from importers.errors import ReportError

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


def expand_paths(paths: Iterable[str | Path]) -> list[Path]:
    """Return the reports that names, patterns and folders stand for; those of one pattern or folder sorted by name.

    An existing file is taken by its name, even if it contains ``*``. ``**`` searches folders
    recursively; a folder stands for the reports directly in it, or is a report itself, of one file
    per table. A folder without reports and a pattern without matches are returned unchanged, so
    that reading them fails with a message.
    """
    return [file for path in paths for file in _expand_path(Path(path))]


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
    captures: dict[str, Path] = {}
    names = sorted(path for path in folder.iterdir() if _is_report(path))
    for suffix in SUFFIXES:
        for path in names:
            if path.name.endswith(suffix) and not path.name.startswith("."):
                captures.setdefault(path.name.removesuffix(suffix), path)
    return sorted(captures.values())


def _is_report(path: Path) -> bool:
    """Return whether a path is a file, or a folder called like one of nsys that has tables."""
    return path.is_file() or (path.name.endswith(FOLDERS) and is_columnar(path))


def _without_tables(paths: Sequence[Path]) -> list[Path]:
    """Return the paths without files of which the folder is one of them."""
    return [path for path in paths if path.parent not in paths]


# -- Running the tasks


@dataclass(frozen=True)
class Workers:
    """The number of worker processes (1: this process), or the address of a Dask scheduler."""

    count: int
    scheduler: str | None = None

    @property
    def threads(self) -> int:
        """The number of threads that each worker may read a file with: its share of the cores; 1 on a cluster."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        return 1 if self.scheduler else max(1, cores // self.count)

    def run(self, tasks: Sequence[Task]) -> Iterator[Aggregates | FailedTask]:
        """Yield what comes of each task, in the order in which they end."""
        if self.scheduler:
            return pool.on_cluster(tasks, self.scheduler)
        if self.count == 1 or len(tasks) == 1:
            return (run_task(task) for task in tasks)
        if pool.available():
            return pool.on_workers(tasks, self.count)
        return pool.in_processes(tasks, self.count)


def tasks_of(paths: Sequence[Path], work: Work) -> list[Task]:
    """Return one task per report. Raises ReportError for a report that is given twice."""
    seen: set[str] = set()
    for path in paths:
        real = os.path.realpath(path)  # Path.resolve raises for a link to itself
        if real in seen:
            raise ReportError(f"{path.name}: given twice; it would be counted twice")
        seen.add(real)
    return [Task(place, path.absolute(), str(path), work) for place, path in enumerate(paths)]


def run(
    tasks: Sequence[Task], workers: Workers, on_outcome: Callable[[Aggregates | FailedTask], None]
) -> CombinedReport:
    """Run all tasks and return one report.

    ``on_outcome`` is called with the outcome of each task, in the order in which they end, and may
    raise. Raises ReportError if no report could be read.
    """
    result: list[Aggregates] = []
    with closing(_iterated(workers, tasks)) as outcomes:
        for outcome in outcomes:
            on_outcome(outcome)
            if isinstance(outcome, Aggregates):
                result.append(outcome)
    if not result:
        raise ReportError(f"none of {len(tasks)} reports could be read")
    return combine(result)


def _iterated(
    workers: Workers, tasks: Sequence[Task]
) -> Generator[Aggregates | FailedTask, None, None]:
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
    work = Work(parts, options, threads=workers.threads)

    def report_outcome(outcome: Aggregates | FailedTask) -> None:
        if isinstance(outcome, FailedTask):
            if broken is None:
                raise ReportError(outcome.line)
            broken(outcome)

    return run(tasks_of(expand_paths(paths), work), workers, report_outcome)
