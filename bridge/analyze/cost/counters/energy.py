"""The energy of ops: samples of a GPU's energy counter, divided among the work that ran meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import Floats
from bridge.importers import frames
from bridge.importers.frames import COUNTER
from bridge.join.arrays import NONE, Flags, Ints, order_by, run_edges
from bridge.join.attributed import AttributedCapture, once

DOMAIN = "power"  # of the counters that `bridge.power` records
NAME = re.compile(re.escape(COUNTER) + r"GPU (\d{1,4}) energy \(mJ\)")
MILLI = 1000


def energy_columns(
    attributed: AttributedCapture, rows: Ints, group: Ints, groups: int
) -> dict[str, Floats]:
    """Return the energy of each group of activities in joules, -1 for one of which nothing is known.

    ``rows`` are activities, ``group`` is the group of each.
    """
    energy = energies(attributed)[rows]
    known = np.flatnonzero(~np.isnan(energy))
    total = np.bincount(group[known], energy[known], minlength=groups)
    is_known = np.bincount(group[known], minlength=groups) > 0
    return {"energy_j": np.where(is_known, total / MILLI, NONE)}


@once
def energies(attributed: AttributedCapture) -> Floats:
    """Return the energy of each activity in mJ, NaN for one that ran outside of the samples.

    The energy of an instant belongs in equal parts to the kernels and graphs that run then on the
    GPU, and to memcpys and memsets only where none runs.
    """
    activities = attributed.capture.activities
    start, end = activities.start, attributed.end
    result = np.full(len(start), np.nan)
    is_compute = activities.kind.among(frames.KERNEL, frames.GRAPH)
    for device, time, energy in sampled_energies(attributed):
        rows = np.flatnonzero(Devices.of_report(attributed).gpu == device)
        met = rows[(start[rows] < time[-1]) & (end[rows] > time[0])]
        result[met] = _shares((start[met], end[met]), is_compute[met], time, energy)
    return result


def _shares(span: tuple[Ints, Ints], is_compute: Flags, time: Ints, energy: Ints) -> Floats:
    """Return the energy of each activity of a GPU in mJ."""
    instants, place = np.unique(np.concatenate(span), return_inverse=True)
    first, last = np.split(place, 2)
    # Relative to the first sample, times are exact as floats up to 104 days.
    taken = np.diff(np.interp(instants - time[0], time - time[0], energy - energy[0]))
    result = np.zeros(len(first))
    is_free = np.ones(len(taken), bool)
    for rows in (np.flatnonzero(is_compute), np.flatnonzero(~is_compute)):
        running = _running(first[rows], last[rows], len(taken))
        each = np.divide(taken, running, out=np.zeros(len(taken)), where=is_free & (running > 0))
        before = np.append(0, np.cumsum(each))
        result[rows] = before[last[rows]] - before[first[rows]]
        is_free &= running == 0
    return result


def _running(first: Ints, last: Ints, size: int) -> Ints:
    """Return how many activities run from each instant to the next."""
    change = np.zeros(size + 1, np.int64)
    np.add.at(change, first, 1)
    np.add.at(change, last, -1)
    result: Ints = np.cumsum(change)[:size]
    return result


def has_energy(attributed: AttributedCapture) -> bool:
    """Return whether the energy of any GPU was sampled."""
    return bool((_gpu_of_marks(attributed) != NONE).any())


def sampled_energies(attributed: AttributedCapture) -> Iterator[tuple[int, Ints, Ints]]:
    """Yield each GPU of `Devices` that has samples: distinct times in order, and mJ that do not fall."""
    devices, gpu = Devices.of_report(attributed), _gpu_of_marks(attributed)
    marks = attributed.capture.marks
    report, time, energy = marks.report, marks.time, marks.payload
    for device, (of, number) in enumerate(zip(devices.report, devices.number, strict=True)):
        rows = np.flatnonzero((gpu == number) & (gpu != NONE) & (report == of))
        rows = rows[order_by(time[rows], energy[rows])]
        rows = rows[run_edges(time[rows])[1:] - 1]  # the last of each time
        if len(rows) > 1:
            yield device, time[rows], np.maximum.accumulate(energy[rows])


@once
def _gpu_of_marks(attributed: AttributedCapture) -> Ints:
    """Return the GPU whose energy each mark is a sample of, NONE for other marks."""
    marks = attributed.capture.marks
    gpu = marks.name.per_text(lambda name: int(m[1]) if (m := NAME.fullmatch(name)) else NONE)
    return np.where(marks.domain_name.among(DOMAIN), gpu, NONE)
