"""What a worker is asked for, and what it answers; light, for it is all that a worker knows before it begins."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.join.choices import Choices
    from bridge.scale.requests import Asked


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
