"""Compute the data of plots as arrays: bars of ops, work over time, histograms of durations."""

from __future__ import annotations

from fnmatch import fnmatchcase

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import Floats, counts, sums
from bridge.analyze.draw.overview.axis import Axis
from bridge.importers import frames
from bridge.importers.arrays import lookup, positions
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups, order_by
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import ATTRIBUTED, REASONS

PARTS = ("kernels, forward", "kernels, backward", "memcpys", "memsets", "graphs")
OTHER_OP, OTHER_OPS = "other op", "other ops"
NO_OP = "no op"
BINS = 400  # of time; finer than the width of a page can show
PER_DECADE = 20  # bins of a histogram
MAX_STREAMS = 12


@record
class Bars:
    """Time in ns by name (rows) and by part of `PARTS` (columns).

    The last ``reasons`` names are reasons for missing attribution.
    """

    names: list[str]
    parts: Ints
    reasons: int

    @property
    def total_ns(self) -> Ints:
        """Time in ns per name."""
        total: Ints = self.parts.sum(axis=1)
        return total

    @property
    def whole_ns(self) -> int:
        """Time in ns of all names."""
        return int(self.parts.sum())


@record
class Lanes:
    """Utilisation of each stream in bins of ``width_ns``: shares by lane, group and bin.

    ``steps`` are the starts of steps in ns from the start of the plot; ``left`` is the number of
    lanes that are not shown.
    """

    lanes: list[str]
    groups: list[str]
    shares: Floats
    width_ns: int
    steps: Ints
    left: int

    @property
    def group_shares(self) -> list[float]:
        """Sum of the shares of each group over all lanes and bins."""
        shares: list[float] = self.shares.sum(axis=(0, 2)).tolist()
        return shares


@record
class Durations:
    """Histograms of durations: counts by name and bin between ``edges_ns``."""

    names: list[str]
    counts: Ints
    total_ns: Ints
    edges_ns: Floats

    @property
    def activities(self) -> Ints:
        """Number of activities per name."""
        total: Ints = self.counts.sum(axis=1)
        return total


def breakdown(attributed: AttributedCapture, top: int) -> Bars:
    """Return the ops with the largest self time, the others as one, then work without an op."""
    ops, reason, time = len(attributed.ops), attributed.attribution.reason, attributed.duration
    group = np.where(reason == ATTRIBUTED, attributed.activity_op, ops + reason.astype(np.int64))
    size = ops + len(REASONS)
    parts = sums(group * len(PARTS) + _part(attributed), time, size * len(PARTS))
    parts = parts.reshape(size, len(PARTS))
    total = parts.sum(axis=1)
    ranked = order_by(-total[:ops])
    ranked = ranked[total[ranked] > 0]
    rows, others = ranked[:top], ranked[top:]
    names = [attributed.ops[row] for row in rows.tolist()]
    rows_of_parts = [parts[rows]]
    if len(others):
        names.append(f"{len(others):,} {OTHER_OP if len(others) == 1 else OTHER_OPS}")
        rows_of_parts.append(parts[others].sum(axis=0, keepdims=True))
    reason_rows = ops + np.flatnonzero(total[ops:] > 0)
    names += [list(REASONS)[row - ops].replace("_", " ") for row in reason_rows.tolist()]
    return Bars(names, np.concatenate([*rows_of_parts, parts[reason_rows]]), len(reason_rows))


def over_time(attributed: AttributedCapture, top: int) -> Lanes:
    """Return what ran on each stream over time: the ``top`` ops, and the others as one group."""
    start, end = attributed.capture.activities.start, attributed.end
    axis = Axis(int(start.min()), int(end.max())) if len(start) else Axis(0, 0)
    lane, lanes = _lanes(attributed)
    busiest = order_by(-sums(lane, attributed.duration, len(lanes)))[:MAX_STREAMS]
    shown = np.sort(busiest)
    place = positions(shown, len(lanes))
    group, groups = _top_ops(attributed, top)
    bins = axis.bins(BINS)
    rows = np.flatnonzero(place[lane] != NONE)
    piece, bin_number, length = bins.spread(start[rows], end[rows])
    cell = place[lane[rows]] * len(groups) + group[rows]
    spent = sums(
        cell[piece] * bins.count + bin_number, length, len(shown) * len(groups) * bins.count
    )
    # Work on one stream may overlap, so shares are scaled to at most 1.
    shares = spent.reshape(len(shown), len(groups), bins.count) / bins.width
    shares /= np.maximum(shares.sum(axis=1, keepdims=True), 1)
    steps = attributed.steps.start
    return Lanes(
        lanes=[lanes[n] for n in shown.tolist()],
        groups=groups,
        shares=shares,
        width_ns=bins.width,
        steps=steps[(steps >= axis.start) & (steps < axis.end)] - axis.start,
        left=len(lanes) - len(shown),
    )


def durations(attributed: AttributedCapture, top: int, op: str = "*") -> Durations:
    """Return histograms of the durations of activities, for the names with the most time.

    ``op`` is an `fnmatch` pattern of ops; ``*`` includes activities without an op. Activities of 0
    ns are left out, as the scale is logarithmic.
    """
    is_selected = np.array([*(fnmatchcase(name, op) for name in attributed.ops), op == "*"], bool)
    rows = np.flatnonzero(is_selected[attributed.activity_op] & (attributed.duration > 0))
    column = attributed.activity_name
    name, time = column.codes[rows], attributed.duration[rows]
    total = sums(name, time, len(column.texts))
    ranked = order_by(-total)
    ranked = ranked[total[ranked] > 0][:top]
    rank = positions(ranked, len(total))
    is_listed = rank[name] != NONE
    bin_number = np.floor(np.log10(time[is_listed]) * PER_DECADE).astype(np.int64)
    first, last = int(bin_number.min(initial=0)), int(bin_number.max(initial=0))
    if len(bin_number):
        first = int(bin_number.min())
    width = last - first + 1
    result = counts(rank[name[is_listed]] * width + bin_number - first, len(ranked) * width)
    edges = 10.0 ** (np.arange(first, last + 2) / PER_DECADE)
    names = [column.texts[n] for n in ranked.tolist()]
    return Durations(names, result.reshape(len(ranked), width), total[ranked], edges)


def _part(attributed: AttributedCapture) -> Ints:
    """Return the part of each activity, a position in `PARTS`."""
    kind = attributed.capture.activities.kind.codes
    backward = lookup(attributed.directions.backward, attributed.attribution.node, False)
    return np.where(kind == 0, backward.astype(np.int64), kind + 1)


def _top_ops(attributed: AttributedCapture, top: int) -> tuple[Ints, list[str]]:
    """Return the group of each activity: one of the ``top`` ops, other ops, or no op."""
    op, ops = attributed.activity_op, len(attributed.ops)
    self_time = sums(op[op != NONE], attributed.duration[op != NONE], ops)
    ranked = order_by(-self_time)
    ranked = ranked[self_time[ranked] > 0][:top]
    rank = np.full(ops + 1, len(ranked))
    rank[ranked] = np.arange(len(ranked))
    rank[ops] = len(ranked) + 1
    return rank[op], [*(attributed.ops[o] for o in ranked.tolist()), OTHER_OPS, NO_OP]


def _lanes(attributed: AttributedCapture) -> tuple[Ints, list[str]]:
    """Return the stream of each activity, and the names of streams in order of devices."""
    devices, activities = Devices.of_report(attributed), attributed.capture.activities
    process, stream = activities.process, activities.stream
    lane, rows = number_groups(devices.gpu, process, stream)
    is_multi_process = len(np.unique(process)) > 1
    names = [
        f"{devices.names[devices.gpu[row]]}, stream {stream[row]}"
        + (f", process {frames.pid(process[row])}" if is_multi_process else "")
        for row in rows.tolist()
    ]
    return lane, names
