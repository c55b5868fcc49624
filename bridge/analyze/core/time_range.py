"""Select parts of a capture by time: by the clock, by training steps or by ranges."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from itertools import pairwise

import numpy as np

from bridge.analyze.core.calltree import subtree_extremes
from bridge.analyze.core.filters import wildcard_pattern
from bridge.analyze.core.groups import highest, lowest
from bridge.importers import frames
from bridge.importers.arrays import MISSING
from bridge.importers.frames import Instants, Records, key_codes
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, order_by, run_edges
from bridge.join.attributed import AttributedCapture, RowSelection
from bridge.join.steps import Steps
from bridge.knowledge.abbreviations import abbreviated
from bridge.knowledge.suggestions import unknown_name

NEVER = np.iinfo(np.int64).max
ALWAYS = -(1 << 62)  # before any time, whatever the clock


@record
class Windows:
    """Intervals ``start <= t < end`` in ns per file, sorted, without overlap within a file."""

    report: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, report: Ints, start: Ints, end: Ints) -> Windows:
        """Return the union of intervals; those that overlap or touch are merged."""
        order = order_by(report, start)
        report, start, end = report[order], start[order], end[order]
        is_first = np.ones(len(report), bool)
        latest_end = end.copy()
        for a, b in _runs(report):
            latest_end[a:b] = np.maximum.accumulate(end[a:b])
            is_first[a + 1 : b] = start[a + 1 : b] > latest_end[a : b - 1]
        is_last = np.append(is_first[1:], True)[: len(is_first)]
        return cls(report[is_first], start[is_first], latest_end[is_last])

    @property
    def hull(self) -> tuple[int, int]:
        """The first start and the last end; (0, 0) if there is no window."""
        if not len(self.start):
            return 0, 0
        return int(self.start.min()), int(self.end.max())

    def of_report(self, report: int) -> Windows:
        is_of_report = self.report == report
        return Windows(self.report[is_of_report], self.start[is_of_report], self.end[is_of_report])

    def __and__(self, other: Windows) -> Windows:
        """Return the times in windows of both, which have a length."""
        both = (self, other)
        report = np.concatenate([w.report for w in both] * 2)
        time = np.concatenate([w.start for w in both] + [w.end for w in both])
        opened = np.repeat([1, -1], len(time) // 2)
        order = order_by(report, time, opened)  # what ends at a time does so before another begins
        rows = np.flatnonzero(np.cumsum(opened[order]) == len(both))
        return Windows(report[order[rows]], time[order[rows]], time[order[rows + 1]])

    def moved(self, by: Ints) -> Windows:
        """Return the windows shifted by ``by`` ns per file; a window without an end stays so."""
        end = np.where(self.end == NEVER, NEVER, self.end + by[self.report])
        return Windows(self.report, self.start + by[self.report], end)

    def meet(self, report: Ints, start: Ints, end: Ints) -> Flags:
        """Return whether each interval overlaps a window.

        An interval of length 0 does if it lies in a window.
        """
        result = np.zeros(len(start), bool)
        for a, b in _runs(self.report):
            intervals = np.flatnonzero(report == self.report[a])
            # The first window that ends after the start of the interval.
            following = np.searchsorted(self.end[a:b], start[intervals], side="right") + a
            rows = np.minimum(following, b - 1)
            begins = self.start[rows]
            result[intervals] = (following < b) & (
                (begins < end[intervals]) | (begins <= start[intervals])
            )
        return result


def clock_window(
    attributed: AttributedCapture, first: int | None, last: int | None, offset: Ints | None = None
) -> Windows:
    """Return the time from ``first`` to ``last``, in ns since the first event of all files.

    ``offset`` is added to the clock of each file to get a common clock; without it times are
    compared as recorded. Raises ValueError with a message for the user if the window ends before it
    starts.
    """
    facts = attributed.capture.facts
    offsets = [0] * len(facts) if offset is None else offset.tolist()
    base = min(fact.span[0] + shift for fact, shift in zip(facts, offsets, strict=True))
    if first is not None and last is not None and first >= last:
        raise ValueError("the window ends before it starts")
    start = [ALWAYS if first is None else min(base + first - shift, NEVER) for shift in offsets]
    end = [NEVER if last is None else min(base + last - shift, NEVER) for shift in offsets]
    return Windows(np.arange(len(facts)), np.array(start, np.int64), np.array(end, np.int64))


def step_windows(attributed: AttributedCapture, first: int, last: int) -> Windows:
    """Return the times of the steps with these numbers, up to the end of the last work of each.

    Raises ValueError with a message for the user if there is no such step.
    """
    steps, positions = attributed.steps, steps_numbered(attributed.steps, first, last)
    step = attributed.activity_step
    has_step = step != NONE
    work_end = highest(step[has_step], attributed.end[has_step], len(steps))
    return Windows.of(
        steps.report[positions], steps.start[positions], np.maximum(steps.end, work_end)[positions]
    )


def range_windows(attributed: AttributedCapture, name: str) -> Windows:
    """Return the times of the ranges with this name or op, up to the end of their last work.

    The name may hold ``*`` and ``?``. Raises ValueError with a message for the user if there is no
    such range.
    """
    ranges, rows = attributed.capture.ranges, named_ranges(attributed, name)
    end = np.maximum(ranges.end, _work_ends(attributed))[rows]
    return Windows.of(ranges.report[rows], ranges.start[rows], end)


def steps_numbered(steps: Steps, first: int, last: int) -> Ints:
    """Return the positions of the steps with these numbers.

    Raises ValueError with a message for the user if there is no such step.
    """
    if not len(steps):
        raise ValueError(
            "no steps in the report that ranges mark: they are called step N, iteration N, batch N, ProfilerStep#N,"
            " or have another number that counts up"
        )
    positions = np.flatnonzero((steps.number >= first) & (steps.number <= last))
    if not len(positions):
        low, high = int(steps.number.min()), int(steps.number.max())
        raise ValueError(f"no such step: the report has {low} to {high}")
    return positions


def named_ranges(attributed: AttributedCapture, name: str) -> Ints:
    """Return the ranges with this name or op, as recorded or as tables abbreviate it.

    The name may hold ``*`` and ``?``. Raises ValueError with a message for the user if there is no such range.
    """
    column = attributed.capture.ranges.name
    matches = wildcard_pattern(name).fullmatch
    has_name = _rows_with_name(column.codes, column.texts, matches)
    has_op = _rows_with_name(attributed.op, attributed.ops, matches)
    has_short_op = _rows_with_name(attributed.op, abbreviated(attributed.ops), matches)
    rows = np.flatnonzero(has_name | has_op | has_short_op)
    if not len(rows):
        raise ValueError(
            unknown_name("range", name, attributed.ops, "bridge report REPORT --by range")
        )
    return rows


def _rows_with_name(codes: Ints, names: Iterable[str], matches: Callable[[str], object]) -> Flags:
    is_match = np.array([*(bool(matches(name)) for name in names), False])
    result: Flags = is_match[codes]
    return result


def _work_ends(attributed: AttributedCapture) -> Ints:
    """Return the end of the last activity under each range, the minimum of int64 if none."""
    nesting, node = attributed.attribution.nesting, attributed.node
    never = np.iinfo(np.int64).min
    latest = np.full(len(nesting), never)
    has_node = node != NONE
    np.maximum.at(latest, node[has_node], attributed.end[has_node])
    _, last = subtree_extremes(nesting, latest, latest)
    of_range = np.full(len(attributed.op), never)
    np.maximum.at(of_range, nesting.range, last)
    return of_range


def _runs(report: Ints) -> list[tuple[int, int]]:
    return list(pairwise(run_edges(report).tolist()))


# -- Selections of rows by time


TABLES = ("activities", "ranges", "launches", "waits", "memory", "system_calls")


def select_by_clock(
    attributed: AttributedCapture, first: int | None, last: int | None
) -> RowSelection:
    """Return what began on the host from ``first`` to ``last``, and what ran on the device meanwhile.

    Times are in ns since the first event of all files.
    """
    windows = clock_window(attributed, first, last)

    def is_selected(table: str) -> Flags:
        rows = getattr(attributed.capture, table)
        report, start = rows.report, _begin(rows)
        if table == "activities":
            return windows.meet(report, start, attributed.end)
        in_window = windows.meet(report, start, start)
        return in_window & _has_time(rows) if table == "waits" else in_window

    rows = {table: is_selected(table) for table in TABLES}
    return RowSelection.of(rows, windows.start, windows.end, is_window=True)


def select_by_ranges(
    attributed: AttributedCapture, steps: tuple[int, int] | None, name: str | None
) -> RowSelection:
    """Return what began on the host in steps, in ranges of a name or op, or in both; and the work launched then.

    ``steps`` are the first and the last number. Both are times of a process; the name may hold ``*`` and ``?``. Raises
    ValueError with a message for the user if there is no such step or range.
    """
    chosen: list[ProcessTimes] = []
    if steps is not None:
        numbered = attributed.iterations.select(steps_numbered(attributed.iterations, *steps))
        chosen.append((numbered.report, numbered.process, numbered.start, numbered.end))
    if name is not None:
        ranges, rows = attributed.capture.ranges, named_ranges(attributed, name)
        report, process, start, end = (
            ranges.report[rows],
            ranges.process[rows],
            ranges.start[rows],
            ranges.end[rows],
        )
        chosen.append((report, process, start, end))
    return _select_in_processes(attributed, chosen)


ProcessTimes = tuple[Ints, Ints, Ints, Ints]  # report, process, start and end in ns


def _select_in_processes(
    attributed: AttributedCapture, chosen: Sequence[ProcessTimes]
) -> RowSelection:
    """Return what began in these times of processes, in all of several, and the work launched then.

    Work without an API call belongs to no time, but where its process has no API calls of work: there by its own start.
    """
    tables = [getattr(attributed.capture, name) for name in TABLES]
    keys = [[t.report, t.process] for t in tables]
    codes = key_codes(*(times[:2] for times in chosen), *keys)
    owner, owners = codes[: len(chosen)], codes[len(chosen) :]
    windows = [Windows.of(of, *times[2:]) for of, times in zip(owner, chosen, strict=True)]
    both = reduce(Windows.__and__, windows)
    begins = [_begin(table) for table in tables]
    begins[0] = attributed.issued
    rows = [both.meet(of, time, time) for of, time in zip(owners, begins, strict=True)]
    report, _, start, end = chosen[0]
    if len(chosen) > 1:
        report_of = np.zeros(1 + int(owner[0].max(initial=0)), np.int64)
        report_of[owner[0]] = report
        report, start, end = report_of[both.report], both.start, both.end
    reports, limits = len(attributed.capture.facts), np.iinfo(np.int64)
    first = lowest(report, start, reports, empty=limits.max)
    last = highest(report, np.maximum(start, end), reports, empty=limits.min)
    return RowSelection.of(dict(zip(TABLES, rows, strict=True)), first, last)


def _has_time(waits: frames.Waits) -> Flags:
    """Return which waits have a time. Records of events without a call have none, and so are in no window."""
    is_record = waits.kind.among("event_record")
    has_time: Flags = ~is_record | (waits.start != MISSING)
    return has_time


def _begin(table: Records) -> Ints:
    """Return when the rows of a frame begin."""
    begin: Ints = table["time" if isinstance(table, Instants) else "start"]
    return begin
