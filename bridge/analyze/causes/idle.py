"""When a GPU did nothing: between what ran before and what ended the gap."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bridge.analyze.devices import Devices
from bridge.join.attributed import Attributed
from bridge.join.attribution import INVALID_TIME
from bridge.join.order import Flags, Ints, by, runs
from importers import frames


@dataclass(frozen=True)
class Gaps:
    """Gaps of all GPUs: the activity (a row) that ended each, and the one whose end began it.

    ``device`` is a place in ``devices``.
    """

    start: Ints
    end: Ints
    device: Ints
    ended_by: Ints
    before: Ints
    devices: list[str]

    def __len__(self) -> int:
        return len(self.start)

    def taken(self, rows: Flags) -> Gaps:
        """Return some of them."""
        start, end, device, ended_by, before = (
            column[rows]
            for column in (self.start, self.end, self.device, self.ended_by, self.before)
        )
        return Gaps(start, end, device, ended_by, before, self.devices)

    @property
    def length(self) -> Ints:
        """How long each is, in ns."""
        return self.end - self.start

    @classmethod
    def of(cls, joined: Attributed, longer_than: int = 0) -> Gaps:
        """Find the gaps longer than so many ns: after all that began before had ended.

        Of activities that begin together the first row ends the gap; of those that end together the one
        that began first (the first row) began it. Activities of invalid times are left out.
        """
        devices = Devices.of_report(joined)
        rows = np.flatnonzero(joined.attribution.reason != INVALID_TIME)
        start = frames.ints(joined.report.activities, "start")
        rows = rows[by(devices.of[rows], start[rows])]
        device, start = devices.of[rows], start[rows]
        reached, leader = _reached(device, joined.end[rows])
        later = np.flatnonzero(device[1:] == device[:-1]) + 1
        idle = later[start[later] - reached[later - 1] > longer_than]
        return cls(
            start=reached[idle - 1],
            end=start[idle],
            device=device[idle],
            ended_by=rows[idle],
            before=rows[leader[idle - 1]],
            devices=devices.names,
        )


def _reached(device: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the latest end so far on each device, and the place of what ended then."""
    reached, leader = end.copy(), np.zeros(len(end), np.int64)
    for first, last in pairwise(runs(device).tolist()):  # a turn per device
        latest = np.maximum.accumulate(end[first:last])
        leads = np.ones(last - first, bool)
        leads[1:] = latest[1:] > latest[:-1]
        reached[first:last] = latest
        leader[first:last] = np.maximum.accumulate(np.where(leads, np.arange(first, last), first))
    return reached, leader
