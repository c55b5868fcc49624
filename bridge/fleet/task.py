"""What a worker is asked for, and what it answers; light, for it is all that a worker knows before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.own import importers_are_ours

if TYPE_CHECKING:
    from bridge.fleet.aggregates import Aggregates
    from bridge.fleet.asked import Asked
    from bridge.join.choices import Choices


@dataclass(frozen=True)
class Task:
    """One report: the tables asked of it, how it is joined, and how many threads may read it.

    ``identify`` says what its content is known by, of ``whole`` every byte.
    """

    place: int
    path: Path
    tables: tuple[Asked, ...]
    choices: Choices
    details: frozenset[str] = frozenset()
    sidecar: tuple[Path, ...] = ()
    threads: int = 1
    identify: bool = False
    whole: bool = False


@dataclass(frozen=True)
class Broken:
    """A report that nothing came of, and why, in a line that names it."""

    place: int
    path: Path
    line: str


def done(task: Task) -> Aggregates | Broken:
    """Load, join and aggregate one report; a report that cannot be read is told, not raised."""
    with importers_are_ours():
        from bridge.fleet.work import work  # noqa: PLC0415 - in the worker alone

        return work(task)
