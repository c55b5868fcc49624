"""What is known of the activities and API calls before a graph is made of them: order, lanes, times."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TypeVar, cast

import numpy as np

from bridge.analyze.core.devices import Devices
from bridge.analyze.core.groups import highest
from bridge.analyze.core.kinds import calls_matching
from bridge.analyze.run.causes.host_timeline import call_ends
from bridge.analyze.run.concurrency.clocks import Clocks
from bridge.importers.arrays import lookup, positions, scatter
from bridge.importers.frames import key_codes
from bridge.importers.records import record
from bridge.join.arrays import (
    NONE,
    Flags,
    Integers,
    Ints,
    distinct,
    is_single_value,
    is_sorted,
    number_groups,
    order_by,
    repeated,
    taken,
)
from bridge.join.attributed import AttributedCapture
from bridge.join.attribution import INVALID_TIME

Column = TypeVar("Column", bound=Integers)
QUERYING = re.compile(r"cu(?:da)?(?:Event|Stream)Query")
# Of work that waits for nothing that was recorded; if it begins later, it waited for something else.
MAX_LATENCY_NS = 100_000
NOT_READY = 600  # cudaErrorNotReady
PYTHON = re.compile(r"(?:.*/)?python[\d.]*(?:\s.*)?")  # a name of a process, as it was called
LANE = ("report", "process", "device", "context", "stream")


class ClocksDifferError(ValueError):
    """Several files are not on one clock; the message is for the user."""


@record
class Polls:
    """Waits for events by asking: the call that asked ``first`` and the ``last``, which was told that it has come.

    ``inner`` is whether each API call is one of those after the first.
    """

    first: Ints
    last: Ints
    inner: Flags

    @classmethod
    def of(cls, work_stack: Ints, start: Ints, result: Ints, is_query: Flags) -> Polls:
        """Find the runs of queries that follow each other on a thread, of which only the last succeeded."""
        order = order_by(work_stack, start)
        asks, failed, stack = is_query[order], result[order] == NOT_READY, work_stack[order]
        goes_on = np.zeros(
            len(order), bool
        )  # whether a query belongs to the run of the call before
        goes_on[1:] = asks[1:] & asks[:-1] & failed[:-1] & (stack[1:] == stack[:-1])
        first = np.flatnonzero(asks & ~goes_on)
        last = np.flatnonzero(asks & ~np.append(goes_on[1:], False)[: len(order)])
        is_wait = (last > first) & ~failed[last]
        inner = np.zeros(len(work_stack), bool)
        run = np.cumsum(asks & ~goes_on) - 1
        rows = np.flatnonzero(goes_on)
        inner[order[rows[is_wait[run[rows]]]]] = True
        return cls(order[first[is_wait]], order[last[is_wait]], inner)


@record
class Work:
    """Activities with valid times in the order of their lanes, and API calls, on one clock.

    ``row`` are rows of activities, sorted by ``lane`` (a stream of a context), start and end; all
    other columns of activities are in this order. ``rank`` is the place of each by start, end and
    row over all lanes. ``launch`` is a row of API calls, or NONE. ``offset`` has been added to the
    times of each file; ``apart`` is whether they are not on one clock, so that no file tells of another. Of `Polls` the
    first call lasts until the last one ends.
    """

    attributed: AttributedCapture
    offset: Ints
    row: Ints
    lane: Ints
    start: Ints
    end: Ints
    rank: Ints
    launch: Ints
    call_start: Ints
    call_end: Ints
    polls: Polls
    apart: bool

    @classmethod
    def of(cls, attributed: AttributedCapture, *, apart: bool = False) -> Work:
        """Return the work of a capture, or of each file ``apart``.

        Raises ValueError if clocks of several files differ that are not taken apart.
        """
        activities = attributed.capture.activities
        offset = (
            np.zeros(len(attributed.capture.facts), np.int64) if apart else _offsets(attributed)
        )
        start = shifted(activities.start, offset, activities.report)
        end = start + attributed.duration
        row = np.flatnonzero(attributed.attribution.reason != INVALID_TIME)
        lane, _ = number_groups(*(activities[c] for c in LANE))
        by_time = row[order_by(placed(start, row), placed(end, row))]
        order = placed(by_time, order_by(placed(lane, by_time)))
        rank = np.empty(len(start), np.int64)
        rank[by_time] = np.arange(len(by_time))
        calls = attributed.capture.launches
        call_start, call_end = (
            shifted(time, offset, calls.report) for time in (calls.start, call_ends(attributed))
        )
        polls = Polls.of(
            attributed.attribution.stack,
            call_start,
            calls.result,
            calls_matching(attributed, QUERYING),
        )
        call_end[polls.first] = call_end[polls.last]
        return cls(
            attributed=attributed,
            offset=offset,
            row=order,
            lane=placed(lane, order),
            start=placed(start, order),
            end=placed(end, order),
            rank=placed(rank, order),
            launch=placed(attributed.attribution.launch, order),
            call_start=call_start,
            call_end=call_end,
            polls=polls,
            apart=apart,
        )

    @cached_property
    def place(self) -> Ints:
        """The place of each activity of the capture in this order, NONE for invalid times."""
        return positions(self.row, len(self.attributed.capture.activities))

    @cached_property
    def process_of_stacks(self) -> Ints:
        """A code for the process of each stack of the nesting."""
        return self._processes[0]

    @property
    def process_keys(self) -> tuple[Ints, ...]:
        """Report and process of each code of a process."""
        return self._processes[1]

    @cached_property
    def python_processes(self) -> Ints:
        """The codes of processes that run Python, by their names."""
        table = self.attributed.capture.processes
        rows = np.flatnonzero(table.name.matching(PYTHON.fullmatch))
        return self.process_codes(table.report[rows], table.process[rows])

    def process_codes(self, report: Ints, process: Ints) -> Ints:
        """Return the code of each process, another one for processes without ranges and calls."""
        return key_codes(self._processes[1], (report, process))[1]

    @cached_property
    def _processes(self) -> tuple[Ints, tuple[Ints, ...]]:
        """The code of the process of each stack, and report and process of each code."""
        attribution, capture = self.attributed.attribution, self.attributed.capture
        nesting, calls = attribution.nesting, np.arange(len(attribution.stack))
        size = max(int(s.max(initial=NONE)) for s in (nesting.stack, attribution.stack)) + 1
        report, process = np.full((2, size), NONE)
        for stack, table, rows in (
            (nesting.stack, capture.ranges, nesting.range),
            (attribution.stack, capture.launches, calls),
        ):
            one_of = scatter(rows, stack, size)
            known = np.flatnonzero(one_of != NONE)
            report[known], process[known] = (table[c][one_of[known]] for c in ("report", "process"))
        known = np.flatnonzero(report != NONE)
        result = np.full(size, NONE)
        (result[known],) = key_codes((report[known], process[known]))
        _, first = np.unique(result[known], return_index=True)
        return result, (report[known][first], process[known][first])

    @cached_property
    def gpu(self) -> Ints:
        """The GPU of each activity, a position in `Devices`."""
        return taken(Devices.of_report(self.attributed).gpu, self.row)

    @cached_property
    def of_others(self) -> Flags:
        """Which activities are of a process beside the run: on its GPU another one has twice as many kinds."""
        if is_single_value(self.column("process")):
            return np.zeros(len(self.row), bool)
        user, first = number_groups(self.gpu, self.column("process"))
        name = self.attributed.activity_name.codes[self.row]
        _, named = number_groups(user, name)
        kinds = np.bincount(user[named], minlength=len(first))
        most = highest(self.gpu[first], kinds, int(self.gpu.max(initial=0)) + 1)
        result: Flags = (2 * kinds <= most[self.gpu[first]])[user]
        return result

    @cached_property
    def leading_processes(self) -> Ints:
        """The codes of the processes that issue work, but for those beside the run."""
        calls = self.launch[~self.of_others & (self.launch != NONE)]
        return distinct(self.process_of_stacks[self.attributed.attribution.stack[calls]])

    @cached_property
    def own_op(self) -> Ints:
        """The op of each node of the nesting, NONE of steps: what happens in a step alone is in no op."""
        attributed, nesting = self.attributed, self.attributed.attribution.nesting
        is_step = np.zeros(len(attributed.capture.ranges) + 1, bool)
        is_step[attributed.steps.range] = is_step[attributed.iterations.range] = True
        is_step[NONE] = False
        return np.where(is_step[nesting.range], NONE, attributed.node_op)

    @cached_property
    def issued(self) -> Ints:
        """When each activity was issued: the start of its API call, or its own without a call."""
        return np.where(self.launch == NONE, self.start, lookup(self.call_start, self.launch, 0))

    @cached_property
    def issues(self) -> Flags:
        """Whether each API call issued an activity."""
        result = np.zeros(len(self.call_start), bool)
        result[self.launch[self.launch != NONE]] = True
        return result

    @cached_property
    def issuing(self) -> Ints:
        """The API calls that issued an activity, by thread and start."""
        calls = np.flatnonzero(self.issues)
        stack = self.attributed.attribution.stack
        return calls[order_by(stack[calls], self.call_start[calls])]

    @property
    def launched_at(self) -> Ints:
        """From when on the activities of each API call may begin: its end.

        If one of them begins before the end, it is the start of the call.
        """
        has_call = np.flatnonzero(self.launch != NONE)
        call = self.launch[has_call]
        result = self.call_end.copy()
        early = call[self.start[has_call] < self.call_end[call]]
        result[early] = self.call_start[early]
        return result

    def column(self, name: str) -> Ints:
        """Return an integer column of the frame `activities` in this order."""
        return placed(self.attributed.capture.activities[name], self.row)

    @cached_property
    def before(self) -> Ints:
        """The activity of the same lane that ended last before each one began, or NONE."""
        if _follow_each_other(self.lane, self.start, self.end):
            before = np.arange(-1, len(self.lane) - 1)
            before[1:][self.lane[1:] != self.lane[:-1]] = NONE
            return before
        return last_ended(self, self.lane)

    @cached_property
    def before_in_launch(self) -> Ints:
        """The activity of the same API call that ended last before each one began, or NONE.

        A launch of a CUDA graph issues many activities, on any stream.
        """
        several = np.bincount(self.launch[self.launch != NONE]) > 1
        if not several.any():
            return repeated(NONE, len(self.launch))
        is_one_of_many = lookup(several, self.launch, False) & (self.launch != NONE)
        rows = np.flatnonzero(is_one_of_many)
        return scatter(last_ended(self, self.launch, rows), rows, len(self.launch))


def _offsets(attributed: AttributedCapture) -> Ints:
    """Return what is added to the times of each file."""
    capture = attributed.capture
    tables = (capture.activities, capture.launches, capture.ranges)
    used = np.unique(np.concatenate([distinct(t.report) for t in tables]))
    if len(used) <= 1:
        return np.zeros(len(capture.facts), np.int64)
    clocks = Clocks.of(attributed)
    if not clocks.exact[used].all():
        name = capture.source[int(used[~clocks.exact[used]][0])]
        raise ClocksDifferError(
            f"the critical path needs one clock, and that of {name} is not aligned with the others"
            " by collectives: ask for the path of one report"
        )
    return clocks.offset


def shifted(times: Ints, offset: Ints, report: Ints) -> Ints:
    """Return times of files on one clock; the column itself if no file is shifted."""
    return times + offset[report] if offset.any() else times


def placed(column: Column, order: Ints) -> Column:
    """Return a column in another order; the column itself if that is its own."""
    is_own = len(order) == len(column) and is_sorted(order)
    return column if is_own else cast(Column, column[order])


def _follow_each_other(lane: Ints, start: Ints, end: Ints) -> bool:
    return bool(((lane[1:] != lane[:-1]) | (start[1:] >= end[:-1])).all())


def last_ended(work: Work, group: Ints, rows: Ints | None = None) -> Ints:
    """Return the activity of the same group that ended last before each of ``rows`` began, or NONE."""
    rows = np.arange(len(group)) if rows is None else rows
    by_end = rows[order_by(group[rows], work.end[rows], work.rank[rows])]
    by_start = rows[order_by(group[rows], work.start[rows], work.rank[rows])]
    # A merge of both orders: ends come before the starts that they are not later than.
    keys = np.concatenate((by_end, by_start))
    time = np.concatenate((work.end[by_end], work.start[by_start]))
    is_start = np.repeat(np.array([0, 1]), len(rows))  # by rank, no activity ends before it begins
    order = order_by(group[keys], time, work.rank[keys], -is_start)
    ended = np.where(is_start[order] == 0, np.arange(len(order)), NONE)
    latest = np.maximum.accumulate(ended) if len(ended) else ended
    starts = is_start[order] == 1
    activity, candidate = keys[order[starts]], latest[starts]
    before = np.where(candidate == NONE, NONE, keys[order[candidate]])
    is_same = (before != NONE) & (group[before] == group[activity])
    result = scatter(np.where(is_same, before, NONE), activity, len(group))
    return result[rows]
