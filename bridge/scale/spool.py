"""The tables of each report, kept until somebody asks for them: in memory, or if there are many in a temporary file."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Protocol

from bridge.scale.merging import Part

IN_MEMORY = 64 << 20  # bytes


class KeptTables(Protocol):
    """Packed tables of several reports, by place and name."""

    def names(self) -> frozenset[str]:
        """Return the tables that all reports have."""

    def each(self, name: str) -> Iterator[bytes]:
        """Yield a table of every report, in the order of their places."""

    def of(self, place: int) -> Part:
        """Return all tables of a report."""


class Spool:
    """Tables as workers sent them."""

    def __init__(self, parts: Mapping[int, Part] | None = None) -> None:
        opened = ExitStack()
        self._file = opened.enter_context(
            tempfile.SpooledTemporaryFile(IN_MEMORY, prefix="bridge-")
        )
        weakref.finalize(self, opened.close)  # the file is gone from the disk then
        self._places: dict[int, dict[str, tuple[int, int]]] = {}
        for place, tables in (parts or {}).items():
            self.add(place, tables)

    def add(self, place: int, tables: Part) -> None:
        """Keep the tables of a report."""
        at = self._file.seek(0, 2)
        places = self._places[place] = {}
        for name, data in tables.items():
            self._file.write(data)
            places[name] = at, len(data)
            at += len(data)

    def names(self) -> frozenset[str]:
        return frozenset.intersection(*map(frozenset, self._places.values()))

    def each(self, name: str) -> Iterator[bytes]:
        return (self._read(*self._places[place][name]) for place in sorted(self._places))

    def of(self, place: int) -> Part:
        return {name: self._read(*at) for name, at in self._places[place].items()}

    def _read(self, at: int, size: int) -> bytes:
        self._file.seek(at)
        return self._file.read(size)
