"""Communication and what hides it: computation that runs on the same GPU at the same time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bridge.analyze.devices import Devices
from bridge.analyze.groups import sums
from bridge.analyze.roles import is_communication
from bridge.join.arrays import NONE, Flags, Ints, unions
from bridge.join.attributed import Attributed
from importers import frames


@dataclass(frozen=True)
class Kinds:
    """Which activities compute, communicate, memcpy or memset; each is of one of the three."""

    compute: Flags
    communication: Flags
    copies: Flags

    @classmethod
    def of(cls, joined: Attributed) -> Kinds:
        """Tell them apart: what neither communicates nor memcpys or memsets computes."""
        copies = frames.is_kind(joined.report.activities, frames.MEMCPY, frames.MEMSET)
        communication = is_communication(joined)
        return cls(~copies & ~communication, communication, copies)


@dataclass(frozen=True)
class Running:
    """Times at which some activities of each GPU ran: apart, by GPU and in order."""

    device: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, joined: Attributed, device: Ints, chosen: Flags) -> Running:
        """Unite the times of the chosen activities of each GPU."""
        rows = np.flatnonzero(chosen)
        start = frames.ints(joined.report.activities, "start")[rows]
        return cls(*unions(device[rows], start, joined.end[rows]))

    def total(self, devices: int) -> Ints:
        """Return for each GPU how long, in ns."""
        return sums(self.device, self.end - self.start, devices)

    def within(self, device: Ints, start: Ints, end: Ints) -> Ints:
        """Return for how much of each interval of a GPU any of it ran, in ns."""
        found = np.zeros(len(device), np.int64)
        passed = np.append(0, np.cumsum(self.end - self.start))
        for one in np.unique(device).tolist():  # a turn per GPU
            asked = np.flatnonzero(device == one)
            first, last = np.searchsorted(self.device, (one, one + 1))
            if first == last:
                continue
            before = []
            for time in (end[asked], start[asked]):
                place = first + np.searchsorted(self.start[first:last], time, side="left")
                late = np.where(place > first, self.end[np.maximum(place - 1, 0)], time)
                before.append(passed[place] - np.maximum(late - time, 0))
            found[asked] = np.maximum(before[0] - before[1], 0)
        return found


def exposed_times(joined: Attributed) -> Ints:
    """Return for how long nothing computed on its GPU while each activity communicated, in ns; 0 for all others."""
    kinds, device = Kinds.of(joined), Devices.of_report(joined).of
    computing = Running.of(joined, device, kinds.compute)
    rows = np.flatnonzero(kinds.communication)
    start = frames.ints(joined.report.activities, "start")[rows]
    times = np.zeros(len(device), np.int64)
    hidden = computing.within(device[rows], start, joined.end[rows])
    times[rows] = joined.duration[rows] - hidden
    return times


def exposed(
    joined: Attributed, of_node: Ints, groups: int, of_activity: Ints | None = None
) -> dict[str, Ints]:
    """Return ``communication_ns`` and ``exposed_ns`` per group of ranges: of the activities that they own.

    ``of_node`` is the group of each node of the nesting, ``of_activity`` that of each activity where those in no
    range have one too; NONE for none. What is not counted is left out. ``exposed_ns`` is the part of the first during
    which nothing computed on the same GPU; a memcpy or a memset hides nothing. Communication on two streams at once counts
    twice, as GPU time does.
    """
    group = np.append(of_node, NONE)[joined.node] if of_activity is None else of_activity
    rows = np.flatnonzero(is_communication(joined) & joined.counted & (group != NONE))
    group = group[rows]
    alone = exposed_times(joined) if len(rows) else joined.duration
    return {
        "communication_ns": sums(group, joined.duration[rows], groups),
        "exposed_ns": sums(group, alone[rows], groups),
    }
