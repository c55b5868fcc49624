"""What activities of a group amount to: count, sum, union, span, and how long single ones are."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bridge.analyze import tensor_cores
from bridge.analyze.breakdown import statistics
from bridge.analyze.breakdown.statistics import (
    TIMES,
    Columns,
    computed,
    named,
    span_apart,
    spread,
    times_of,
)
from bridge.analyze.groups import counts, quantiles, ratio, sums
from bridge.join.attributed import Attributed
from bridge.join.intervals import busy_apart
from bridge.join.order import Ints
from importers import frames


@dataclass(frozen=True)
class Groups:
    """Rows of a table of activities: the group of each of some activities; ``whole_ns`` is what shares are of."""

    joined: Attributed
    count: int
    rows: Ints
    group: Ints
    whole_ns: int

    def columns(self, wanted: Collection[str]) -> Columns:
        """Return the columns that are wanted, in the order of `COLUMNS`."""
        return computed(self, FIGURES, (*COLUMNS, "median_ns", TIMES, *statistics.NAMES), wanted)

    @property
    def time(self) -> Ints:
        """Time of each activity in ns."""
        return self.joined.duration[self.rows]

    def ints(self, column: str) -> Ints:
        """Return a column of the activities."""
        return frames.ints(self.joined.report.activities, column)[self.rows]


def _sums(groups: Groups) -> Columns:
    total = sums(groups.group, groups.time, groups.count)
    return {
        "count": counts(groups.group, groups.count),
        "total_ns": total,
        "share": ratio(total, groups.whole_ns),
    }


def _intervals(groups: Groups) -> Columns:
    clock, start = groups.ints("report"), groups.ints("start")
    intervals = (groups.group, clock, start, start + groups.time, groups.count)
    return {"busy_ns": busy_apart(*intervals), "span_ns": span_apart(*intervals)}


def _union(groups: Groups) -> Columns:
    start = groups.ints("start")
    return statistics.intervals(groups.group, start, start + groups.time, groups.count)


def _spread(groups: Groups) -> Columns:
    return spread("", groups.group, groups.time, groups.count)


def _bytes(groups: Groups) -> Columns:
    moved = np.maximum(groups.ints("bytes"), 0)
    moved = sums(groups.group, moved, groups.count)
    return {
        "bytes": moved,
        "gb_per_s": ratio(moved, sums(groups.group, groups.time, groups.count)),
    }


def _median(groups: Groups) -> Columns:
    (p50,) = quantiles(groups.group, groups.time, groups.count, 0.5)
    return {"median_ns": p50}


def _times(groups: Groups) -> Columns:
    return {TIMES: times_of(groups.group, groups.time, groups.count)}


def _tensor_cores(groups: Groups) -> Columns:
    return tensor_cores.figures(groups.joined, groups.rows, groups.group, groups.count)


FIGURES: Mapping[tuple[str, ...], Callable[[Groups], Columns]] = {
    ("count", "total_ns", "share"): _sums,
    ("busy_ns", "span_ns"): _intervals,
    named(""): _spread,
    ("bytes", "gb_per_s"): _bytes,
    ("median_ns",): _median,
    (TIMES,): _times,
    (statistics.FIRST, statistics.LAST, statistics.UNION): _union,
    tensor_cores.COLUMNS: _tensor_cores,
}
COLUMNS = (
    *("count", "total_ns", "busy_ns", "span_ns", *named(""), "bytes", "gb_per_s", "share"),
    *tensor_cores.COLUMNS,
)
SETS: Mapping[str, Sequence[str]] = {
    tensor_cores.SET: ("count", "total_ns", *tensor_cores.COLUMNS),
}
ALSO_MEDIAN = ("p50_ns",)  # what the table of kernels calls median_ns
