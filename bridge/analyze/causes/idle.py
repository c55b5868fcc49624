"""When a GPU did nothing: between what ran before and what ended the gap."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.causes.api_calls import WAITS, ends, kinds
from bridge.analyze.causes.host_timeline import Cover
from bridge.analyze.devices import Devices
from bridge.analyze.groups import texts
from bridge.join.arrays import NONE, Flags, Ints, by, runs
from bridge.join.attributed import Attributed
from bridge.join.attribution import INVALID_TIME
from bridge.join.nesting import Nesting
from importers import frames

# -- One word for what an op's time is bound by: the largest of its figures


WORDS = ("GPU", "memcpy", "launch", "sync", "starved", "host")  # of equal figures the first counts


def bound(kernels: Ints, copies: Ints, times: dict[str, Ints]) -> NDArray[np.object_]:
    """Return a word per group, of the time of its kernels, of its memcpys and memsets, and what `causes` says.

    A wait counts where it is longer than the group's own time on the host, and as far as it is longer than its
    own work on the device, which it may be waiting for. Where all of this is 0 the group is bound by the host.
    """
    awake = times["host_ns"] + times["api_ns"]
    waited = np.where(times["sync_ns"] > awake, times["sync_ns"] - kernels - copies, 0)
    figures = np.stack((kernels, copies, times["launch_gap_ns"], waited, times["starved_ns"]))
    nothing = figures.max(axis=0) <= 0
    return texts(WORDS)[np.where(nothing, WORDS.index("host"), figures.argmax(axis=0))]


# -- The own time of ranges, without that of ranges inside them, parted by what their thread was in


def own_times(joined: Attributed) -> tuple[Ints, Ints, Ints]:
    """Return ns outside API calls, in those that do not wait, and in those that do, per node.

    An instant in several calls, one inside the other, counts once: as a wait if any of them waits.
    """
    nesting = joined.attribution.nesting
    called = _inside(joined, np.ones(len(joined.report.launches), bool))
    waited = _inside(joined, np.isin(kinds(joined), WAITS))
    own = _without_inner(nesting, nesting.end - nesting.start)
    return own - called, called - waited, waited


def _inside(joined: Attributed, chosen: Flags) -> Ints:
    """Return how much of each node's own time its thread was inside any of the chosen calls."""
    nesting = joined.attribution.nesting
    start = frames.ints(joined.report.launches, "start")
    columns = (joined.attribution.stack, start, ends(joined))
    cover = Cover.of(*(c if chosen.all() else c[chosen] for c in columns))
    return _without_inner(nesting, cover.within(nesting.stack, nesting.start, nesting.end))


def _without_inner(nesting: Nesting, total: Ints) -> Ints:
    """Return each node's value without those of the nodes right inside it on its own thread."""
    own = total.copy()
    above = nesting.parent
    inner = np.flatnonzero((above != NONE) & (nesting.stack[above] == nesting.stack))
    np.subtract.at(own, above[inner], total[inner])
    return own


# -- When a GPU did nothing: between what ran before and what ended the gap


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
