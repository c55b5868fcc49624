"""How full a GPU's multiprocessors were, estimated as TensorBoard's PyTorch plugin does from grids and blocks."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from bridge.analyze.groups import Floats
from bridge.analyze.occupancy import Occupancy
from bridge.join.attributed import Attributed
from bridge.join.order import Ints, by, runs
from importers import frames

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
