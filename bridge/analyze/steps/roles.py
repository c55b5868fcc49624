"""What the time of each step was spent on: of all that went on at an instant, what counts first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from bridge.analyze.roles import is_communication, loads_data
from bridge.join.attributed import Attributed
from bridge.join.intervals import unions
from bridge.join.order import Flags, Ints, runs, stable
from importers import frames
from importers.frames import shared

# As in TensorBoard's PyTorch plugin, and in its order.
ROLES = tuple("kernel memcpy memset communication runtime dataloader cpu other".split())
DATALOADER = "dataloader"
Intervals = tuple[Ints, Ints]


def breakdown(joined: Attributed, *windows: Intervals) -> list[dict[str, Ints]]:
    """Return for each role the time of some windows, in ns, at which it was going on and none before it was.

    Windows are given as start and end for each of the steps; what is returned is a dict for each set of windows.
    """
    found = [np.zeros((len(ROLES), len(joined.iterations)), np.int64) for _ in windows]
    for own, (start, end) in zip(found, windows, strict=True):
        own[-1] = end - start
    for (first, last), roles in _by_process(joined):
        going_on = Open.of(np.empty(0, np.int64), np.empty(0, np.int64))
        for nth, role in enumerate(roles):
            going_on = going_on.also(*role)
            for own, (start, end) in zip(found, windows, strict=True):
                passed = (going_on.before(time[first:last]) for time in (end, start))
                own[nth, first:last] = np.subtract(*passed)
    return [dict(zip(ROLES, np.diff(own, axis=0, prepend=0), strict=True)) for own in found]


@dataclass(frozen=True)
class Open:
    """Times at which anything of what was added was going on: from ``start`` to ``end``, apart and in order."""

    start: Ints
    end: Ints
    passed: Ints

    @classmethod
    def of(cls, start: Ints, end: Ints) -> Open:
        """Unite intervals."""
        _, start, end = unions(np.zeros(len(start), np.int64), start, end)
        return cls(start, end, np.append(0, np.cumsum(end - start)))

    def also(self, start: Ints, end: Ints) -> Open:
        """Add intervals."""
        if not len(start):
            return self
        return Open.of(np.concatenate((self.start, start)), np.concatenate((self.end, end)))

    def before(self, time: Ints) -> Ints:
        """Return how much of the time before each instant it was going on, in ns."""
        place = np.searchsorted(self.start, time, side="left")
        late = np.append(np.iinfo(np.int64).min, self.end)[place]
        passed: Ints = self.passed[place] - np.maximum(late, time) + time
        return passed


def _by_process(joined: Attributed) -> Iterator[tuple[tuple[int, int], list[Intervals]]]:
    """Give, for each process with steps, where they are and the intervals of each role but the last."""
    steps, report = joined.iterations, joined.report
    tables = (report.activities, report.launches, report.ranges)
    keys = [[frames.ints(table, c) for c in ("report", "process")] for table in tables]
    own, *codes = shared((steps.report, steps.process), *keys)
    rows = [_apart(code) for code in codes]
    device, dataloader = _device_roles(joined), loads_data(joined)[joined.op]
    pushed = frames.is_kind(report.ranges, frames.PUSH_POP)
    start, end = frames.ints(report.activities, "start"), joined.end
    none = np.empty(0, np.int64)
    for first, last in steps.by_process():
        work, calls, ranges = (of.get(int(own[first]), none) for of in rows)
        loading = ranges[dataloader[ranges]]
        others = ranges[pushed[ranges]]
        others = others[
            ~_around(report.ranges, others, steps.start[first:last], steps.end[first:last])
        ]
        moving = [work[flags[work]] for flags in device]
        yield (
            (first, last),
            [
                *((start[of], end[of]) for of in moving),
                _times(report.launches, calls),
                _times(report.ranges, loading),
                _times(report.ranges, others),
            ],
        )


def _device_roles(joined: Attributed) -> list[Flags]:
    activities, communicates = joined.report.activities, is_communication(joined)
    copies, fills = (frames.is_kind(activities, kind) for kind in (frames.COPY, frames.FILL))
    return [~copies & ~fills & ~communicates, copies, fills, communicates]


def _around(ranges: pd.DataFrame, rows: Ints, start: Ints, end: Ints) -> Flags:
    """Tell which ranges hold a whole step, or are one: they say nothing of what the host did in it."""
    opened, closed = _times(ranges, rows)
    place = np.searchsorted(start, opened, side="left")
    found: Flags = np.append(end, np.iinfo(np.int64).max)[place] <= closed
    return found


def _times(table: pd.DataFrame, rows: Ints) -> Intervals:
    return frames.ints(table, "start")[rows], frames.ints(table, "end")[rows]


def _apart(code: Ints) -> dict[int, Ints]:
    """Return the rows of each code."""
    order = stable(code) if len(code) else code
    return {int(code[order[a]]): order[a:b] for a, b in pairwise(runs(code[order]).tolist())}
