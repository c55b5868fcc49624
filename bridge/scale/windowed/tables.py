"""One table of aggregates over the windows of a report: rows of one name become one, unions and calls over cuts are exact."""

from __future__ import annotations

import numpy as np
import pandas as pd

from bridge.analyze.breakdown import ACTIVITIES, RANGES
from bridge.analyze.breakdown.partial import CALLS_OF, FIRST, LAST, THERE, UNION
from bridge.analyze.tables import making, rows_of
from bridge.analyze.views import VIEWS, dimensions_of
from bridge.join.intervals import unions
from bridge.join.order import Ints, number
from bridge.scale.aggregates import label, options
from bridge.scale.asked import OF_ONE, Asked
from bridge.scale.merging import Merged, Times, matched
from bridge.scale.windowed.carried import Carried
from bridge.scale.windowed.errors import WindowsError
from bridge.scale.windowed.part import Part
from importers.nsys.windows import Window

ON_DEVICE = {RANGES: ("gpu_busy_ns", "gpu_span_ns"), ACTIVITIES: ("busy_ns", "span_ns")}
TIMES = "times"


class Gathered:
    """A table as far as windows were added to it.

    Of every row: the union of its intervals that ended before any later window has work, as ``busy``; of what did not,
    ``row``, ``start`` and ``end``; first start and last end.
    """

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.rows = rows_of(asked.by)
        self.busy_name, self.span_name = ON_DEVICE.get(self.rows, ("", ""))
        on_device = {self.busy_name, self.span_name}
        self.timed = not on_device.isdisjoint(asked.columns)
        own = [c for c in asked.columns if c not in on_device]
        own += [FIRST, LAST, UNION] if self.timed else []
        self.columns = [*own, *([THERE, CALLS_OF] if self.rows == RANGES else [])]
        self.merged: Merged | None = None
        nothing = np.empty(0, np.int64)
        self.open = nothing, nothing, nothing
        self.busy = self.first = self.last = nothing

    def add(self, joined: Part, window: Window, carried: Ints) -> None:
        """Add a window; ``carried`` are the ranges whose calls may be in others."""
        found = making(joined, self.asked.by, options(self.asked))(self.columns)
        times = [c for c in self.columns if c.endswith(TIMES)]
        private = {*times, FIRST, LAST, UNION, CALLS_OF}
        labels = {c: label(found[c]) for c in found.columns if c not in self.columns}
        self._told_apart(labels, window)
        sums = {c: found[c].to_numpy(np.int64) for c in self.columns if c not in private}
        many = {c: Times.of(found[c].tolist()) for c in times}
        if self.rows == RANGES:
            many[CALLS_OF] = _calls(Times.of(found[CALLS_OF].tolist()), window, carried)
        self._put(Merged(labels, sums, many), found, window.later)

    def whole(self, carried: Carried) -> Merged:
        """Return the table of all windows."""
        assert self.merged is not None
        merged = self.merged
        sums, times = dict(merged.sums), dict(merged.times)
        if self.timed:
            busy = self._closed(np.iinfo(np.int64).max)
            there = self.last >= self.first
            span = np.where(there, self.last - np.where(there, self.first, 0), 0)
            sums |= {self.busy_name: busy, self.span_name: np.where(there, span, 0)}
        calls = times.pop(CALLS_OF, None)
        if calls is not None:
            times = {c: carried.corrected(t, calls, c) for c, t in times.items()}
        there = sums.pop(THERE, np.ones(merged.rows, np.int64)) > 0
        sums = {c: sums[c] for c in self.asked.columns if c in sums}
        return _taken(Merged(merged.labels, sums, times), np.flatnonzero(there))

    def _told_apart(self, labels: dict[str, np.ndarray], window: Window) -> None:
        """Refuse rows that only their place tells apart: those of two windows could not be matched."""
        if self.asked.by in VIEWS or OF_ONE.isdisjoint(dimensions_of(self.asked.by)):
            return
        codes = [pd.factorize(column)[0].astype(np.int64) for column in labels.values()]
        if len(number(*codes)[1]) < len(codes[0]):
            what = f"two rows by {self.asked.by} have one name"
            raise WindowsError(window.report.source[0], what)

    def _put(self, part: Merged, found: pd.DataFrame, later: int) -> None:
        """Add the rows of a window to those there are."""
        parts = [part] if self.merged is None else [self.merged, part]
        self.merged, rows = matched(parts)
        if not self.timed:
            return
        size, of = self.merged.rows, rows[-1]
        had = rows[0] if len(rows) > 1 else np.empty(0, np.int64)
        self.busy = _added(size, had, self.busy, 0)
        self.first = _added(size, had, self.first, np.iinfo(np.int64).max)
        self.last = _added(size, had, self.last, np.iinfo(np.int64).min)
        np.minimum.at(self.first, of, found[FIRST].to_numpy(np.int64))
        np.maximum.at(self.last, of, found[LAST].to_numpy(np.int64))
        pairs = found[UNION].tolist()
        sizes = np.array([len(pair) for pair in pairs], np.int64)
        both = np.concatenate([np.empty((0, 2), np.int64), *pairs])
        row, start, end = self.open
        self.open = (
            np.concatenate((had[row], np.repeat(of, sizes))),
            np.concatenate((start, both[:, 0])),
            np.concatenate((end, both[:, 1])),
        )
        self.busy = self._closed(later)

    def _closed(self, until: int) -> Ints:
        """Return ``busy`` with what lies before a time, from which alone more may come; keep the rest."""
        row, start, end = unions(*self.open)
        busy = self.busy.copy()
        np.add.at(busy, row, np.maximum(np.minimum(end, until) - start, 0))
        left = end > until
        self.open = row[left], np.maximum(start[left], until), end[left]
        return busy


def _calls(calls: Times, window: Window, carried: Ints) -> Times:
    """Return those calls that may be in other windows, by the numbers of their ranges."""
    there = np.isin(calls.value, carried)
    return Times(calls.row[there], window.number["ranges"][calls.value[there]], calls.times[there])


def _added(size: int, rows: Ints, values: Ints, empty: int) -> Ints:
    found = np.full(size, empty, np.int64)
    found[rows] = values
    return found


def _taken(table: Merged, rows: Ints) -> Merged:
    """Return some rows of a table."""
    place = np.full(table.rows, -1)
    place[rows] = np.arange(len(rows))
    times = {}
    for name, of in table.times.items():
        there = place[of.row] >= 0
        times[name] = Times(place[of.row[there]], of.value[there], of.times[there])
    labels = {c: column[rows] for c, column in table.labels.items()}
    return Merged(labels, {c: column[rows] for c, column in table.sums.items()}, times)
