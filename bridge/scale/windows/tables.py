"""One table over all windows of a report: rows are matched by name, unions and calls are exact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from bridge.analyze.core.calltree import subtree_sums
from bridge.analyze.core.catalog import VIEWS
from bridge.analyze.core.catalog.lookup import dimensions_of, rows_of
from bridge.analyze.core.catalog.views import ACTIVITIES, RANGES
from bridge.analyze.core.groups import sums
from bridge.analyze.core.table import Table
from bridge.analyze.tables.build import making
from bridge.analyze.tables.range_columns import first_slices
from bridge.analyze.tables.statistics import CALLS_OF, FIRST, LAST, THERE, UNION
from bridge.importers.arrays import factorize
from bridge.importers.frames import CALL_ID, CALL_ID_SHIFT
from bridge.importers.nsys.windows import Window
from bridge.join.arrays import NONE, Flags, Ints, number_groups, unions
from bridge.join.attributed import AttributedCapture
from bridge.scale.aggregates import label_values
from bridge.scale.merging import PartialTable, Times, match_rows
from bridge.scale.requests import OF_ONE_REPORT, PartRequest
from bridge.scale.windows.window import WindowCapture, WindowsError

# -- Calls that span several windows: their parts are added at the end


GPU, CPU = "gpu_times", "cpu_times"
MIX = [np.uint64(odd) for odd in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]


class OpenCalls:
    """Times of the calls of one direction that span several windows, by the row of their range."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.began: list[Mapping[str, Ints]] = []  # where they began: number, GPU, CPU
        self.went_on: list[Mapping[str, Ints]] = []  # where they went on
        self.slices: list[
            tuple[Ints, Ints]
        ] = []  # of a call in slices: each one's number, and the first one's

    def add(self, attributed: AttributedCapture, window: Window) -> Ints:
        """Note what a window has of them; return its ranges whose calls are, or may be, in other windows too."""
        number = window.number["ranges"]
        ranges = len(window.capture.ranges)
        of_range = _of_ranges(attributed, ranges)
        gone = np.flatnonzero(window.spanning & ~window.begun)
        self.went_on.append({"number": number[gone], **{n: of[gone] for n, of in of_range.items()}})
        call = attributed.call
        mine = np.flatnonzero(window.spanning & (call != NONE))
        calls = np.unique(call[mine])
        first = first_slices(attributed)
        listed = np.flatnonzero(call != NONE)
        total = {n: sums(call[listed], of[listed], len(first)) for n, of in of_range.items()}
        self.began.append(
            {"number": number[first[calls]], **{n: of[calls] for n, of in total.items()}}
        )
        self.slices.append((number[mine], number[first[call[mine]]]))
        return first[calls]

    def corrected(self, times: Times, calls: Times, which: str) -> Times:
        """Return the times of calls with those of later windows added.

        ``calls`` are the numbers of the calls that span windows, in the rows of ``times``.
        """
        if not len(calls.row):
            return times
        number, had = _sorted(_column(self.began, c) for c in ("number", which))
        place = np.searchsorted(number, calls.value)
        more = self._more(number, which)
        before = Times(calls.row, had[place], -calls.times)
        after = Times(calls.row, (had + more)[place], calls.times)
        rows = np.arange(1 + int(max(calls.row.max(), times.row.max(initial=0))))
        merged = Times.combined([times, before, after], [rows] * 3)
        if (merged.times < 0).any():  # better no figure than a wrong one
            raise WindowsError(self.name, "calls in several of its windows do not add up")
        left = merged.times != 0
        return Times(merged.row[left], merged.value[left], merged.times[left])

    def _more(self, number: Ints, which: str) -> Ints:
        """Return the times that calls, given by the sorted numbers of their first slices, have in later windows."""
        slice_, first = _sorted(np.concatenate(c) for c in zip(*self.slices, strict=True))
        on, added = (_column(self.went_on, c) for c in ("number", which))
        place = np.searchsorted(slice_, on)
        present = place < len(slice_)
        present[present] = (
            slice_[place[present]] == on[present]
        )  # no other is a call that is counted
        more = np.zeros(len(number), np.int64)
        np.add.at(more, np.searchsorted(number, first[place[present]]), added[present])
        return more


def _column(parts: Iterable[Mapping[str, Ints]], name: str) -> Ints:
    return np.concatenate([part[name] for part in parts])


def _sorted(columns: Iterable[Ints]) -> tuple[Ints, ...]:
    """Return columns sorted by the first one."""
    first, *others = columns
    order = np.argsort(first)
    return first[order], *(column[order] for column in others)


def _of_ranges(attributed: AttributedCapture, ranges: int) -> dict[str, Ints]:
    """Return the GPU time under each range and its host time, for calls of one direction."""
    nesting, node, listed = attributed.hierarchy, attributed.node, attributed.listed
    has = node != NONE
    total = subtree_sums(nesting, sums(node[has], attributed.duration[has], len(nesting)))
    range_ = nesting.range[listed]
    return {
        GPU: sums(range_, total[listed], ranges),
        CPU: sums(range_, (nesting.end - nesting.start)[listed], ranges),
    }


class Slices:
    """Checks that no call has slices that begin in two windows; slices of a call share an id."""

    def __init__(self, name: str) -> None:
        self.name, self.known = name, np.empty(0, np.uint64)

    def add(self, attributed: WindowCapture) -> None:
        """Take those of a window; WindowsError for one that other windows had slices of."""
        ranges = attributed.capture.ranges
        payload = ranges.payload
        sliced: Flags = attributed.listed_ranges & (payload >> CALL_ID_SHIFT == CALL_ID)
        if not sliced.any():
            return
        columns = [ranges.process[sliced], ranges.domain[sliced], ranges.payload[sliced]]
        mixed = [c.astype(np.uint64) * odd for c, odd in zip(columns, MIX, strict=True)]
        keys = np.unique(mixed[0] ^ mixed[1] ^ mixed[2])
        if np.isin(keys, self.known).any():
            raise WindowsError(self.name, "a call is in slices that begin in two of its windows")
        self.known = np.concatenate((self.known, keys))


# -- One table over all windows


ON_DEVICE = {RANGES: ("gpu_busy_ns", "gpu_span_ns"), ACTIVITIES: ("busy_ns", "span_ns")}
TIMES = "times"


class TableAccumulator:
    """One table, accumulated over windows.

    For every row it keeps the union of intervals that no later window can extend as ``busy``, the
    open intervals as row, start and end, and first start and last end.
    """

    def __init__(self, part: PartRequest) -> None:
        self.part = part
        self.rows = rows_of(part.by)
        self.busy_name, self.span_name = ON_DEVICE.get(self.rows, ("", ""))
        on_device = {self.busy_name, self.span_name}
        self.timed = not on_device.isdisjoint(part.columns)
        own = [c for c in part.columns if c not in on_device]
        own += [FIRST, LAST, UNION] if self.timed else []
        self.columns = [*own, *([THERE, CALLS_OF] if self.rows == RANGES else [])]
        self.merged: PartialTable | None = None
        nothing = np.empty(0, np.int64)
        self.open = nothing, nothing, nothing
        self.busy = self.first = self.last = nothing

    def add(self, attributed: WindowCapture, window: Window, spanning: Ints) -> None:
        """Add a window; ``spanning`` are the ranges whose calls may be in others."""
        table = making(attributed, self.part.request)(self.columns)
        times = [c for c in self.columns if c.endswith(TIMES)]
        private = {*times, FIRST, LAST, UNION, CALLS_OF}
        labels = {c: label_values(table[c]) for c in table.columns if c not in self.columns}
        self._told_apart(labels, window)
        sums = {c: table[c] for c in self.columns if c not in private}
        many = {c: Times.of(table[c].tolist()) for c in times}
        if self.rows == RANGES:
            many[CALLS_OF] = _calls(Times.of(table[CALLS_OF].tolist()), window, spanning)
        self._put(PartialTable(labels, sums, many), table, window.next_activity)

    def whole(self, open_calls: OpenCalls) -> PartialTable:
        """Return the table of all windows."""
        assert self.merged is not None
        merged = self.merged
        sums, times = dict(merged.sums), dict(merged.times)
        if self.timed:
            busy = self._closed(np.iinfo(np.int64).max)
            present = self.last >= self.first
            span = np.where(present, self.last - np.where(present, self.first, 0), 0)
            sums |= {self.busy_name: busy, self.span_name: np.where(present, span, 0)}
        calls = times.pop(CALLS_OF, None)
        if calls is not None:
            times = {c: open_calls.corrected(t, calls, c) for c, t in times.items()}
        present = sums.pop(THERE, np.ones(merged.rows, np.int64)) > 0
        sums = {c: sums[c] for c in self.part.columns if c in sums}
        return _taken(PartialTable(merged.labels, sums, times), np.flatnonzero(present))

    def _told_apart(self, labels: dict[str, np.ndarray], window: Window) -> None:
        """Refuse tables with two rows of one name: rows of two windows could not be matched."""
        if self.part.by in VIEWS or OF_ONE_REPORT.isdisjoint(dimensions_of(self.part.by)):
            return
        codes = [factorize(column)[0] for column in labels.values()]
        if len(number_groups(*codes)[1]) < len(codes[0]):
            what = f"two rows by {self.part.by} have one name"
            raise WindowsError(window.capture.source[0], what)

    def _put(self, part: PartialTable, table: Table, later: int) -> None:
        """Add the rows of a window."""
        parts = [part] if self.merged is None else [self.merged, part]
        self.merged, rows = match_rows(parts)
        if not self.timed:
            return
        size, of = self.merged.rows, rows[-1]
        had = rows[0] if len(rows) > 1 else np.empty(0, np.int64)
        self.busy = _added(size, had, self.busy, 0)
        self.first = _added(size, had, self.first, np.iinfo(np.int64).max)
        self.last = _added(size, had, self.last, np.iinfo(np.int64).min)
        np.minimum.at(self.first, of, table[FIRST])
        np.maximum.at(self.last, of, table[LAST])
        pairs = table[UNION].tolist()
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
        """Return ``busy`` with everything before ``until``; later windows may only add to what comes after it."""
        row, start, end = unions(*self.open)
        busy = self.busy.copy()
        np.add.at(busy, row, np.maximum(np.minimum(end, until) - start, 0))
        left = end > until
        self.open = row[left], np.maximum(start[left], until), end[left]
        return busy


def _calls(calls: Times, window: Window, spanning: Ints) -> Times:
    """Return the calls that may continue in other windows, by the numbers of their ranges."""
    present = np.isin(calls.value, spanning)
    return Times(
        calls.row[present], window.number["ranges"][calls.value[present]], calls.times[present]
    )


def _added(size: int, rows: Ints, values: Ints, empty: int) -> Ints:
    result = np.full(size, empty, np.int64)
    result[rows] = values
    return result


def _taken(table: PartialTable, rows: Ints) -> PartialTable:
    place = np.full(table.rows, -1)
    place[rows] = np.arange(len(rows))
    times = {}
    for name, of in table.times.items():
        present = place[of.row] >= 0
        times[name] = Times(place[of.row[present]], of.value[present], of.times[present])
    labels = {c: column[rows] for c, column in table.labels.items()}
    return PartialTable(labels, {c: column[rows] for c, column in table.sums.items()}, times)
