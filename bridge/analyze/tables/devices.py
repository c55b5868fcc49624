"""The table of GPUs: work, busy time, overlap and concurrency of each. docs/communication.md defines every column."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import counts, highest, lowest, ratio, sums, texts
from bridge.analyze.cost.occupancy import sm_estimates
from bridge.analyze.run.concurrency.overlap import (
    KINDS,
    Running,
    busy_in_span,
    running,
    work_kinds,
)
from bridge.importers import frames
from bridge.importers.frames import key_codes
from bridge.join.arrays import Ints, order_by
from bridge.join.attributed import AttributedCapture


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
