"""The table per GPU: how busy it was, with what, how much at once, and how full its multiprocessors were."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd

from bridge.analyze.concurrency.exposure import Kinds, Running
from bridge.analyze.devices import Devices
from bridge.analyze.groups import Floats, counts, highest, lowest, ratio, sums, texts
from bridge.analyze.occupancy import Occupancy
from bridge.join.arrays import Flags, Ints, by, runs
from bridge.join.attributed import Attributed
from importers import frames
from importers.frames import shared

# -- How full a GPU's multiprocessors were, estimated as TensorBoard's PyTorch plugin does from grids and blocks


UNKNOWN = -1.0
ESTIMATES = ("sm_efficiency", "occupancy")


def fullness(joined: Attributed, rows: Ints, of: Ints, span: Ints) -> dict[str, Floats]:
    """Return ``sm_efficiency`` and ``occupancy`` of each GPU; ``rows`` are activities, ``of`` is the GPU of each."""
    grid, multiprocessors = (
        frames.ints(table, c)
        for table, c in ((joined.report.activities, "grid_x"), (joined.report.devices, "sm_count"))
    )
    if not ((grid > 0).any() and (multiprocessors > 0).any()):
        return {name: np.full(len(span), UNKNOWN) for name in ESTIMATES}
    estimate = Occupancy.of(joined)
    start, end = frames.ints(joined.report.activities, "start")[rows], joined.end[rows]
    blocks, percent = estimate.blocks_per_sm[rows], estimate.percent[rows]
    found = (
        sm_efficiency(of, start, end, blocks, span),
        occupancy(of, end - start, percent, len(span)),
    )
    return dict(zip(ESTIMATES, found, strict=True))


def sm_efficiency(of: Ints, start: Ints, end: Ints, blocks: Floats, span: Ints) -> Floats:
    """Return for each GPU the share of its multiprocessors that had a block, on average over its span.

    At each instant the ``blocks`` per multiprocessor of all kernels that run are added up, and 1 is the most.
    -1 where no kernel's are known.
    """
    known = np.flatnonzero(blocks > 0)
    of, start, end = of[known], start[known], end[known]
    blocks = np.minimum(blocks[known], 1)  # more of one kernel tell no more
    found = np.full(len(span), UNKNOWN)
    time, change = np.concatenate((start, end)), np.concatenate((blocks, -blocks))
    both = np.concatenate((of, of))
    order = by(both, time)
    both, time, running = both[order], time[order], np.cumsum(change[order])
    for first, last in pairwise(runs(both).tolist()):  # a turn per GPU
        one = int(both[first])
        used = np.minimum(running[first : last - 1] - (running[first - 1] if first else 0), 1)
        found[one] = float((used * np.diff(time[first:last])).sum()) / max(1, int(span[one]))
    return found


def occupancy(of: Ints, time: Ints, percent: Floats, many: int) -> Floats:
    """Return for each GPU the mean over its kernels, weighted by time, of how many of the warps that fit are resident.

    A fraction of 1; -1 where no kernel's is known.
    """
    known = np.flatnonzero(percent >= 0)
    weights = time[known].astype(np.float64)
    weight = np.bincount(of[known], weights, minlength=many)
    part = np.bincount(of[known], weights * percent[known] / 100, minlength=many)
    mean: Floats = np.divide(part, weight, out=np.full(many, UNKNOWN), where=weight > 0)
    return mean


# -- The table per GPU: how busy it was, with what, how much at once, and how full its multiprocessors were


def by_device(joined: Attributed) -> pd.DataFrame:
    """Return one row per GPU that anything ran on.

    ``busy_ns`` is the union of all that ran, ``span_ns`` from its first start to its last end. Communication is
    ``overlap_ns`` while anything computed and ``exposed_ns`` while nothing did. ``concurrency`` is how much ran
    at once on average while anything did, ``max_concurrent`` at most. ``sm_efficiency`` and ``occupancy`` are
    estimates, fractions, -1 where no kernel's geometry or not the GPU is known.
    """
    devices = Devices.of_report(joined)
    counted = joined.counted
    used, of = np.unique(devices.of[counted], return_inverse=True)
    rows, many = np.flatnonzero(counted), len(used)
    activities = joined.report.activities
    start, end = frames.ints(activities, "start")[rows], joined.end[rows]
    total, first = sums(of, joined.duration[rows], many), lowest(of, start, many)
    span = highest(of, end, many) - first
    device = np.zeros(len(counted), np.int64)
    device[rows] = of
    united = _united(joined, device, counted, many)
    busy = united["busy_ns"]
    return pd.DataFrame(
        {
            "device": texts(devices.names)[used],
            "processes": _distinct(joined, rows, of, many, "report", "process"),
            "streams": _distinct(joined, rows, of, many, "report", "process", "context", "stream"),
            "activities": counts(of, many),
            "kernels": counts(of[frames.is_kind(activities, frames.KERNEL)[rows]], many),
            "gpu_ns": total,
            "busy_ns": busy,
            "span_ns": span,
            "idle_ns": span - busy,
            "busy_share": ratio(busy, span),
            "concurrency": ratio(total, busy),
            "max_concurrent": _most(of, start, end, many),
            **{name: time for name, time in united.items() if name != "busy_ns"},
            **fullness(joined, rows, of, span),
        }
    )


def _united(joined: Attributed, device: Ints, counted: Flags, many: int) -> dict[str, Ints]:
    kinds = Kinds.of(joined)

    def length(chosen: Flags) -> Ints:
        return Running.of(joined, device, chosen & counted).total(many)

    compute, communication = length(kinds.compute), length(kinds.communication)
    either = length(~kinds.copies) if communication.any() else compute
    return {
        "busy_ns": length(counted),
        "compute_ns": compute,
        "communication_ns": communication,
        "memops_ns": length(kinds.copies),
        "overlap_ns": compute + communication - either,
        "exposed_ns": either - compute,
    }


def _distinct(joined: Attributed, rows: Ints, of: Ints, many: int, *columns: str) -> Ints:
    """Return how many distinct values of some columns each GPU has."""
    keys = [frames.ints(joined.report.activities, c) for c in columns]
    code = shared(keys)[0][rows]
    pairs = np.unique(of * (int(code.max(initial=0)) + 1) + code)
    return counts(pairs // (int(code.max(initial=0)) + 1), many)


def _most(of: Ints, start: Ints, end: Ints, many: int) -> Ints:
    """Return how many activities ran at once at most: at some start, and none has more after it than at one."""
    lasting = end > start
    of, start, end = of[lasting], start[lasting], end[lasting]
    order = by(of, start)
    of, start, ended = of[order], start[order], end[order][by(of[order], end[order])]
    most = np.zeros(many, np.int64)
    for one in range(many):  # a turn per GPU
        first, last = np.searchsorted(of, (one, one + 1))
        begun = np.arange(1, last - first + 1)
        over = np.searchsorted(ended[first:last], start[first:last], side="right")
        most[one] = (begun - over).max(initial=0)
    return most
