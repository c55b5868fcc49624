"""The points of host threads: where API calls, ranges and calls of the operating system begin and end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.run.causes.host_timeline import Cover, count_before
from bridge.analyze.run.causes.operating_system import outer_calls, stacks_of
from bridge.analyze.run.critical.handover import Handovers
from bridge.analyze.run.critical.waits import Waits
from bridge.analyze.run.critical.work import MAX_LATENCY_NS, Work, placed, shifted
from bridge.importers import frames
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import (
    BLOCK,
    NONE,
    Flags,
    Ints,
    Rows,
    distinct,
    order_by,
    run_edges,
    stable_order,
    taken,
)


@record
class _Points:
    """Points of one sort, before all are sorted by thread and time."""

    stack: Rows
    time: Ints

    @classmethod
    def of(cls, stack: Ints, time: Ints) -> _Points:
        return cls(stack.astype(np.int32), time)


@record
class HostPoints:
    """Points of all threads, one thread after the other, in order of time.

    ``stacks`` is the thread of each chain of points, by its number in the nesting. ``call`` is the outermost API call
    that is open right before each point, ``node`` the innermost range, ``system`` the outermost call of the operating
    system, NONE for none. ``launch`` and ``returned`` are the points of each API call from which on its activities may
    begin, and at which it returns, NONE for calls of a thread that is not followed; ``released`` are those at which the
    waits of `Waits` end. ``handed`` and ``begun``, ``done`` and ``taken`` are points of each handover: at its start on
    both threads, the waiting one first, and at its end on both, the working one first.
    """

    time: Ints
    chained: Flags
    stacks: Rows
    call: Rows
    node: Rows
    system: Rows
    launch: Rows
    returned: Rows
    released: Rows
    handed: Rows
    begun: Rows
    done: Rows
    taken: Rows

    @classmethod
    def of(cls, work: Work, waits: Waits) -> HostPoints:
        times = node_times(work)
        handovers = Handovers.of(work, *times)
        followed = _followed_threads(work, waits)
        calls, points = _CallPoints.of(work, waits, followed)
        open_nodes, points_of_nodes = _node_points(work, waits, *times)
        open_system, points_of_system = _system_points(work, handovers, followed)
        parts = [
            _Points.of(handovers.working, handovers.start),
            _Points.of(handovers.waiting, handovers.start),
            points,  # before ranges: no call is cut by a range that ends with it
            *points_of_nodes,
            *points_of_system,
            _Points.of(handovers.working, handovers.end),
            _Points.of(handovers.waiting, handovers.end),
        ]
        del points, points_of_nodes, points_of_system, times  # so that parts alone hold them
        time, chained, stack, places = _in_order(parts)
        begun, handed, of_calls, ends, starts, closes, opens, done, taken = places
        chained[begun] = False  # before, the thread waited for this work
        return cls(
            time=time,
            chained=chained,
            stacks=stack[~chained],
            call=_open_calls(calls, of_calls, len(time)),
            node=_latest(open_nodes, np.concatenate((ends, starts)), len(time)),
            system=_latest(open_system, np.concatenate((closes, opens)), len(time)),
            launch=lookup(of_calls, calls.launch),
            returned=lookup(of_calls, calls.returned),
            released=of_calls[calls.released],
            handed=handed.copy(),  # not a view, which would keep the places of all points
            begun=begun.copy(),
            done=done.copy(),
            taken=taken.copy(),
        )

    @property
    def stack(self) -> Rows:
        """The thread of each point."""
        edges = np.append(np.flatnonzero(~self.chained), len(self.chained))
        return np.repeat(self.stacks, np.diff(edges))

    def threads(self, points: Ints) -> Ints:
        """Return a number for the thread of each of some points."""
        result: Ints = np.searchsorted(np.flatnonzero(~self.chained), points, side="right")
        return result


def _in_order(parts: list[_Points]) -> tuple[Ints, Flags, Rows, list[Rows]]:
    """Return `time`, `chained` and `stack` of all points in order, and the places of the points of each part."""
    sizes = np.cumsum([len(part.time) for part in parts])[:-1]
    stack, time = (np.concatenate([getattr(part, c) for part in parts]) for c in ("stack", "time"))
    parts.clear()  # one column at a time is copied below: there are several points per kernel
    order = order_by(stack, time)
    stack = stack[order]
    time = time[order]
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    chained = np.ones(len(order), bool)
    chained[:1] = False
    chained[1:] = stack[1:] == stack[:-1]
    return time, chained, stack, np.split(place, sizes)


def node_times(work: Work) -> tuple[Ints, Ints]:
    """Return start and end of each node on the common clock."""
    nesting = work.attributed.attribution.nesting
    report = taken(work.attributed.capture.ranges.report, nesting.range)
    start, end = (shifted(time, work.offset, report) for time in (nesting.start, nesting.end))
    return start, end


def _node_points(
    work: Work, waits: Waits, start: Ints, end: Ints
) -> tuple[Rows, tuple[_Points, _Points]]:
    """Return the points at which nodes end, inner ones first, and at which they start, outer ones first.

    Nodes last from ``start`` to ``end``. What begins or ends while a call waits for the device does so when the call
    returns, as the wait counts for the node in which the call began. With them come the innermost nodes that are open
    after each, ends before starts.
    """
    nesting = work.attributed.attribution.nesting
    calls = np.flatnonzero(waits.waits)
    spans = _Spans.of(
        work.attributed.attribution.stack[calls], work.call_start[calls], work.call_end[calls]
    )
    start, end = (spans.end(nesting.stack, time) for time in (start, end))
    node = np.flatnonzero(end > start).astype(np.int32)
    inner_first = node[::-1]
    ends = inner_first[order_by(taken(nesting.stack, inner_first), end[inner_first])]
    parent = nesting.parent[ends]
    is_same = (parent != NONE) & (nesting.stack[parent] == nesting.stack[ends])
    around = np.where(is_same, parent, NONE)
    ended, started = (
        _Points.of(nesting.stack[rows], time[rows]) for rows, time in ((ends, end), (node, start))
    )
    return np.concatenate((around, node), dtype=np.int32), (ended, started)


@record
class _CallPoints:
    """Points of each API call, one after the other: its start, what it waits for, its end.

    A call that takes long before what it issues begins has a point then, too, from which on that may begin.
    ``launch`` and ``returned`` are positions of each call, NONE for calls that are left out; ``released`` are those at
    which the waits end, the last of a call at its end. ``call`` is the call of each point, and ``change`` how many more
    calls are open after it.
    """

    call: Rows
    change: NDArray[np.int8]
    launch: Rows
    returned: Rows
    released: Ints

    @classmethod
    def of(cls, work: Work, waits: Waits, followed: Ints) -> tuple[_CallPoints, _Points]:
        """Return the points of the ``followed`` threads, sorted by thread and call."""
        stack, start, end = work.attributed.attribution.stack, work.call_start, work.call_end
        order = order_by(stack, start, end)
        order = order[(np.isin(stack, followed) & ~work.polls.inner)[order]]
        count = np.bincount(waits.call, minlength=len(start))
        late, begins = _begins_late(work)
        is_late = np.zeros(len(start), np.int32)
        is_late[late] = 1
        size = (2 + is_late + np.maximum(count - 1, 0))[order]
        returned, begun = (np.full(len(start), NONE, np.int32) for _ in range(2))
        returned[order] = np.cumsum(size) - 1
        begun[order] = returned[order] - size + 1
        nth = np.arange(len(waits.call)) - np.append(0, np.cumsum(count))[waits.call]
        released = begun[waits.call] + is_late[waits.call] + 1 + nth
        time = np.empty(int(size.sum()), np.int64)
        time[begun[order]] = start[order]
        kept = begun[late] != NONE
        time[begun[late[kept]] + 1] = begins[kept]
        time[released] = np.maximum(start[waits.call], waits.times(work))
        time[returned[order]] = end[order]
        change = np.zeros(len(time), np.int8)
        change[begun[order]], change[returned[order]] = 1, -1
        launch = np.where(work.launched_at < end, begun + is_late, returned)
        call = np.repeat(order.astype(np.int32), size)
        calls = cls(call=call, change=change, launch=launch, returned=returned, released=released)
        return calls, _Points.of(stack[call], time)


def _begins_late(work: Work) -> tuple[Ints, Ints]:
    """Return API calls that take long before their first activity begins, and when it does, before they return.

    Only those while no GPU of the process works: the call itself takes that time, or the profiler in it.
    """
    places = np.flatnonzero(work.launch != NONE)
    call, start = work.launch[places], work.start[places]
    late = (start < work.call_end[call]) & (start - work.call_start[call] > MAX_LATENCY_NS)
    places, call, start = places[late], call[late], start[late]
    if not len(places):
        return call, start
    process = work.column("process")
    busy = Cover.of(process, work.start, work.end)
    idle = busy.within(process[places], start - MAX_LATENCY_NS, start) == 0
    call, start = call[idle], start[idle]
    order = order_by(call, start)
    first = order[run_edges(call[order])[:-1]]
    return call[first], start[first]


def _followed_threads(work: Work, waits: Waits) -> Ints:
    """Return the stacks of the threads that the path may lead over.

    A thread that has no ranges, issues no work and waits for none only looks on, as NCCL's watchdog
    does. Without any other thread all are followed.
    """
    attribution = work.attributed.attribution
    followed: Ints = np.union1d(_acting(work, waits), distinct(attribution.nesting.stack))
    return followed if len(followed) else distinct(attribution.stack)


def _acting(work: Work, waits: Waits) -> Ints:
    """Return the stacks of the threads that issue work, or wait for it other than by asking for it."""
    acts = work.issues | waits.waits
    acts[work.polls.first] = work.issues[work.polls.first]
    return distinct(work.attributed.attribution.stack[acts])


def leading_threads(work: Work, waits: Waits) -> Ints:
    """Return the stacks of the threads that decide when the run ends: those that act, and main threads.

    What others do beside them, such as loaders that work until they are told to end, ends no run. Without a thread that
    acts all lead.
    """
    attribution, capture = work.attributed.attribution, work.attributed.capture
    acting = _acting(work, waits)
    if not len(acting):
        return np.union1d(distinct(attribution.stack), distinct(attribution.nesting.stack))
    parts = [acting]
    nesting = attribution.nesting
    for stack, table, rows in (
        (attribution.stack, capture.launches, slice(None)),
        (nesting.stack, capture.ranges, nesting.range),
    ):
        thread, process = table.thread[rows], table.process[rows]
        parts.append(distinct(stack[(thread & frames.ID_BITS) == frames.pid(process)]))
    result: Ints = np.unique(np.concatenate(parts))
    return result


def _system_points(
    work: Work, handovers: Handovers, followed: Ints
) -> tuple[Rows, tuple[_Points, _Points]]:
    """Return the points of the ``followed`` threads at which calls of the operating system end, and start.

    The time within API calls, and that in which the thread waits for another one, is left out. With them come the calls
    that are open after each, ends before starts.
    """
    calls = work.attributed.capture.system_calls
    if not len(calls):
        nothing = np.empty(0, np.int64)
        none = _Points.of(nothing, nothing)
        return nothing.astype(np.int32), (none, none)
    report = calls.report
    start, end = (shifted(calls[c], work.offset, report) for c in ("start", "end"))
    stack = stacks_of(work.attributed, calls)
    rows = outer_calls(stack, start, end)
    rows = rows[np.isin(stack[rows], followed)]
    stack, start, end = stack[rows], start[rows], end[rows]
    spans = _Spans.of(
        np.concatenate((work.attributed.attribution.stack, handovers.waiting)),
        np.concatenate((work.call_start, handovers.start)),
        np.concatenate((work.call_end, handovers.end)),
    )
    start, end = spans.end(stack, start), spans.begin(stack, end)
    lasts = end > start
    stack, rows = stack[lasts], rows[lasts]
    points = _Points.of(stack, end[lasts]), _Points.of(stack, start[lasts])
    return np.concatenate((np.full(len(rows), NONE), rows), dtype=np.int32), points


@record
class _Spans:
    """Intervals of threads, which points may begin and end with but not lie within."""

    cover: Cover

    @classmethod
    def of(cls, stack: Ints, start: Ints, end: Ints) -> _Spans:
        """Return the union of intervals; those that only touch each other stay apart."""
        return cls(Cover.of(stack, start, end - 1))

    def begin(self, stack: Ints, time: Ints) -> Ints:
        """Return each time, or the begin of the interval that it lies within."""
        return self._moved(stack, time, self.cover.start)

    def end(self, stack: Ints, time: Ints) -> Ints:
        """Return each time, or the end of the interval that it lies within."""
        return self._moved(stack, time, self.cover.end + 1)

    def _moved(self, stack: Ints, time: Ints, to: Ints) -> Ints:
        cover = self.cover
        if not len(cover.stack):
            return time
        begun = count_before((cover.stack, cover.start), stack, time, "left")
        ended = count_before((cover.stack, cover.end), stack, time, "left")
        return np.where(begun > ended, to[begun - 1], time)


def _latest(values: Rows, places: Rows, size: int) -> Rows:
    """Return for each point the value at the last of ``places`` before it, NONE before the first."""
    if not len(places):
        return np.broadcast_to(np.int32(NONE), size)
    result = np.full(size + 1, NONE, np.int32)
    known = np.zeros(size + 1, bool)
    result[1:][places], known[1:][places] = values, True
    for first in range(0, size, BLOCK):  # goes on from the last point of the block before
        block = result[first : first + BLOCK + 1]
        last = np.where(known[first : first + BLOCK + 1], np.arange(len(block)), 0)
        block[:] = block[np.maximum.accumulate(last)]
    return result[:-1]


def _open_calls(calls: _CallPoints, places: Rows, size: int) -> Rows:
    """Return the outermost API call that is open right before each point, or NONE."""
    order = stable_order(places)
    change, call, places = (
        placed(calls.change, order),
        placed(calls.call, order),
        placed(places, order),
    )
    depth = np.cumsum(change, dtype=np.int32)
    is_edge = ((depth == 1) & (change > 0)) | (depth == 0)
    values = np.where(depth == 0, np.int32(NONE), call)
    return _latest(values[is_edge], places[is_edge], size)
