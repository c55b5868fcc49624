"""Measure what runs on a GPU at the same time: exposed communication, and the use of each GPU."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import Floats, counts, highest, lowest, ratio, sums, texts
from bridge.analyze.core.kinds import is_communication
from bridge.analyze.cost.occupancy import Occupancy
from bridge.importers import frames
from bridge.importers.frames import key_codes
from bridge.join.arrays import NONE, Flags, Ints, order_by, run_edges, unions
from bridge.join.attributed import AttributedCapture, once

KINDS = ANY, COMPUTE, COMMUNICATION, MEMOPS = ("any", "compute", "communication", "memops")


@dataclass(frozen=True)
class WorkKinds:
    """Whether each activity computes, communicates or copies; exactly one is true."""

    compute: Flags
    communication: Flags
    memops: Flags


@once
def work_kinds(attributed: AttributedCapture) -> WorkKinds:
    """Classify activities; those that neither communicate nor copy compute."""
    memops = frames.is_kind(attributed.capture.activities, frames.MEMCPY, frames.MEMSET)
    communication = is_communication(attributed)
    return WorkKinds(~memops & ~communication, communication, memops)


@dataclass(frozen=True)
class Running:
    """Times at which some activities of each GPU ran: disjoint, sorted by GPU and time."""

    device: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture, device: Ints, mask: Flags) -> Running:
        """Return the union of the times of the selected activities of each GPU."""
        rows = np.flatnonzero(mask)
        start = frames.ints(attributed.capture.activities, "start")[rows]
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
    start = frames.ints(attributed.capture.activities, "start")[rows]
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
    group = np.append(of_node, NONE)[attributed.node] if of_activity is None else of_activity
    rows = np.flatnonzero(is_communication(attributed) & attributed.counted & (group != NONE))
    group = group[rows]
    alone = exposed_times(attributed) if len(rows) else attributed.duration
    return {
        "communication_ns": sums(group, attributed.duration[rows], groups),
        "exposed_ns": sums(group, alone[rows], groups),
    }


# -- Use of multiprocessors, estimated like in the PyTorch plugin of TensorBoard


UNKNOWN = -1.0
ESTIMATES = ("sm_efficiency", "occupancy")


def sm_estimates(
    attributed: AttributedCapture, rows: Ints, device: Ints, span: Ints
) -> dict[str, Floats]:
    """Return ``sm_efficiency`` and ``occupancy`` of each GPU.

    ``rows`` are activities and ``device`` is the GPU of each; ``span`` is the span of each GPU in
    ns.
    """
    grid, multiprocessors = (
        frames.ints(table, c)
        for table, c in (
            (attributed.capture.activities, "grid_x"),
            (attributed.capture.devices, "sm_count"),
        )
    )
    if not ((grid > 0).any() and (multiprocessors > 0).any()):
        return {name: np.full(len(span), UNKNOWN) for name in ESTIMATES}
    estimate = Occupancy.of(attributed)
    start, end = frames.ints(attributed.capture.activities, "start")[rows], attributed.end[rows]
    blocks, percent = estimate.blocks_per_sm[rows], estimate.percent[rows]
    result = (
        sm_efficiency(device, start, end, blocks, span),
        occupancy(device, end - start, percent, len(span)),
    )
    return dict(zip(ESTIMATES, result, strict=True))


def sm_efficiency(device: Ints, start: Ints, end: Ints, blocks: Floats, span: Ints) -> Floats:
    """Return the fraction of each GPU's multiprocessors that had a block, averaged over its span.

    At each instant the ``blocks`` per multiprocessor of all running kernels are added up, to 1 at
    most. The result is -1 where no kernel's blocks are known.
    """
    rows_known = np.flatnonzero(blocks > 0)
    device, start, end = device[rows_known], start[rows_known], end[rows_known]
    blocks = np.minimum(blocks[rows_known], 1)  # one block per multiprocessor fills it
    result = np.full(len(span), UNKNOWN)
    time, change = np.concatenate((start, end)), np.concatenate((blocks, -blocks))
    gpus = np.concatenate((device, device))
    order = order_by(gpus, time)
    gpus, time, running = gpus[order], time[order], np.cumsum(change[order])
    for first, last in pairwise(run_edges(gpus).tolist()):  # one iteration per GPU
        number = int(gpus[first])
        busy_share = np.minimum(running[first : last - 1] - (running[first - 1] if first else 0), 1)
        # One after the other: in which order `sum` adds differs between versions of NumPy.
        total = float(np.cumsum(busy_share * np.diff(time[first:last]))[-1])
        result[number] = total / max(1, int(span[number]))
    return result


def occupancy(device: Ints, time: Ints, occupancy_percent: Floats, size: int) -> Floats:
    """Return the occupancy of each GPU as a fraction: the mean over its kernels, weighted by time.

    The result is -1 where no kernel's occupancy is known.
    """
    rows_known = np.flatnonzero(occupancy_percent >= 0)
    weights = time[rows_known].astype(np.float64)
    weight = np.bincount(device[rows_known], weights, minlength=size)
    part = np.bincount(
        device[rows_known], weights * occupancy_percent[rows_known] / 100, minlength=size
    )
    mean: Floats = np.divide(part, weight, out=np.full(size, UNKNOWN), where=weight > 0)
    return mean


# -- The table per GPU


def gpu_use(attributed: AttributedCapture) -> pd.DataFrame:
    """Return device, busy_ns and span_ns of each GPU on which anything ran, in ns.

    ``span_ns`` is the time from the first start to the last end of counted activities, ``busy_ns``
    the time in which the GPU ran anything meanwhile. "GPU busy" is the ratio of the two, wherever
    it is shown.
    """
    devices = Devices.of_report(attributed)
    used_devices = np.unique(devices.gpu[attributed.counted])
    busy, span = busy_in_span(attributed, devices.gpu, len(devices.names), running(attributed))
    return pd.DataFrame(
        {
            "device": texts(devices.names)[used_devices],
            "busy_ns": busy[used_devices],
            "span_ns": span[used_devices],
        }
    )


def busy_in_span(
    attributed: AttributedCapture, group: Ints, size: int, work: Running | None = None
) -> tuple[Ints, Ints]:
    """Return the busy time and the span of each group of activities, in ns.

    The span is that of the counted activities. Within it all activities of the group are busy time,
    whatever is counted: a GPU that runs work of another step is not idle. ``work`` is when any of
    a group ran, if that is known.
    """
    start = frames.ints(attributed.capture.activities, "start")
    counted = np.flatnonzero(attributed.counted & (group != NONE))
    used = np.unique(group[counted])
    busy, span = np.zeros(size, np.int64), np.zeros(size, np.int64)
    first = lowest(group[counted], start[counted], size)[used]
    last = highest(group[counted], attributed.end[counted], size)[used]
    work = work or Running.of(attributed, group, group != NONE)
    busy[used], span[used] = work.within(used, first, last), last - first
    return busy, span


def by_device(attributed: AttributedCapture) -> pd.DataFrame:
    """Return one row per GPU on which anything ran.

    ``span_ns`` and ``busy_ns`` are as in `gpu_use`; all else counts the counted activities alone.
    Communication is ``overlap_ns`` while anything computed and ``exposed_ns`` while nothing did.
    ``concurrency`` is the mean number of activities while any ran, ``max_concurrent`` the maximum.
    ``sm_efficiency`` and ``occupancy`` are estimates as fractions, -1 where the GPU or
    the geometry of all kernels is unknown.
    """
    devices = Devices.of_report(attributed)
    counted = attributed.counted
    used_devices, position = np.unique(devices.gpu[counted], return_inverse=True)
    rows, size = np.flatnonzero(counted), len(used_devices)
    activities = attributed.capture.activities
    start, end = frames.ints(activities, "start")[rows], attributed.end[rows]
    total, first = sums(position, attributed.duration[rows], size), lowest(position, start, size)
    span = highest(position, end, size) - first
    every = len(devices.names)
    running_ns = running(attributed, counted=True).total(every)[used_devices]
    busy = busy_in_span(attributed, devices.gpu, every, running(attributed))[0][used_devices]
    return pd.DataFrame(
        {
            "device": texts(devices.names)[used_devices],
            "processes": _distinct_counts(attributed, rows, position, size, "report", "process"),
            "streams": _distinct_counts(
                attributed, rows, position, size, "report", "process", "context", "stream"
            ),
            "activities": counts(position, size),
            "kernels": counts(position[frames.is_kind(activities, frames.KERNEL)[rows]], size),
            "gpu_ns": total,
            "busy_ns": busy,
            "span_ns": span,
            "idle_ns": span - busy,
            "busy_share": ratio(busy, span),
            "concurrency": ratio(total, running_ns),
            "max_concurrent": _max_concurrency(position, start, end, size),
            **_union_times(attributed, used_devices),
            **sm_estimates(attributed, rows, position, span),
        }
    )


def _union_times(attributed: AttributedCapture, used_devices: Ints) -> dict[str, Ints]:
    devices = Devices.of_report(attributed)

    def length(work: Running) -> Ints:
        return work.total(len(devices.names))[used_devices]

    compute, communication, memops = (
        length(running(attributed, kind, counted=True)) for kind in KINDS[1:]
    )
    either = compute
    if communication.any():
        mask = ~work_kinds(attributed).memops & attributed.counted
        either = length(Running.of(attributed, devices.gpu, mask))
    return {
        "compute_ns": compute,
        "communication_ns": communication,
        "memops_ns": memops,
        "overlap_ns": compute + communication - either,
        "exposed_ns": either - compute,
    }


def _distinct_counts(
    attributed: AttributedCapture, rows: Ints, device: Ints, size: int, *columns: str
) -> Ints:
    """Return the number of distinct values of some columns per GPU."""
    keys = [frames.ints(attributed.capture.activities, c) for c in columns]
    code = key_codes(keys)[0][rows]
    pairs = np.unique(device * (int(code.max(initial=0)) + 1) + code)
    return counts(pairs // (int(code.max(initial=0)) + 1), size)


def _max_concurrency(device: Ints, start: Ints, end: Ints, size: int) -> Ints:
    """Return the maximum of activities that ran at once; it is reached at some start."""
    has_length = end > start
    device, start, end = device[has_length], start[has_length], end[has_length]
    order = order_by(device, start)
    device, start, sorted_ends = (
        device[order],
        start[order],
        end[order][order_by(device[order], end[order])],
    )
    maximum = np.zeros(size, np.int64)
    for number in range(size):  # one iteration per GPU
        first, last = np.searchsorted(device, (number, number + 1))
        started = np.arange(1, last - first + 1)
        finished = np.searchsorted(sorted_ends[first:last], start[first:last], side="right")
        maximum[number] = (started - finished).max(initial=0)
    return maximum
