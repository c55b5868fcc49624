"""The tree of stacks, cut down to what a page can show; what is cut off is summed up where it was."""

from __future__ import annotations

from typing import Any

import numpy as np

from bridge.analyze.calltree import LEVELS, STEP, CallTree, calltree
from bridge.analyze.devices import Devices
from bridge.analyze.groups import counts, sums
from bridge.analyze.overview.axis import Axis, Bins, Names, largest
from bridge.analyze.roles import is_communication
from bridge.join.arrays import NONE, Flags, Ints, by, unions
from bridge.join.attributed import Attributed
from importers import frames

# -- How busy each device was over time: the share of every bin in which anything ran, by kind of work


MOST_BINS = 240
KINDS = ANY, COMPUTE, COMMUNICATION, MEMOPS = ("any", "compute", "communication", "memops")


def utilisation(joined: Attributed, axis: Axis) -> dict[str, Any] | None:
    """Return for each device and kind of work the time of every bin, in ns, in which any of it ran.

    Kinds that a device has none of are left out, and "any" stands alone where there is one other.
    """
    if not len(joined.report.activities) or not axis.length:
        return None
    bins, devices = axis.bins(MOST_BINS), Devices.of_report(joined)
    series = [_busy(joined, bins, devices, kind) for kind in KINDS]
    return {
        "bin_ns": bins.width,
        "length_ns": axis.length,
        "devices": [
            {
                "name": name,
                "series": _shown(
                    {kind: found[at] for kind, found in zip(KINDS, series, strict=True)}
                ),
            }
            for at, name in enumerate(devices.names)
        ],
    }


def _shown(series: dict[str, Ints]) -> dict[str, list[int]]:
    there = {kind: time.tolist() for kind, time in series.items() if time.any()}
    return there if len(there) != 2 else {ANY: series[ANY].tolist()}  # noqa: PLR2004 (any, and one kind)


def _busy(joined: Attributed, bins: Bins, devices: Devices, kind: str) -> Ints:
    """Return the busy time of each device (a row) in each bin."""
    rows = np.flatnonzero(_are(joined, kind))
    start = frames.ints(joined.report.activities, "start")[rows]
    device, begin, end = unions(devices.of[rows], start, joined.end[rows])
    piece, place, length = bins.spread(begin, end)
    size = len(devices.names)
    return sums(device[piece] * bins.count + place, length, size * bins.count).reshape(size, -1)


def _are(joined: Attributed, kind: str) -> Flags:
    activities = joined.report.activities
    if kind == ANY:
        return np.ones(len(activities), bool)
    is_copy = frames.is_kind(activities, frames.MEMCPY, frames.MEMSET)
    if kind == MEMOPS:
        return is_copy
    communicates = is_communication(joined)
    return communicates if kind == COMMUNICATION else ~communicates & ~is_copy


# -- The tree of stacks, cut down to what a page can show; what is cut off is summed up where it was


MOST = 3_000
MOST_STEPS = (
    64  # of more, each would be too thin to be told from the next: they are laid over each other
)
LEAST = 1_000  # frames below a thousandth of all are summed up
OTHER = "other"


def icicle(joined: Attributed, names: Names) -> dict[str, Any] | None:
    """Return the frames as columns, parents before children, children by size.

    ``value`` is what a frame and everything under it takes: time on the GPU, without any of that on
    the CPU (``unit`` says which); ``steps_merged`` counts steps that are not told apart. Level "other" stands for the frames under ``parent`` that are too small: the sum
    of a frame's own value and its children's is exact.
    """
    steps = 0 < len(joined.steps) <= MOST_STEPS
    tree = calltree(joined, steps=steps)
    unit = "gpu" if int(tree.gpu_self_ns.sum()) else "cpu"
    own = tree.gpu_self_ns if unit == "gpu" else tree.cpu_self_ns
    total = tree.total(np.maximum(own, 0))
    if not len(tree) or not total.max():
        return None
    merged = 0 if steps else len(joined.steps)
    return {
        "unit": unit,
        "steps_merged": merged,
        **_columns(tree, total, _kept(tree, total), names),
    }


def _kept(tree: CallTree, total: Ints) -> Flags:
    """Choose the largest frames: a parent is as large as its child and comes before it, so it is there too."""
    whole = int(total[tree.parent == NONE].sum())
    return largest(total, MOST) & (total * LEAST >= whole) & (total > 0)


def _columns(tree: CallTree, total: Ints, kept: Flags, names: Names) -> dict[str, Any]:
    cut = np.flatnonzero(~kept & np.append(kept, True)[tree.parent] & (total > 0))
    above, some = np.unique(tree.parent[cut], return_inverse=True)
    rest, size = sums(some, total[cut], len(above)), counts(some, len(above))
    rows = np.flatnonzero(kept)
    parent = np.concatenate((tree.parent[rows], above))
    value = np.concatenate((total[rows], rest))
    order = _drawn(tree, rows, above, value)
    place = np.full(len(tree), NONE)
    place[rows] = np.argsort(order)[: len(rows)]
    levels = [*(LEVELS[code] for code in tree.level[rows].tolist()), *[OTHER] * len(above)]
    named = names.of_codes(tree.code[rows], tree.names) + names.of(
        f"{n} smaller" for n in size.tolist()
    )
    return {
        "parent": np.where(parent == NONE, NONE, place[parent])[order].tolist(),
        "name": np.array(named, np.int64)[order].tolist(),
        "level": [levels[at] for at in order.tolist()],
        "value": value[order].tolist(),
        "count": np.concatenate((tree.count[rows], size))[order].tolist(),
    }


def _drawn(tree: CallTree, rows: Ints, above: Ints, value: Ints) -> Ints:
    """Return the order by depth: steps as they ran, all else by size, what is summed up last."""
    depth = np.concatenate((tree.depth[rows], np.append(tree.depth, NONE)[above] + 1))
    is_rest = np.arange(len(value)) >= len(rows)
    is_step = np.append(tree.level[rows], np.full(len(above), NONE)) == STEP
    return by(depth, is_rest.astype(np.int64), np.where(is_step, np.arange(len(value)), -value))
