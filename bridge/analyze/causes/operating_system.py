"""What the operating system did for threads of the host: its calls, and when threads ran on no CPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from bridge.analyze.causes.host_timeline import Cover, Pieces
from bridge.analyze.groups import sums, texts
from bridge.join.arrays import NONE, Ints, number_groups, order_by, run_edges, search_groups
from bridge.join.attributed import AttributedCapture
from importers import frames
from importers.frames import key_codes


def stacks_of(attributed: AttributedCapture, table: pd.DataFrame) -> Ints:
    """Return the stack in the nesting of the thread of each row, NONE for threads without API calls."""
    launches = attributed.capture.launches
    stack, first = np.unique(attributed.attribution.stack, return_index=True)
    known, own = key_codes(
        tuple(frames.ints(launches, c)[first] for c in ("report", "thread")),
        tuple(frames.ints(table, c) for c in ("report", "thread")),
    )
    result = np.full(max(known.max(initial=NONE), own.max(initial=NONE)) + 1, NONE)
    result[known] = stack
    return result[own]


# -- Calls of the operating system


class SystemTime(NamedTuple):
    """The time of calls of the operating system within intervals: a row per pair that meets, in ns."""

    interval: Ints
    call: Ints
    time: Ints


def system_time(attributed: AttributedCapture, stack: Ints, start: Ints, end: Ints) -> SystemTime:
    """Return the calls of the operating system in some intervals of threads.

    ``stack`` is that of each interval's thread, NONE for none. ``call`` is a row of the frame
    `system_calls`; of calls within calls, as fread calls read, only the outer one counts.
    """
    calls = attributed.capture.system_calls
    if not len(calls):
        return SystemTime(*(np.empty(0, np.int64) for _ in SystemTime._fields))
    thread = stacks_of(attributed, calls)
    begin, stop = (frames.ints(calls, c) for c in ("start", "end"))
    order = _outer_calls(thread, begin, stop)
    known = np.flatnonzero(stack != NONE)
    first = search_groups(thread[order], stop[order], stack[known], start[known], side="right")
    last = search_groups(thread[order], begin[order], stack[known], end[known], side="left")
    count = np.maximum(last - first, 0)
    interval = np.repeat(known, count)
    place = np.arange(count.sum()) + np.repeat(first - (np.cumsum(count) - count), count)
    call = order[place]
    time = np.minimum(stop[call], end[interval]) - np.maximum(begin[call], start[interval])
    meets = time > 0
    return SystemTime(interval[meets], call[meets], time[meets])


def _outer_calls(thread: Ints, begin: Ints, stop: Ints) -> Ints:
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
    stack, time = stacks_of(attributed, switches), frames.ints(switches, "time")
    known = np.flatnonzero(stack != NONE)
    order = known[order_by(stack[known], time[known])]
    stack, time, on_cpu = stack[order], time[order], switches["on_cpu"].to_numpy()[order]
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


# -- Both, in the idle time of GPUs


@dataclass(frozen=True)
class HostTimes:
    """What the operating system did in pieces of idle time, for the threads that they wait for."""

    system: SystemTime
    name: Ints
    names: list[str]
    off_cpu: Ints | None

    @classmethod
    def of(cls, attributed: AttributedCapture, pieces: Pieces) -> HostTimes:
        """Return the times of these pieces."""
        system = system_time(attributed, pieces.stack, pieces.start, pieces.end)
        names = attributed.capture.system_calls["name"]
        codes = frames.codes(names)[system.call]
        return cls(system, codes, list(names.cat.categories), _off_cpu(attributed, pieces))

    def columns(self, group: Ints, groups: int) -> dict[str, object]:
        """Return the columns of a table whose row of each piece is ``group``.

        ``os_ns`` is the time in calls of the operating system, ``os_call`` the one with most of it,
        '' without any, and ``off_cpu_ns`` the time on no CPU. Without such records there is none.
        """
        result: dict[str, object] = {}
        if self.names:
            row = group[self.system.interval]
            result["os_call"] = texts([*self.names, ""])[self._main_call(row, groups)]
            result["os_ns"] = sums(row, self.system.time, groups)
        if self.off_cpu is not None:
            result["off_cpu_ns"] = sums(group, self.off_cpu, groups)
        return result

    def _main_call(self, row: Ints, rows: int) -> Ints:
        """Return the name with most time of each row; of equal ones the first by name; NONE for none."""
        pair, first = number_groups(row, self.name)
        time = sums(pair, self.system.time, len(first))
        rank = np.argsort(np.argsort(np.array(self.names)))
        order = order_by(row[first], -time, rank[self.name[first]])
        main = order[run_edges(row[first][order])[:-1]]
        result = np.full(rows, NONE)
        result[row[first][main]] = self.name[first][main]
        return result
