"""The table per phase: start/end ranges, which any thread may end and which may overlap."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from bridge.analyze.groups import ratio, texts
from bridge.join.attributed import Attributed
from bridge.join.intervals import busy
from bridge.join.order import NONE, Ints, by, number
from importers import frames


def by_phase(joined: Attributed) -> pd.DataFrame:
    """Return one row per name of a phase.

    An activity is in a phase if its API call began in one of that name in its process, on whatever
    thread: once per name, and in as many names as were open. ``wall`` is the union of the phases on the
    host; ``open`` counts those that never ended.
    """
    ranges = joined.report.ranges
    rows = np.flatnonzero(frames.is_kind(ranges, frames.START_END))
    code, used = pd.factorize(frames.codes(ranges["name"])[rows])
    launched = _Launched(joined)
    found = [launched.figures(rows[code == n]) for n in range(len(used))]
    names = texts(ranges["name"].cat.categories)[used]
    table = pd.DataFrame(found, columns=COLUMNS, dtype=np.int64)
    table.insert(0, "phase", names)
    return table.assign(share=ratio(table["gpu_ns"].to_numpy(), int(joined.duration.sum())))


COLUMNS = ["ranges", "open", "activities", "kernels", "gpu_ns", "gpu_busy_ns", "wall_ns"]


class _Launched:
    """Activities with an API call, by process and the time of the call."""

    def __init__(self, joined: Attributed) -> None:
        report, self.joined = joined.report, joined
        rows = np.flatnonzero(joined.attribution.launch != NONE)
        call = joined.attribution.launch[rows]
        time = frames.ints(report.launches, "start")[call]
        keys = [
            np.concatenate((frames.ints(report.launches, c)[call], frames.ints(report.ranges, c)))
            for c in ("report", "process")
        ]
        process, _ = number(*keys)
        self.process_of_range = process[len(rows) :]
        order = by(process[: len(rows)], time)
        self.row, self.process, self.time = rows[order], process[: len(rows)][order], time[order]
        self.is_kernel = frames.is_kind(report.activities, frames.KERNEL)

    def figures(self, phases: Ints) -> list[int]:
        """Return the figures of the phases of one name."""
        ranges = self.joined.report.ranges
        start, end = (frames.ints(ranges, c)[phases] for c in ("start", "end"))
        process = self.process_of_range[phases]
        rows = np.unique(
            np.concatenate([np.empty(0, np.int64), *self._within(process, start, end)])
        )
        activities = self.joined.report.activities
        times = (frames.ints(activities, c)[rows] for c in ("report", "start", "end"))
        return [
            len(phases),
            int(ranges["open"].to_numpy()[phases].sum()),
            len(rows),
            int(self.is_kernel[rows].sum()),
            int(self.joined.duration[rows].sum()),
            _union(*times),
            _union(process, start, end),
        ]

    def _within(self, process: Ints, start: Ints, end: Ints) -> Iterator[Ints]:
        """Yield the activities launched in the phases of each process."""
        for one in np.unique(process).tolist():
            ours = process == one
            first, last = np.searchsorted(self.process, (one, one + 1))
            time = self.time[first:last]
            opened, closed = (np.searchsorted(time, t[ours], "left") for t in (start, end))
            closed = np.maximum(opened, closed)
            # How many phases are open at each call: those that have begun, less those that have ended.
            depth = np.zeros(len(time) + 1, np.int64)
            np.add.at(depth, opened, 1)
            np.subtract.at(depth, closed, 1)
            yield self.row[first:last][np.cumsum(depth)[:-1] > 0]


def _union(group: Ints, start: Ints, end: Ints) -> int:
    """Return the length of the union, that of each group apart."""
    code, some = number(group)
    return int(busy(code, start, end, len(some)).sum())
