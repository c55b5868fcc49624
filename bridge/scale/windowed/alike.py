"""What is found out over a whole report and must be the same in each window: who is which rank, what GPUs are called."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from bridge.analyze.devices import Devices
from bridge.analyze.ranks.members import Ranks
from bridge.analyze.ranks.said import BEGUN
from bridge.analyze.tracks import ID_BITS
from bridge.analyze.views import VIEWS, dimensions_of
from bridge.join.attributed import Attributed
from bridge.join.domains import is_library
from bridge.join.order import number
from bridge.join.ranked import ranked
from bridge.scale.asked import Asked
from bridge.scale.windowed.errors import WindowsError
from bridge.scale.windowed.part import Part
from importers import frames
from importers.report import Report

Key = tuple[int, int]


def named(tables: Collection[Asked]) -> frozenset[str]:
    """Return the dimensions of tables."""
    return frozenset(n for one in tables if one.by not in VIEWS for n in dimensions_of(one.by))


class Alike:
    """The ``skeleton`` knows all processes and devices; each window is compared with what it tells."""

    def __init__(
        self, skeleton: Report, place: int, rank_from: str | None, tables: Collection[Asked]
    ) -> None:
        self.name, self.place = skeleton.source[0], place
        self.dimensions = named(tables)
        self.ranks = Ranks.of(ranked(skeleton, rank_from), place)
        self.devices = _devices(Attributed.of(skeleton))
        self.libraries: dict[Key, bool] = {}
        self._numbers(skeleton)

    def check(self, joined: Part) -> None:
        """Raise WindowsError if a window would be told otherwise than the whole."""
        by = self.dimensions
        if not by.isdisjoint(("rank", "host")) and _begins(joined.report):
            raise WindowsError(self.name, "ranks are told by where communicators begin")
        if not by.isdisjoint(("device", "stream")):
            self._same(_devices(joined), self.devices)
        for key, library in _libraries(joined.report):
            if self.libraries.setdefault(key, library) != library:
                what = "ranges of a domain without a name are ops in some of its windows only"
                raise WindowsError(self.name, what)

    def _same(self, here: Mapping[Key, str], whole: Mapping[Key, str]) -> None:
        if any(whole.get(key) != one for key, one in here.items()):
            raise WindowsError(self.name, "what its GPUs are called takes a look at all of it")

    def _numbers(self, skeleton: Report) -> None:
        tables = ("ranges", "launches", "activities")
        every = [frames.ints(getattr(skeleton, table), "process") for table in tables]
        processes = np.unique(np.concatenate(every))
        alike = len(np.unique(processes >> 24 & ID_BITS)) < len(processes)
        if alike and not self.dimensions.isdisjoint(("thread", "process", "stream", "device")):
            raise WindowsError(self.name, "two of its processes have one number")


def _begins(report: Report) -> bool:
    """Tell whether a communicator begins in a report, which may tell ranks."""
    names = report.ranges["name"]
    begins = np.array([*(n.startswith(BEGUN) for n in names.cat.categories), False])
    return bool(begins[frames.codes(names)].any())


def _devices(joined: Attributed) -> dict[Key, str]:
    columns = [frames.ints(joined.report.activities, c) for c in ("process", "device")]
    found = Devices.of_report(joined)
    _, rows = number(*columns)
    keys = zip(*(c[rows].tolist() for c in columns), strict=True)
    return dict(zip(keys, (found.names[n] for n in found.of[rows].tolist()), strict=True))


def _libraries(report: Report) -> list[tuple[Key, bool]]:
    """Return of each domain without a name whether its ranges are a library's own: by all their texts."""
    ranges = report.ranges
    named_ = np.array([*(bool(n) for n in ranges["domain_name"].cat.categories), False])
    bare = ~named_[frames.codes(ranges["domain_name"])] & (frames.ints(ranges, "domain") != 0)
    rows = np.flatnonzero(bare)
    process, domain = (frames.ints(ranges, c)[rows] for c in ("process", "domain"))
    code, first = number(process, domain)
    names = ranges["name"].iloc[rows]
    return [
        ((int(process[at]), int(domain[at])), is_library("", names[code == n].unique()))
        for n, at in enumerate(first.tolist())
    ]
