"""Reports become aggregates: one after the other, in processes, or on a cluster; which of them changes no figure."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.analyze.tables.views import details_of
from bridge.join.choices import Choices
from bridge.scale import pool
from bridge.scale.aggregates import Aggregates
from bridge.scale.combined import Together, assembled
from bridge.scale.requests import Asked, only
from bridge.scale.task import Broken, Task
from bridge.scale.worker import done
from importers.errors import ReportError

# -- Which files are meant: names, patterns in quotes, and folders


# In a folder, the first of these that a capture is there as: a report and its export are one capture.
SUFFIXES = (".sqlite", ".nsys-rep", ".qdrep", ".pt.trace.json", ".pt.trace.json.gz")
MARKS = frozenset("*?[")


def expanded(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files that are meant, those of one pattern or folder in the order of their names.

    A file that there is goes by its name, whatever characters are in it. ``**`` goes into folders; a folder means
    the reports in it, not those in folders of its own. A folder without any, and a pattern that nothing matches, stay as
    they are, for whoever reads them to refuse.
    """
    return [file for path in paths for file in _expanded(Path(path))]


def _expanded(path: Path) -> Iterator[Path]:
    if path.is_dir():
        yield from _reports(path) or [path]
    elif path.exists() or not MARKS.intersection(str(path)):
        yield path
    else:
        found = sorted(Path(name) for name in glob.glob(str(path), recursive=True))  # noqa: PTH207 - any path, absolute too
        yield from [one for one in found if one.is_file()] or [path]


def _reports(folder: Path) -> list[Path]:
    """Return the reports in a folder, one per capture."""
    captures: dict[str, Path] = {}
    names = sorted(path for path in folder.iterdir() if path.is_file())
    for suffix in SUFFIXES:
        for path in names:
            if path.name.endswith(suffix) and not path.name.startswith("."):
                captures.setdefault(path.name.removesuffix(suffix), path)
    return sorted(captures.values())


# -- Reports become aggregates: one after the other, in processes, or on a cluster; which of them changes no figure


MEMORY_KINDS = frozenset(["source_kind", "target_kind"])


@dataclass(frozen=True)
class Workers:
    """How many processes, 1 for this one alone; or the address of a scheduler of Dask."""

    count: int
    scheduler: str | None = None

    @property
    def threads(self) -> int:
        """How many threads each may read a file with: its share of the cores, on a cluster one."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        return 1 if self.scheduler else max(1, cores // self.count)

    def run(self, tasks: Sequence[Task]) -> Iterator[Aggregates | Broken]:
        """Yield what comes of each task, in the order in which they end."""
        if self.scheduler:
            return pool.on_cluster(tasks, self.scheduler)
        if self.count == 1 or len(tasks) == 1:
            return (done(task) for task in tasks)
        if pool.available():
            return pool.on_workers(tasks, self.count)
        return pool.in_processes(tasks, self.count)


def tasks_of(
    paths: Sequence[Path], tables: Sequence[Asked], choices: Choices, threads: int, **more: Any
) -> list[Task]:
    """Return the work, a task per report; ``more`` are fields of `Task`. Raises ReportError for one given twice."""
    seen: set[Path] = set()
    for path in paths:
        if path.resolve() in seen:
            raise ReportError(f"{path.name}: given twice; it would be counted twice")
        seen.add(path.resolve())
    details = details_for(tables)
    return [
        Task(
            *(place, path.absolute(), str(path), tuple(tables), choices, details),
            threads=threads,
            **more,
        )
        for place, path in enumerate(paths)
    ]


def details_for(tables: Collection[Asked]) -> frozenset[str]:
    """Return what has to be read for some tables, and most do without."""
    found = frozenset(name for one in tables for name in details_of(one.by))
    found |= {"mangled"} if any(one.kernel_names == "mangled" for one in tables) else frozenset()
    return found | (MEMORY_KINDS if any(one.memory_kinds for one in tables) else frozenset())


def run(
    tasks: Sequence[Task], workers: Workers, told: Callable[[Aggregates | Broken], None]
) -> Together:
    """Do all work and put it together; ``told`` hears of every report, in the order in which they end, and may raise.

    Raises ReportError if nothing came of any.
    """
    found: list[Aggregates] = []
    with closing(_iterated(workers, tasks)) as outcomes:
        for outcome in outcomes:
            told(outcome)
            if isinstance(outcome, Aggregates):
                found.append(outcome)
    if not found:
        raise ReportError(f"none of {len(tasks)} reports could be read")
    return assembled(found)


def _iterated(
    workers: Workers, tasks: Sequence[Task]
) -> Generator[Aggregates | Broken, None, None]:
    yield from workers.run(tasks)


def load(
    paths: Sequence[str | Path],
    tables: Sequence[str],
    workers: int | None,
    scheduler: str | None,
    broken: Callable[[Broken], None] | None,
    how: dict[str, Any],
) -> Together:
    """Aggregate reports: `bridge.scale.load`."""
    where = Workers(workers or os.cpu_count() or 1, scheduler)
    work = tasks_of(expanded(paths), only(tables), Choices(**how), where.threads)

    def told(outcome: Aggregates | Broken) -> None:
        if isinstance(outcome, Broken):
            if broken is None:
                raise ReportError(outcome.line)
            broken(outcome)

    return run(work, where, told)
