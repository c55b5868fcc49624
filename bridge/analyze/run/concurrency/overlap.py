"""Measure what runs on a GPU at the same time: exposed communication, and the use of each GPU."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import sums
from bridge.analyze.core.kinds import is_communication
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, unions
from bridge.join.attributed import AttributedCapture, once

KINDS = ANY, COMPUTE, COMMUNICATION, MEMOPS = ("any", "compute", "communication", "memops")


@record
class WorkKinds:
    """Whether each activity computes, communicates or copies; none is true of a graph recorded as a whole."""

    compute: Flags
    communication: Flags
    memops: Flags


@once
def work_kinds(attributed: AttributedCapture) -> WorkKinds:
    """Classify activities; kernels that do not communicate compute."""
    activities, communication = attributed.capture.activities, is_communication(attributed)
    kernels = activities.kind.among(frames.KERNEL)
    memops = activities.kind.among(frames.MEMCPY, frames.MEMSET)
    return WorkKinds(kernels & ~communication, communication, memops)


@record
class Running:
    """Times at which some activities of each GPU ran: disjoint, sorted by GPU and time."""

    device: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture, device: Ints, mask: Flags) -> Running:
        """Return the union of the times of the selected activities of each GPU."""
        rows = np.flatnonzero(mask)
        start = attributed.capture.activities.start[rows]
        return cls(*unions(device[rows], start, attributed.end[rows]))

    def total(self, devices: int) -> Ints:
        """Return the total time per GPU in ns."""
        return sums(self.device, self.end - self.start, devices)

    def within(self, device: Ints, start: Ints, end: Ints) -> Ints:
        """Return for how many ns of each interval of a GPU any of them ran."""
        result = np.zeros(len(device), np.int64)
        total = np.append(0, np.cumsum(self.end - self.start))
        for number in np.unique(device).tolist():  # one iteration per GPU
            intervals = np.flatnonzero(device == number)
            first, last = np.searchsorted(self.device, (number, number + 1))
            if first == last:
                continue
            covered = []
            for time in (end[intervals], start[intervals]):
                following = first + np.searchsorted(self.start[first:last], time, side="left")
                last_end = np.where(following > first, self.end[np.maximum(following - 1, 0)], time)
                covered.append(total[following] - np.maximum(last_end - time, 0))
            result[intervals] = np.maximum(covered[0] - covered[1], 0)
        return result


@once
def running(attributed: AttributedCapture, kind: str = ANY, *, counted: bool = False) -> Running:
    """Return the times at which the activities of a kind of each GPU ran, by the numbers of `Devices`.

    ``counted`` leaves out those that are not counted.
    """
    mask = attributed.counted if counted else np.ones(len(attributed.counted), bool)
    if kind != ANY:
        mask = mask & getattr(work_kinds(attributed), kind)
    if (counted or kind != ANY) and mask.all():
        return running(attributed)
    return Running.of(attributed, Devices.of_report(attributed).gpu, mask)


def exposed_times(attributed: AttributedCapture) -> Ints:
    """Return the time during which each activity communicated and its GPU computed nothing, in ns.

    It is 0 for activities that do not communicate.
    """
    device, computing = Devices.of_report(attributed).gpu, running(attributed, COMPUTE)
    rows = np.flatnonzero(is_communication(attributed))
    start = attributed.capture.activities.start[rows]
    times = np.zeros(len(device), np.int64)
    hidden = computing.within(device[rows], start, attributed.end[rows])
    times[rows] = attributed.duration[rows] - hidden
    return times


def exposure(
    attributed: AttributedCapture, of_node: Ints, groups: int, of_activity: Ints | None = None
) -> dict[str, Ints]:
    """Return ``communication_ns`` and ``exposed_ns`` per group of ranges.

    The columns count the activities that the ranges own. ``of_node`` is the group of each node of
    the nesting, NONE for none. ``of_activity`` is the group of each activity, given where
    activities without a range have a group, too. Activities that are not counted are left out.
    ``exposed_ns`` is the part of the communication during which nothing computed on the same GPU; a
    memcpy or memset hides nothing. Communication on two streams at once counts twice, as GPU time
    does.
    """
    group = lookup(of_node, attributed.node) if of_activity is None else of_activity
    rows = np.flatnonzero(is_communication(attributed) & attributed.counted & (group != NONE))
    group = group[rows]
    alone = exposed_times(attributed) if len(rows) else attributed.duration
    return {
        "communication_ns": sums(group, attributed.duration[rows], groups),
        "exposed_ns": sums(group, alone[rows], groups),
    }
