"""The table of GPUs: work, busy time, overlap and concurrency of each. docs/communication.md defines every column."""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import counts, ratio, sums, texts
from bridge.analyze.core.table import Table
from bridge.analyze.cost.occupancy import sm_estimates
from bridge.analyze.run.account import ELSEWHERE, IDLE, STATES, GpuAccount, runs
from bridge.analyze.run.concurrency.overlap import KINDS, running
from bridge.importers import frames
from bridge.importers.frames import key_codes
from bridge.join.arrays import Ints, order_by
from bridge.join.attributed import AttributedCapture

UNKNOWN = GpuAccount("", dict.fromkeys((*STATES, IDLE), 0))  # without a timeline


def by_device(attributed: AttributedCapture) -> Table:
    """Return one row per GPU on which anything ran.

    ``run_ns`` is the length of the run, or of its selected part; ``busy_ns``, ``elsewhere_ns`` (work that is not
    counted) and ``idle_ns`` add up to it (`GpuAccount`). All else counts the counted activities alone, and
    ``span_ns`` is the time from the first of them to the last.
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
    start, end = activities.start[rows], attributed.end[rows]
    total = sums(position, attributed.duration[rows], size)
    running_ns = running(attributed, counted=True).total(len(devices.names))[used_devices]
    accounts = {gpu.device: gpu for run in runs(attributed) for gpu in run.gpus}
    gpus = [accounts.get(devices.names[gpu], UNKNOWN) for gpu in used_devices.tolist()]
    span, length, busy, idle, elsewhere, exposed = (
        np.array(
            [
                (
                    g.span_ns,
                    g.length_ns,
                    g.busy_ns,
                    g.idle_ns,
                    g.states.get(ELSEWHERE, 0),
                    g.exposed_ns,
                )
                for g in gpus
            ],
            np.int64,
        )
        .reshape(-1, 6)
        .T
    )
    compute, communication, memops = (
        running(attributed, kind, counted=True).total(len(devices.names))[used_devices]
        for kind in KINDS[1:]
    )
    return Table(
        {
            "device": texts(devices.names)[used_devices],
            "processes": _distinct_counts(attributed, rows, position, size, "report", "process"),
            "streams": _distinct_counts(
                attributed, rows, position, size, "report", "process", "context", "stream"
            ),
            "activities": counts(position, size),
            "kernels": counts(position[activities.kind.among(frames.KERNEL)[rows]], size),
            "gpu_ns": total,
            "run_ns": length,
            "busy_ns": busy,
            "elsewhere_ns": elsewhere,
            "idle_ns": idle,
            "busy_share": ratio(busy, length),
            "span_ns": span,
            "concurrency": ratio(total, running_ns),
            "max_concurrent": _max_concurrency(position, start, end, size),
            "compute_ns": compute,
            "communication_ns": communication,
            "memops_ns": memops,
            "overlap_ns": communication - exposed,
            "exposed_ns": exposed,
            **sm_estimates(attributed, rows, position, span),
        }
    )


def _distinct_counts(
    attributed: AttributedCapture, rows: Ints, device: Ints, size: int, *columns: str
) -> Ints:
    """Return the number of distinct values of some columns per GPU."""
    keys = [attributed.capture.activities[c] for c in columns]
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
