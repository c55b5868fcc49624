"""The tables of each report, kept in a temporary file until somebody asks for them: together they may be large."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from bridge.output import OutputError
from bridge.scale.merging import Part, PartialTable, unpacked


class KeptTables(Protocol):
    """Tables of several reports, by place and name."""

    def names(self) -> frozenset[str]:
        """Return the names of the tables that all reports have."""

    def each(self, name: str) -> Iterator[PartialTable]:
        """Yield a table of every report, in the order of their places."""

    def of(self, place: int) -> Part:
        """Return all tables of a report."""


class Spool:
    """Tables as workers sent them."""

    def __init__(self, parts: Mapping[int, Part] | None = None) -> None:
        try:
            self._file, name = tempfile.mkstemp(prefix="bridge-")
            Path(name).unlink()  # the file lasts until it is closed
        except OSError as error:
            raise _refused(error) from error
        weakref.finalize(self, os.close, self._file)
        self._end = 0
        self._places: dict[int, dict[str, tuple[int, int]]] = {}
        for place, tables in (parts or {}).items():
            self.add(place, tables)

    def __reduce__(self) -> tuple[Any, ...]:
        return Spool, ({place: self.of(place) for place in self._places},)

    def add(self, place: int, tables: Part) -> None:
        """Keep the tables of a report. Raises OutputError if there is no room for them."""
        places = self._places[place] = {}
        for name, data in tables.items():
            places[name] = self._end, len(data)
            left = memoryview(data)
            while left:
                try:
                    written = os.pwrite(self._file, left, self._end)
                except OSError as error:
                    raise _refused(error) from error
                left, self._end = left[written:], self._end + written

    def names(self) -> frozenset[str]:
        return frozenset.intersection(*map(frozenset, self._places.values()))

    def each(self, name: str) -> Iterator[PartialTable]:
        return (unpacked(self._read(*self._places[place][name])) for place in sorted(self._places))

    def of(self, place: int) -> Part:
        return {name: self._read(*at) for name, at in self._places[place].items()}

    def _read(self, at: int, size: int) -> bytes:
        return os.pread(self._file, size, at)  # at any place, so that threads do not meet


def _refused(error: OSError) -> OutputError:
    folder = tempfile.gettempdir()
    return OutputError(
        f"{folder}: {error.strerror}; TMPDIR names another folder for temporary files"
    )
