"""Reports become aggregates: one after the other, in processes, or on a cluster; which of them changes no figure."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridge.analyze.views import details_of
from bridge.join.choices import Choices
from bridge.scale import cluster, pool
from bridge.scale.aggregates import Aggregates
from bridge.scale.asked import Asked, only
from bridge.scale.paths import expanded
from bridge.scale.task import Broken, Task, done
from bridge.scale.together import Together, assembled
from importers.errors import ReportError

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
            return cluster.on_cluster(tasks, self.scheduler)
        if self.count == 1 or len(tasks) == 1:
            return (done(task) for task in tasks)
        if cluster.available():
            return cluster.on_workers(tasks, self.count)
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
