"""The task of a worker, and its answer where it fails; a worker loads only this module before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.join.options import AttributionOptions
    from bridge.scale.requests import PartRequest


@dataclass(frozen=True)
class Work:
    """The work on every report.

    Attributes:
        tables: tables to make.
        attribution_options: how activities are attributed.
        sidecar: recordings that belong to the reports.
        threads: number of threads that may read a file.
        identify: whether to hash the content; ``whole`` hashes every byte.
        memory: bytes that a worker may take, 0 for no limit.

    """

    tables: tuple[PartRequest, ...]
    attribution_options: AttributionOptions
    sidecar: tuple[Path, ...] = ()
    threads: int = 1
    identify: bool = False
    whole: bool = False
    memory: int = 0

    @property
    def details(self) -> frozenset[str]:
        """The columns of a capture that importers have to read for the tables."""
        return frozenset[str]().union(*(part.request.details for part in self.tables))


@dataclass(frozen=True)
class Task:
    """One report for a worker: ``place`` is its index among all, ``given`` its path as the user wrote it."""

    place: int
    path: Path
    given: str
    work: Work


@dataclass(frozen=True)
class FailedTask:
    """A report that could not be aggregated; ``line`` is the message for the user and names the report."""

    place: int
    path: Path
    line: str
