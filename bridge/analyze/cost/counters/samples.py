"""Samples of counters as values of intervals, and what they say about other intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.groups import highest, sums
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups, order_by, run_edges
from bridge.join.attributed import AttributedCapture, once

Numbers = NDArray[Any]  # of int64 or float64

MOST_INTERVALS = 2  # a sample later than so many usual intervals after the one before says nothing
EXACT = 1 << 62  # sums of value times ns below it are computed in integers, others in floats


@record
class Series:
    """The samples of one counter of a GPU, in order: ``value`` held from ``begin`` to ``end``, in ns.

    Samples do not overlap. ``interval_ns`` is the usual time between two samples, their median.
    """

    begin: Ints
    end: Ints
    value: Ints
    interval_ns: float = 0.0

    @classmethod
    def of(cls, time: Ints, value: Ints) -> Series:
        """Return the series of samples, whose times ascend.

        Each sample describes the time since the one before; the first one, and one that comes after
        more than `MOST_INTERVALS` usual intervals, describe nothing.
        """
        length = np.diff(time)
        lasting = np.flatnonzero(length > 0)
        if not len(lasting):
            return cls(lasting, lasting, lasting)
        usual = float(np.median(length[lasting]))
        rows = lasting[length[lasting] <= MOST_INTERVALS * usual]
        return cls(time[rows], time[rows + 1], value[rows + 1], usual)

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True)
class Totals:
    """What samples say of groups of intervals.

    ``sampled`` is the time of the intervals that samples describe, in ns, ``weighted`` the sum of
    value times that time, and ``peak`` the largest value among the samples, NONE without any.
    ``touched`` is the whole length of these samples, also outside of the intervals.
    """

    sampled: Ints
    weighted: Numbers
    peak: Ints
    touched: Ints

    @classmethod
    def combined(cls, parts: Sequence[Totals], groups: int) -> Totals:
        """Return the totals of several GPUs or reports together."""
        none = np.zeros(groups, np.int64)
        return cls(
            sum((part.sampled for part in parts), none),
            sum((part.weighted for part in parts), none),
            np.maximum.reduce([np.full(groups, NONE), *(part.peak for part in parts)]),
            sum((part.touched for part in parts), none),
        )

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean of each group, weighted by time; -1 for a group without samples."""
        result = np.full(len(self.sampled), float(NONE))
        np.divide(self.weighted, self.sampled, out=result, where=self.sampled > 0)
        return result


def project(series: Series, group: Ints, start: Ints, end: Ints, groups: int) -> Totals:
    """Return what a series says of groups of intervals.

    The intervals of a group do not overlap, and are sorted by group and start.
    """
    first = np.searchsorted(series.end, start, side="right")  # the first sample that ends later
    after = np.searchsorted(series.begin, end, side="left")  # the first that begins at the end
    met = np.flatnonzero((after > first) & (end > start))
    group, start, end, first, after = (c[met] for c in (group, start, end, first, after))
    cut_before = np.maximum(start - series.begin[first], 0)
    cut_after = np.maximum(series.end[after - 1] - end, 0)
    length, value = series.end - series.begin, _exact(series)
    sampled = _between(length, first, after) - cut_before - cut_after
    weighted = _between(length * value, first, after)
    weighted = weighted - cut_before * value[first] - cut_after * value[after - 1]
    return Totals(
        sums(group, sampled, groups),
        _sums(group, weighted, groups),
        highest(group, _peaks(series.value, first, after), groups),
        sums(group, _between(length, _unseen(group, first, after), after), groups),
    )


def _exact(series: Series) -> Numbers:
    """Return the values as integers if sums of them times ns fit into 64 bits, else as floats."""
    span = int(series.end[-1] - series.begin[0]) if len(series) else 0
    is_exact = int(series.value.max(initial=0)) * span < EXACT
    return series.value if is_exact else series.value.astype(np.float64)


def _between(values: Numbers, first: Ints, after: Ints) -> Numbers:
    """Return the sum of the values from each first place up to another."""
    before = np.append(np.zeros(1, values.dtype), np.cumsum(values))
    result: Numbers = before[after] - before[first]
    return result


def _sums(group: Ints, values: Numbers, groups: int) -> Numbers:
    """Return the sum of each group, in the type of the values."""
    total: Numbers = np.zeros(groups, values.dtype)
    np.add.at(total, group, values)
    return total


def _peaks(values: Ints, first: Ints, after: Ints) -> Ints:
    """Return the largest of the values from each first place up to another, which is behind it."""
    order = order_by(first, after)  # so that what lies between two intervals is short
    places = np.stack((first[order], after[order]), axis=1).ravel()
    result = np.empty(len(first), np.int64)
    if len(first):
        result[order] = np.maximum.reduceat(np.append(values, 0), places)[::2]
    return result


def _unseen(group: Ints, first: Ints, after: Ints) -> Ints:
    """Return the first sample of each interval that no interval of its group before it met."""
    result = first.copy()
    is_same = group[1:] == group[:-1]
    result[1:][is_same] = np.maximum(first[1:], after[:-1])[is_same]
    return result


# -- The samples of a capture


@record
class Sampled:
    """The samples of all counters: the rows of the frame in order of file, GPU, metric and time.

    ``edges`` are where each series begins in ``rows``, and their number; ``report``, ``gpu`` and
    ``metric`` are those of each series, of which the last is a position in ``names``.
    """

    rows: Ints
    edges: Ints
    report: list[int]
    gpu: list[int]
    metric: list[int]
    names: list[str]

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Sampled:
        """Return the samples of a capture; they are sorted once."""
        return _sampled(attributed)

    def find(self, report: int, gpu: int) -> dict[int, int]:
        """Return the series of a GPU of a file, by metric."""
        places = zip(self.report, self.gpu, self.metric, strict=True)
        return {
            metric: n
            for n, (of, number, metric) in enumerate(places)
            if (of, number) == (report, gpu)
        }


@once
def _sampled(attributed: AttributedCapture) -> Sampled:
    table = attributed.capture.gpu_metrics
    report, gpu, time = table.report, table.gpu, table.time
    metric = table.metric.codes
    of_row, first = number_groups(report, gpu, metric)
    rows = order_by(of_row, time)
    return Sampled(
        rows=rows,
        edges=run_edges(of_row[rows]),
        report=report[first].tolist(),
        gpu=gpu[first].tolist(),
        metric=metric[first].tolist(),
        names=list(table.metric.texts),
    )


def series_of(attributed: AttributedCapture, numbers: Sequence[int]) -> Series:
    """Return the series with these numbers in `Sampled` as one: values at equal times add up."""
    table, sampled = attributed.capture.gpu_metrics, Sampled.of(attributed)
    ends = [*pairwise(sampled.edges.tolist())]
    rows = np.concatenate([sampled.rows[slice(*ends[n])] for n in numbers])
    time, value = table.time[rows], table.value[rows]
    if len(numbers) > 1:
        time, of = np.unique(time, return_inverse=True)
        value = sums(of, value, len(time))
    return Series.of(time, value)
