"""Idle gaps of GPUs: between their activities, before the first one and behind the last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.run.account import RunClocks, Span
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, Rows, order_by, run_edges, taken
from bridge.join.attributed import AttributedCapture, once
from bridge.join.attribution import INVALID_TIME


@record
class Gaps:
    """Idle gaps of all GPUs.

    ``ended_by`` is the activity (a row) that ended the gap, ``before`` the one whose end began it; NONE behind the last
    activity of a GPU, and before the first. ``device`` is a position in ``devices``.
    """

    start: Ints
    end: Ints
    device: Ints
    ended_by: Rows
    before: Rows
    devices: list[str]

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Ints | slice) -> Gaps:
        names = ("start", "end", "device", "ended_by", "before")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})

    def that(self, flags: Flags) -> Gaps:
        """Return the gaps that have a flag."""
        return self if flags.all() else self.take(np.flatnonzero(flags))

    @property
    def length(self) -> Ints:
        """Length of each gap in ns."""
        return self.end - self.start

    @classmethod
    def of(cls, attributed: AttributedCapture, longer_than: int = 0) -> Gaps:
        """Return the gaps longer than ``longer_than`` ns, from the end of all earlier work on.

        Of activities that begin at once the first row ends the gap; of those that end at once the
        one that began first (or the first row) began it. Activities with invalid times are left
        out.
        """
        gaps = _gaps(attributed)
        is_inner = (gaps.ended_by != NONE) & (gaps.before != NONE)
        return gaps.take(np.flatnonzero(is_inner)[gaps.length[is_inner] > longer_than])

    @classmethod
    def with_ends(cls, attributed: AttributedCapture) -> Gaps:
        """Return the gaps of each GPU, with the endless ones before its first activity and behind its last."""
        return _gaps(attributed)


@once
def _gaps(attributed: AttributedCapture) -> Gaps:
    """Return the gaps between activities, then those before the first activity of each GPU and behind its last."""
    devices = Devices.of_report(attributed)
    rows = np.flatnonzero(attributed.attribution.reason != INVALID_TIME)
    start = attributed.capture.activities.start
    rows = rows[order_by(devices.gpu[rows], start[rows])]
    device, start = taken(devices.gpu, rows), start[rows]
    latest_end, leader = _latest_ends(device, attributed.end[rows])
    later = np.flatnonzero(device[1:] == device[:-1]) + 1
    idle = later[start[later] - latest_end[later - 1] > 0]
    edges = run_edges(device)
    first, last = edges[:-1], edges[1:] - 1
    limits, none = np.iinfo(np.int64), np.full(len(first), NONE)
    by, before = rows[np.concatenate((idle, first))], rows[leader[np.concatenate((idle - 1, last))]]
    return Gaps(
        start=np.concatenate((latest_end[idle - 1], none * 0 + limits.min, latest_end[last])),
        end=np.concatenate((start[idle], start[first], none * 0 + limits.max)),
        device=taken(device, np.concatenate((idle, first, last))),
        ended_by=np.append(by, none).astype(np.int32),
        before=np.insert(before, len(idle), none).astype(np.int32),
        devices=devices.names,
    )


def _latest_ends(device: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Return the latest end so far on each device, and the position of what ended then."""
    latest_end, leader = end.copy(), np.zeros(len(end), np.int64)
    for first, last in pairwise(run_edges(device).tolist()):  # one iteration per device
        latest = np.maximum.accumulate(end[first:last])
        is_new = np.ones(last - first, bool)
        is_new[1:] = latest[1:] > latest[:-1]
        latest_end[first:last] = latest
        leader[first:last] = np.maximum.accumulate(np.where(is_new, np.arange(first, last), first))
    return latest_end, leader


def idle_gaps(attributed: AttributedCapture, threshold_ns: int = 0) -> Gaps:
    """Return the gaps of the GPUs with counted work in the run or its selected part, with those at its begin and end.

    A gap that begins before the part, or ends after it, is cut.
    """
    devices, clocks = Devices.of_report(attributed), RunClocks.of(attributed)
    gaps = _cut_gaps(attributed, [clocks.part_of(report) for report in devices.report])
    is_used = np.zeros(len(devices.names), bool)
    is_used[devices.gpu[attributed.counted]] = True
    return gaps.that(is_used[gaps.device] & (gaps.length > threshold_ns))


def gaps_in(attributed: AttributedCapture, gpu: int, span: Span) -> Gaps:
    """Return the gaps of one GPU, by its number in `Devices`, within a time; those at its begin and end are cut."""
    gaps = _cut_gaps(attributed, [span] * len(Devices.of_report(attributed).names))
    return gaps.that(gaps.device == gpu)


def _cut_gaps(attributed: AttributedCapture, spans: Sequence[Span]) -> Gaps:
    """Return the parts of gaps, also of those before and behind all work, within a time of each GPU."""
    gaps = Gaps.with_ends(attributed)
    first, last = np.array(spans, np.int64).reshape(-1, 2).T
    start = np.maximum(gaps.start, first[gaps.device])
    end = np.minimum(gaps.end, last[gaps.device])
    return replace(gaps, start=start, end=end).that(end > start)


def gaps_between_work(attributed: AttributedCapture, threshold_ns: int = 0) -> Gaps:
    """Return the gaps longer than the threshold that counted work ended, and the end of counted work began."""
    gaps, counted = idle_gaps(attributed, threshold_ns), np.append(attributed.counted, False)
    return gaps.that(counted[gaps.before] & counted[gaps.ended_by])
