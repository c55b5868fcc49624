"""The task of a worker, and its answer where it fails; a worker loads only this module before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.importers.remote import Location, Url

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
    """One report for a worker: ``place`` is its index among all, ``given`` its path as the user wrote it.

    A report at a URL is fetched by the worker.
    """

    place: int
    path: Location
    given: str
    work: Work

    @property
    def called(self) -> str:
        """The name of the report in messages: its base name, or its URL."""
        return str(self.path) if isinstance(self.path, Url) else self.path.name

    @property
    def file(self) -> Path:
        """The file on this machine. Raises TypeError for a report that is not fetched yet."""
        if isinstance(self.path, Url):
            raise TypeError(f"{self.path} is not fetched")
        return self.path


@dataclass(frozen=True)
class FailedTask:
    """A report that could not be aggregated; ``line`` is the message for the user and names the report."""

    place: int
    path: Location
    line: str
