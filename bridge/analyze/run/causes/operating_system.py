"""What threads of the host waited for: calls of the operating system, a CPU, the lock of Python."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.groups import sums, texts
from bridge.analyze.run.causes.host_timeline import Cover, Pieces
from bridge.importers import frames
from bridge.importers.arrays import scatter
from bridge.importers.frames import OfThreads, key_codes
from bridge.importers.records import record
from bridge.join.arrays import (
    NONE,
    Flags,
    Ints,
    number_groups,
    order_by,
    run_edges,
    running_maximum,
    search_groups,
)
from bridge.join.attributed import AttributedCapture

NO_THREAD = -2  # of a stack without nodes and calls; -1 is an unknown thread


def stacks_of(attributed: AttributedCapture, table: OfThreads) -> Ints:
    """Return the stack in the nesting of the thread of each row, NONE for a thread without ranges and API calls."""
    if not len(table):
        return np.empty(0, np.int64)
    nesting, of_call = attributed.attribution.nesting, attributed.attribution.stack
    stacks = 1 + max(int(of_call.max(initial=NONE)), int(nesting.stack.max(initial=NONE)))
    columns = "report", "thread"
    keys = [np.full(stacks, NO_THREAD) for _ in columns]  # of each stack
    for key, column in zip(keys, columns, strict=True):
        key[nesting.stack] = attributed.capture.ranges[column][nesting.range]
        key[of_call] = attributed.capture.launches[column]
    code, of_stack = key_codes([table[column] for column in columns], keys)
    stack = scatter(
        np.arange(stacks), of_stack, max(int(code.max()), int(of_stack.max(initial=NONE))) + 1
    )
    return stack[code]


class Meetings(NamedTuple):
    """Pairs of an interval and an event that meet, with the common time from ``start`` to ``end``."""

    interval: Ints
    event: Ints
    start: Ints
    end: Ints

    @property
    def time(self) -> Ints:
        """The common time of each pair in ns, above 0."""
        return self.end - self.start


def meetings(
    home: Ints, start: Ints, end: Ints, events: tuple[Ints, Ints, Ints], rows: Ints | None = None
) -> Meetings:
    """Return which intervals meet which events of their home, such as a thread; NONE is no home.

    ``events`` are home, start and end; only ``rows`` of them count. Few events of a home overlap.
    """
    event_home, begin, stop = events
    rows = np.arange(len(event_home)) if rows is None else rows
    rows = rows[event_home[rows] != NONE]
    rows = rows[order_by(event_home[rows], begin[rows])]
    reached = running_maximum(event_home[rows], begin[rows], stop[rows])
    known = np.flatnonzero(home != NONE)
    first = search_groups(event_home[rows], reached, home[known], start[known], side="right")
    last = search_groups(event_home[rows], begin[rows], home[known], end[known], side="left")
    count = np.maximum(last - first, 0)
    interval = np.repeat(known, count)
    place = np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)
    event = rows[place]
    begins = np.maximum(begin[event], start[interval])
    ends = np.minimum(stop[event], end[interval])
    meets = ends > begins
    return Meetings(interval[meets], event[meets], begins[meets], ends[meets])


# -- Calls of the operating system


def system_time(attributed: AttributedCapture, stack: Ints, start: Ints, end: Ints) -> Meetings:
    """Return the calls of the operating system in some intervals of threads.

    ``stack`` is that of each interval's thread, NONE for none. Events are rows of the frame
    `system_calls`; of calls within calls, as fread calls read, only the outer one counts.
    """
    calls = attributed.capture.system_calls
    thread = stacks_of(attributed, calls)
    begin, stop = calls.start, calls.end
    return meetings(
        stack, start, end=end, events=(thread, begin, stop), rows=outer_calls(thread, begin, stop)
    )


def outer_calls(thread: Ints, begin: Ints, stop: Ints) -> Ints:
    """Return the calls of known threads that begin when no other of their thread runs, by thread and start."""
    known = np.flatnonzero(thread != NONE)
    order: Ints = known[order_by(thread[known], begin[known], -stop[known])]
    if not len(order):
        return order
    distinct, rank = np.unique(stop[order], return_inverse=True)
    # The latest end so far, of calls of the same thread.
    key = thread[order] * len(distinct) + rank
    latest = np.maximum.accumulate(key)[:-1]
    is_same = latest // len(distinct) == thread[order][1:]
    is_inner = is_same & (begin[order][1:] < distinct[latest % len(distinct)])
    return order[np.concatenate(([True], ~is_inner))]


# -- Threads on and off the CPU


def off_cpu(attributed: AttributedCapture, last: int) -> Cover:
    """Return the times at which threads with API calls ran on no CPU, by their stacks, until ``last``.

    A thread is off the CPU from each switch away from it to the next switch to it. Before its
    first switch nothing is known.
    """
    switches = attributed.capture.context_switches
    stack = stacks_of(attributed, switches)
    time = switches.time
    known = np.flatnonzero(stack != NONE)
    order = known[order_by(stack[known], time[known])]
    stack, time, on_cpu = stack[order], time[order], switches.on_cpu[order]
    until = np.append(time[1:], last)[: len(time)]
    until[run_edges(stack)[1:] - 1] = last  # after the last switch of each thread
    away = np.flatnonzero(~on_cpu)
    return Cover.of(stack[away], time[away], until[away])


def _off_cpu(attributed: AttributedCapture, pieces: Pieces) -> Ints | None:
    """Return the time of each piece in which its thread ran on no CPU; None if no switches were recorded."""
    if not len(attributed.capture.context_switches):
        return None
    known = np.flatnonzero(pieces.stack != NONE)
    result = np.zeros(len(pieces.stack), np.int64)
    result[known] = off_cpu(attributed, int(pieces.end.max(initial=0))).within(
        *(c[known] for c in (pieces.stack, pieces.start, pieces.end))
    )
    return result


# -- Waits for Python's global interpreter lock


@record
class LockWaits:
    """The time in which threads waited for the lock of Python in intervals, and who held it.

    ``interval`` and ``time`` have a row per wait in an interval; ``held_in``, ``holder`` and ``held``
    one per wait and holder. ``holder`` is a position in ``threads``, the names of threads.
    """

    interval: Ints
    time: Ints
    held_in: Ints
    holder: Ints
    held: Ints
    threads: list[str]


def lock_waits(attributed: AttributedCapture, pieces: Pieces) -> LockWaits | None:
    """Return the waits for the lock in pieces of idle time, and who held it; None if it was not recorded."""
    ranges = attributed.capture.ranges
    of_lock = is_of_lock(ranges)
    if not of_lock.any():
        return None
    waits, holds = (
        np.flatnonzero(of_lock & ranges.name.among(name))
        for name in (frames.WAITS_FOR_GIL, frames.HOLDS_GIL)
    )
    start, end = ranges.start, ranges.end
    stack = stacks_of(attributed, ranges)
    waited = meetings(
        pieces.stack, pieces.start, end=pieces.end, events=(stack, start, end), rows=waits
    )
    process = number_groups(ranges.report, ranges.process)[0]
    held = meetings(
        process[waited.event],
        waited.start,
        end=waited.end,
        events=(process, start, end),
        rows=holds,
    )
    thread, first = number_groups(ranges.report, ranges.thread)
    return LockWaits(
        interval=waited.interval,
        time=waited.time,
        held_in=waited.interval[held.interval],
        holder=thread[held.event],
        held=held.time,
        threads=_thread_names(attributed, ranges.take(first)),
    )


def is_of_lock(ranges: frames.Ranges) -> Flags:
    """Return whether nsys recorded each range for the lock of Python."""
    return ranges.domain_name.among(frames.GIL_DOMAIN)


def _thread_names(attributed: AttributedCapture, rows: frames.Ranges) -> list[str]:
    """Return the name and number of the thread of each row."""
    threads = attributed.capture.threads
    keys = zip(threads.report.tolist(), threads.thread.tolist(), strict=True)
    names = dict(zip(keys, threads.name, strict=True))
    return [
        f"{names.get((report, thread)) or 'thread'} {thread & frames.ID_BITS}"
        for report, thread in zip(rows.report.tolist(), rows.thread.tolist(), strict=True)
    ]


# -- All of it, in the idle time of GPUs


@record
class HostTimes:
    """What the operating system and Python did in pieces of idle time, for the threads that they wait for."""

    system: Meetings
    name: Ints
    names: list[str]
    off_cpu: Ints | None
    lock: LockWaits | None

    @classmethod
    def of(cls, attributed: AttributedCapture, pieces: Pieces) -> HostTimes:
        system = system_time(attributed, pieces.stack, pieces.start, pieces.end)
        names = attributed.capture.system_calls.name
        return cls(
            system=system,
            name=names.codes[system.event],
            names=list(names.texts),
            off_cpu=_off_cpu(attributed, pieces),
            lock=lock_waits(attributed, pieces),
        )

    def columns(self, group: Ints, groups: int) -> dict[str, object]:
        """Return the columns of a table whose row of each piece is ``group``.

        ``os_ns`` is the time in calls of the operating system, ``os_call`` the one with most of it;
        ``off_cpu_ns`` the time on no CPU; ``gil_ns`` the time of waits for Python's lock, and
        ``gil_holder`` the thread that held it most. Names are '' where there is no time. What was
        not recorded is left out.
        """
        result: dict[str, object] = {}
        if self.names:
            row = group[self.system.interval]
            result["os_call"] = _main_names(
                row, self.name, time=self.system.time, rows=groups, names=self.names
            )
            result["os_ns"] = sums(row, self.system.time, groups)
        if self.lock is not None:
            lock = self.lock
            result["gil_holder"] = _main_names(
                group[lock.held_in], lock.holder, time=lock.held, rows=groups, names=lock.threads
            )
            result["gil_ns"] = sums(group[lock.interval], lock.time, groups)
        if self.off_cpu is not None:
            result["off_cpu_ns"] = sums(group, self.off_cpu, groups)
        return result


def _main_names(
    row: Ints, name: Ints, time: Ints, rows: int, names: list[str]
) -> NDArray[np.object_]:
    """Return the name with most time of each row; of equal ones the first by name; '' for none."""
    pair, first = number_groups(row, name)
    total = sums(pair, time, len(first))
    rank = np.argsort(np.argsort(np.array(names, dtype=object), kind="stable"), kind="stable")
    order = order_by(row[first], -total, rank[name[first]])
    main = first[order[run_edges(row[first][order])[:-1]]]
    result = scatter(name[main], row[main], rows)
    main_names: NDArray[np.object_] = texts([*names, ""])[result]
    return main_names
