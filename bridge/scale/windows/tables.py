"""One table of aggregates over the windows of a report: rows of one name become one, unions and calls over cuts are exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pandas as pd

from bridge.analyze.calltree import subtree_sums
from bridge.analyze.groups import sums
from bridge.analyze.tables.range_metrics import first_slices
from bridge.analyze.tables.statistics import CALLS_OF, FIRST, LAST, THERE, UNION
from bridge.analyze.tables.table import making, rows_of
from bridge.analyze.tables.views import ACTIVITIES, RANGES, VIEWS, dimensions_of
from bridge.join.arrays import NONE, Flags, Ints, number, unions
from bridge.join.attributed import Attributed
from bridge.scale.aggregates import label, options
from bridge.scale.merging import Merged, Times, matched
from bridge.scale.requests import OF_ONE, Asked
from bridge.scale.windows.window import Part, WindowsError
from importers import frames
from importers.frames import CALL_ID, CALL_ID_SHIFT
from importers.nsys.windows import Window

# -- Calls that go on from one window into others: what they amount to in each, put together at the end


GPU, CPU = "gpu_times", "cpu_times"
MIX = [np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]


class Carried:
    """What calls of one direction amount to in the windows that they are in, by the row of their range."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.began: list[Mapping[str, Ints]] = []  # where they began: number, GPU, CPU
        self.went_on: list[Mapping[str, Ints]] = []  # where they went on
        self.slices: list[
            tuple[Ints, Ints]
        ] = []  # of a call in slices: each one's number, and the first one's

    def add(self, joined: Attributed, window: Window) -> Ints:
        """Note what a window has of them; return its ranges whose calls are, or may be, in other windows too."""
        number, ranges = window.number["ranges"], len(window.report.ranges)
        of_range = _of_ranges(joined, ranges)
        gone = np.flatnonzero(window.carried & ~window.begun)
        self.went_on.append({"number": number[gone], **{n: of[gone] for n, of in of_range.items()}})
        call = joined.call
        mine = np.flatnonzero(window.carried & (call != NONE))
        calls = np.unique(call[mine])
        first = first_slices(joined)
        listed = np.flatnonzero(call != NONE)
        total = {n: sums(call[listed], of[listed], len(first)) for n, of in of_range.items()}
        self.began.append(
            {"number": number[first[calls]], **{n: of[calls] for n, of in total.items()}}
        )
        self.slices.append((number[mine], number[first[call[mine]]]))
        return first[calls]

    def corrected(self, times: Times, calls: Times, which: str) -> Times:
        """Return the times of calls; ``calls`` are the numbers of those that went on, in the rows of ``times``."""
        if not len(calls.row):
            return times
        number, had = _sorted(_column(self.began, c) for c in ("number", which))
        asked = np.searchsorted(number, calls.value)
        more = self._more(number, which)
        before = Times(calls.row, had[asked], -calls.times)
        after = Times(calls.row, (had + more)[asked], calls.times)
        rows = np.arange(1 + int(max(calls.row.max(), times.row.max(initial=0))))
        found = Times.together([times, before, after], [rows] * 3)
        if (found.times < 0).any():  # better no figure than a wrong one
            raise WindowsError(self.name, "calls in several of its windows do not add up")
        left = found.times != 0
        return Times(found.row[left], found.value[left], found.times[left])

    def _more(self, number: Ints, which: str) -> Ints:
        """Return what calls, by the sorted numbers of their first slices, amount to where they only went on."""
        slice_, first = _sorted(np.concatenate(c) for c in zip(*self.slices, strict=True))
        on, added = (_column(self.went_on, c) for c in ("number", which))
        place = np.searchsorted(slice_, on)
        there = place < len(slice_)
        there[there] = slice_[place[there]] == on[there]  # no other is a call that is counted
        more = np.zeros(len(number), np.int64)
        np.add.at(more, np.searchsorted(number, first[place[there]]), added[there])
        return more


def _column(parts: Iterable[Mapping[str, Ints]], name: str) -> Ints:
    return np.concatenate([part[name] for part in parts])


def _sorted(columns: Iterable[Ints]) -> tuple[Ints, ...]:
    """Return columns in the order of the first one."""
    first, *others = columns
    order = np.argsort(first)
    return first[order], *(column[order] for column in others)


def _of_ranges(joined: Attributed, ranges: int) -> dict[str, Ints]:
    """Return the time on the GPU under each range, and on the host in it, as calls of its direction have them."""
    nesting, node, listed = joined.attribution.nesting, joined.node, joined.listed
    has = node != NONE
    total = subtree_sums(nesting, sums(node[has], joined.duration[has], len(nesting)))
    range_ = nesting.range[listed]
    return {
        GPU: sums(range_, total[listed], ranges),
        CPU: sums(range_, (nesting.end - nesting.start)[listed], ranges),
    }


class Slices:
    """Calls in slices, which share an id: none may have slices that begin in two windows."""

    def __init__(self, name: str) -> None:
        self.name, self.known = name, np.empty(0, np.uint64)

    def add(self, joined: Part) -> None:
        """Take those of a window; WindowsError for one that other windows had slices of."""
        ranges = joined.report.ranges
        payload = frames.ints(ranges, "payload")
        sliced: Flags = joined.listed_ranges & (payload >> CALL_ID_SHIFT == CALL_ID)
        if not sliced.any():
            return
        columns = [frames.ints(ranges, c)[sliced] for c in ("process", "domain", "payload")]
        mixed = [c.astype(np.uint64) * odd for c, odd in zip(columns, MIX, strict=True)]
        keys = np.unique(mixed[0] ^ mixed[1] ^ mixed[2])
        if np.isin(keys, self.known).any():
            raise WindowsError(self.name, "a call is in slices that begin in two of its windows")
        self.known = np.concatenate((self.known, keys))


# -- One table of aggregates over the windows of a report: rows of one name become one, unions and calls over cuts are exact


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
