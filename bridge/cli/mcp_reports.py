"""The reports that `bridge mcp` keeps in memory, and which files it may read."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.cli import options
from bridge.cli.diff import Side
from bridge.importers.errors import NoSuchReport, ReportError
from bridge.source import ReportInput

if TYPE_CHECKING:
    from bridge.report import Report


@dataclass
class KeptReports:
    """The reports that were asked for last; a file that changes is read again.

    Attributes:
        db: the store whose runs can be asked for.
        folders: only files in these folders are read; empty: all files.
        most: the number of reports that are kept.

    """

    db: Path
    folders: Sequence[Path] = ()
    most: int = 4
    _kept: OrderedDict[Hashable, Report] = field(default_factory=OrderedDict)

    def get(self, name: str) -> Report:
        """Return a report: files with commas, or a run of the store by number or name, '' the newest.

        Raises ReportError or `bridge.knowledge.package.UserError`, whose messages are one line for the user.
        """
        side = self._side(name)
        key = self._key(side)
        if key not in self._kept:
            self._make_room()
            self._kept[key] = options.load(ReportInput(side.reports, self.db, side.run))
        self._kept.move_to_end(key)
        return self._kept[key]

    def _side(self, name: str) -> Side:
        if options.PROTOCOL in name:
            raise ReportError(f"{name}: this server reads files of this machine, not URLs")
        side = Side.of(name, self.db) if name.strip() else Side()
        for path in _paths(side):
            self._check(path)
        return side

    def _check(self, path: Path) -> None:
        """Refuse a file outside of the folders, by the place that links lead to."""
        real = path.resolve()
        homes = [folder.resolve() for folder in self.folders]
        if homes and not any(real.is_relative_to(home) for home in homes):
            listed = ", ".join(map(str, self.folders))
            raise ReportError(f"{path}: not in {listed}: this server reads no other folder")
        if not path.exists():
            raise NoSuchReport(path)

    def _key(self, side: Side) -> Hashable:
        """Return what a report is known by: path, size and time of change of files; a run's identity."""
        if side.reports:
            stats = ((path, path.stat()) for path in _paths(side))
            return tuple((path.resolve(), s.st_size, s.st_mtime_ns) for path, s in stats)
        from bridge import store

        run = store.get_run(self.db, side.run)
        return (run.id, run.created, run.identity)

    def _make_room(self) -> None:
        """Drop the reports that were asked for longest ago, before another is read."""
        while len(self._kept) >= self.most:
            self._kept.popitem(last=False)


def _paths(side: Side) -> Iterator[Path]:
    return (location for location in side.reports if isinstance(location, Path))
