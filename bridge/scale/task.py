"""What a worker is asked for, and what it answers; light, for it is all that a worker knows before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import importers
from bridge import __version__
from bridge.analyze.metrics import timeless
from bridge.join.choices import Choices
from bridge.join.domains import ALL, DEFAULT, UnknownDomainError, accepted
from bridge.own import importers_are_ours
from bridge.report import join
from bridge.scale.aggregates import Aggregates, aggregates
from importers.columns import THREADS
from importers.errors import ReportError
from importers.report import Report

if TYPE_CHECKING:
    from bridge.join.choices import Choices
    from bridge.scale.aggregates import Aggregates
    from bridge.scale.asked import Asked


# -- The work of one worker on one report


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
        from bridge.scale.windowed.work import in_windows  # noqa: PLC0415 - few reports take windows

        found = in_windows(task)
        if found is not None:
            return replace(found, known_by=_known_by(task)) if task.identify else found
    report = importers.load(task.path, details=task.details, sidecar=task.sidecar)
    if not timeless.has_timeline(report):
        raise ReportError(f"{report.source[0]}: of Nsight Compute; give it without --workers")
    report = replace(report, facts=(replace(report.facts[0], path=task.given),))
    choices = replace(task.choices, place=task.place)
    undeclared = undeclared_in(report, choices)
    joined = join(report, without(choices, undeclared) if undeclared else choices)
    found = replace(aggregates(joined, task.place, task.tables), undeclared=undeclared)
    recordings = report.facts[0].recordings
    return replace(found, known_by=_known_by(task, *recordings)) if task.identify else found


def _known_by(task: Task, *recordings: Path) -> str:
    from bridge.store.runs import identity  # noqa: PLC0415 - the store takes a while to load

    return identity([task.path, *recordings], whole=task.whole)


@contextmanager
def _threads(most: int) -> Iterator[None]:
    """Within the block, no more threads read a file."""
    before = THREADS.set(most)
    try:
        yield
    finally:
        THREADS.reset(before)


def undeclared_in(report: Report, choices: Choices) -> frozenset[str]:
    """Return the domains that are asked for and not in this report: another may have them."""
    names = {*choices.only, *choices.without} - {ALL}
    return frozenset(name for name in names if not _there(report, name))


def _there(report: Report, name: str) -> bool:
    try:
        accepted(report.ranges, (name,), ())
    except UnknownDomainError:
        return False
    return True


def without(choices: Choices, undeclared: frozenset[str]) -> Choices:
    """Return the choices as far as they concern a report without some domains."""
    only = tuple(name for name in choices.only if name not in undeclared)
    without = tuple(name for name in choices.without if name not in undeclared)
    if choices.only and not only:  # none of its ranges is an op
        return replace(choices, domains=(DEFAULT,), without=(DEFAULT,))
    return replace(choices, domains=only, without=without)


# -- What a worker is asked for, and what it answers; light, for it is all that a worker knows before it begins


@dataclass(frozen=True)
class Task:
    """One report: the tables asked of it, how it is joined, and how many threads may read it.

    ``given`` is its path as the user named it, by which ranks may be known.

    ``identify`` says what its content is known by, of ``whole`` every byte; ``memory`` is how many bytes it may
    take, 0 for any.
    """

    place: int
    path: Path
    given: str
    tables: tuple[Asked, ...]
    choices: Choices
    details: frozenset[str] = frozenset()
    sidecar: tuple[Path, ...] = ()
    threads: int = 1
    identify: bool = False
    whole: bool = False
    memory: int = 0


@dataclass(frozen=True)
class Broken:
    """A report that nothing came of, and why, in a line that names it."""

    place: int
    path: Path
    line: str


def version() -> str:
    """Return which version a worker has."""
    return __version__


def done(task: Task) -> Aggregates | Broken:
    """Load, join and aggregate one report; a report that cannot be read is told, not raised."""
    with importers_are_ours():
        return work(task)
