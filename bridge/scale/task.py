"""The tasks of a worker, and its answers where they fail; a worker loads only this module before it starts."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.importers.remote import Location, Url

if TYPE_CHECKING:
    from bridge.join.options import AttributionOptions
    from bridge.scale.merging import Part
    from bridge.scale.requests import PartRequest

LOG = logging.getLogger("bridge.scale")


@dataclass(frozen=True)
class Work:
    """The work on every report.

    Attributes:
        tables: tables to make.
        merged: those that workers merge, by name.
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
    merged: tuple[str, ...] = ()

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

    def lost(self, why: str) -> FailedTask:
        """Return the outcome where workers died of it."""
        return FailedTask(self.place, self.path, f"{self.called}: {why}")


@dataclass(frozen=True)
class Merge:
    """Tables of several reports for a worker to merge, a node of a `Tree` by its level and number."""

    level: int
    number: int
    parts: tuple[Part, ...]

    @property
    def called(self) -> str:
        """The name of the task in the log."""
        return f"tables of {len(self.parts)} parts"

    def lost(self, why: str) -> Merged:
        """Return the outcome where workers died of it: its parts, which whoever asks for the result merges."""
        LOG.debug("%s: left as they are: %s", self.called, why)
        return Merged(self.level, self.number, self.parts)


@dataclass(frozen=True)
class Merged:
    """What is left of the parts of a `Merge`: one, or all of them where workers could not merge them."""

    level: int
    number: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class FailedTask:
    """A report that could not be aggregated; ``line`` is the message for the user and names the report."""

    place: int
    path: Location
    line: str
