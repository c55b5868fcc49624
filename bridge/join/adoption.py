"""Adoption: work of threads without ranges is assigned to the range in which another thread waits.

PyTorch's autograd engine launches the backward pass from its own threads, while the thread that
called ``loss.backward()`` waits with its range open and launches nothing. Adoption is a guess by
time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by
from bridge.join.attribution import ATTRIBUTED, BY_ADOPTION, NO_RANGE, Attribution, Launches
from bridge.join.nesting import Nesting
from importers.frames import key_codes


@dataclass(frozen=True)
class Intervals:
    """Work that needs a range of another thread: its process, its stack, and its interval in ns."""

    process: Ints
    stack: Ints
    start: Ints
    end: Ints


@dataclass(frozen=True)
class Threads:
    """The stacks of a nesting: the process of each, and all launches sorted by (stack, time)."""

    nesting: Nesting
    process: Ints
    stack: Ints
    time: Ints

    def idle(self, stack: int, start: Ints, end: Ints) -> Flags:
        """Return whether ``stack`` launched nothing in each [start, end]."""
        first, last = np.searchsorted(self.stack, (stack, stack + 1))
        time = self.time[first:last]
        idle: Flags = np.searchsorted(time, end, "right") == np.searchsorted(time, start, "left")
        return idle

    def working(self, nodes: Ints) -> Ints:
        """Return those of ``nodes`` in which their own stack launched something."""
        stack, start, end = (
            c[nodes] for c in (self.nesting.stack, self.nesting.start, self.nesting.end)
        )
        idle = np.ones(len(nodes), bool)
        for number in np.unique(stack).tolist():  # one iteration per stack
            is_same = stack == number
            idle[is_same] = self.idle(number, start[is_same], end[is_same] - 1)
        return nodes[~idle]


def with_adoption(
    attribution: Attribution, range_keys: tuple[Ints, Ints], launches: Launches
) -> Attribution:
    """Assign outermost ranges and activities without an op to a range of one other thread.

    ``range_keys`` holds report and process of each range. Outermost ranges get that range as
    parent. Activities without an op get its op, by the rule `BY_ADOPTION`. The range must contain
    them in time. Its thread must launch work at some time, but nothing from their start to their
    end (for activities: from the first to the last launch of their thread within the range). If
    several threads qualify, nothing is assigned. Ranges in which nothing is launched do not change.
    """
    nesting = attribution.nesting
    range_process, call_process = key_codes(range_keys, (launches.report, launches.process))
    threads = _threads(attribution, range_process, launches)
    roots = threads.working(np.flatnonzero(nesting.parent == NONE))
    outermost = Intervals(
        range_process[nesting.range[roots]],
        *(c[roots] for c in (nesting.stack, nesting.start, nesting.end)),
    )
    parent = nesting.parent.copy()
    parent[roots] = _adopting_nodes(threads, outermost, bursts=False)
    rows = np.flatnonzero(attribution.reason == NO_RANGE)
    call = attribution.launch[rows]
    when = launches.start[call]
    orphans = Intervals(call_process[call], attribution.stack[call], when, when)
    node = _adopting_nodes(threads, orphans, bursts=True)
    return _with_owners(replace(attribution, nesting=replace(nesting, parent=parent)), rows, node)


def _with_owners(attribution: Attribution, rows: Ints, node: Ints) -> Attribution:
    """Return the attribution with each of ``rows`` owned by ``node``, where that is not NONE."""
    rows, node = rows[node != NONE], node[node != NONE]
    changed = {c: getattr(attribution, c).copy() for c in ("node", "range", "rule", "reason")}
    changed["node"][rows], changed["range"][rows] = node, attribution.nesting.range[node]
    changed["rule"][rows], changed["reason"][rows] = BY_ADOPTION, ATTRIBUTED
    return replace(attribution, **changed)


def _threads(attribution: Attribution, range_process: Ints, launches: Launches) -> Threads:
    nesting = attribution.nesting
    process = np.full(int(nesting.stack.max(initial=NONE)) + 1, NONE)
    process[nesting.stack] = range_process[nesting.range]
    working = np.unique(attribution.launch[attribution.launch != NONE])
    stack, time = attribution.stack[working], launches.start[working]
    order = order_by(stack, time)
    return Threads(nesting, process, stack[order], time[order])


def _adopting_nodes(threads: Threads, intervals: Intervals, *, bursts: bool) -> Ints:
    """Return the node that adopts each interval, NONE unless exactly one other stack qualifies.

    With ``bursts``, intervals of one stack in one node are adopted only if the other thread is idle
    from the first to the last of them.
    """
    result, offer_count = (
        np.full(len(intervals.start), NONE),
        np.zeros(len(intervals.start), np.int64),
    )
    # Threads that never launch anything, for example data loaders, do not wait for this work.
    launching = np.intersect1d(threads.nesting.stack, threads.stack)
    for stack in launching.tolist():  # one iteration per stack
        rows = np.flatnonzero(
            (intervals.process == threads.process[stack]) & (intervals.stack != stack)
        )
        start, end = intervals.start[rows], intervals.end[rows]
        node = threads.nesting.enclosing(np.full(len(start), stack), start, end)
        if bursts:
            start, end = _first_and_last(intervals.stack[rows], node, start)
        fits = (node != NONE) & threads.idle(stack, start, end)
        result[rows[fits]] = node[fits]
        offer_count[rows[fits]] += 1
    return np.where(offer_count == 1, result, NONE)


def _first_and_last(stack: Ints, node: Ints, time: Ints) -> tuple[Ints, Ints]:
    """Return for each row the first and last time of all rows with the same stack and node."""
    burst, burst_row = number_groups(stack, node)
    first, last = time[burst_row].copy(), time[burst_row].copy()
    np.minimum.at(first, burst, time)
    np.maximum.at(last, burst, time)
    return first[burst], last[burst]
