"""Frames: ranges of the category `frame`, which repeat, and how many of them begin per second.

A series is the frames of one name and domain in one process. The rate of a frame is one by the time
from the begin of the frame before it.
"""

from __future__ import annotations

import numpy as np

from bridge.analyze.core.groups import Floats, counts, highest, lowest, quantiles
from bridge.analyze.core.table import Table
from bridge.importers import frames
from bridge.importers.records import record
from bridge.join.arrays import NONE, Ints, number_groups, order_by
from bridge.join.attributed import AttributedCapture

CATEGORY = "frame"  # NVTX category
NS_PER_S = 1_000_000_000
UNKNOWN = -1.0


@record
class Frames:
    """The frames of a report by series and begin.

    Attributes:
        row: the row of each range.
        series: the number of its series.
        first: the place of the first frame of each series.
        since: ns since the begin of the frame before, NONE for the first of a series.

    """

    row: Ints
    series: Ints
    first: Ints
    since: Ints

    @classmethod
    def of(cls, attributed: AttributedCapture) -> Frames:
        """Find the frames of a report, in the selected time."""
        ranges, category = attributed.capture.ranges, attributed.capture.ranges.category
        row = np.flatnonzero(category.among(CATEGORY) & attributed.counted_ranges)
        keys = [ranges.report[row], ranges.process[row]]
        keys += [ranges[c].codes[row] for c in ("domain_name", "name")]
        series, _ = number_groups(*keys)
        start = ranges.start[row]
        order = order_by(series, start)
        row, series, start = row[order], series[order], start[order]
        is_first = np.append(True, series[1:] != series[:-1])[: len(series)]
        since = np.where(is_first, NONE, start - np.append(0, start[:-1])[: len(start)])
        return cls(row, series, np.flatnonzero(is_first), since)

    @property
    def rate(self) -> Floats:
        """Frames per second at the begin of each frame, 0 where none can be told."""
        known = self.since > 0
        rate: Floats = np.where(known, NS_PER_S / np.where(known, self.since, 1), 0)
        return rate


def by_frame(attributed: AttributedCapture) -> Table:
    """Return one row per process, domain and name of frames.

    ``frames_per_s`` is their number less one by the time from the first begin to the last, -1 if
    there is no such time. ``mean`` to ``max`` are of how long frames took.
    """
    found, ranges = Frames.of(attributed), attributed.capture.ranges
    groups, row, series = len(found.first), found.row, found.series
    start, end = ranges.start[row], ranges.end[row]
    length = np.maximum(end - start, 0)
    number = counts(series, groups)
    begun = highest(series, start, groups) - lowest(series, start, groups)
    total = np.bincount(series, length, minlength=groups)
    p50, p95 = quantiles(series, length, groups, 0.5, 0.95)
    first = row[found.first]
    return Table(
        {
            "frame": ranges.name[first],
            "domain": ranges.domain_name[first],
            "pid": frames.pid(ranges.process[first]),
            "frames": number,
            "open": counts(series[ranges.open[row]], groups),
            "frames_per_s": np.where(
                begun > 0, (number - 1) * NS_PER_S / np.maximum(begun, 1), UNKNOWN
            ),
            "mean_ns": total / np.maximum(number, 1),
            "p50_ns": p50,
            "p95_ns": p95,
            "max_ns": highest(series, length, groups),
        }
    )
