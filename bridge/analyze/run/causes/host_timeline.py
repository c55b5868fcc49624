"""Timelines of the host: the state of each thread at any instant."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bridge.analyze.core.groups import texts
from bridge.analyze.core.kinds import (
    BLOCKING,
    COMPILING,
    COPYING,
    LAUNCHING,
    WAITING,
    calls_matching,
)
from bridge.importers.arrays import lookup
from bridge.importers.records import record
from bridge.join.arrays import (
    NONE,
    Flags,
    Ints,
    order_by,
    run_edges,
    search_groups,
    stable_order,
    unions,
)
from bridge.join.attributed import AttributedCapture
from bridge.join.nesting import Nesting

# -- States of API calls


# States of a thread. Of several at once the last counts: it says more about an idle GPU.
IDLE, IN_OP, IN_LAUNCH, IN_API, IN_COPY, IN_BLOCKING, IN_SYNC, IN_COMPILER, IN_LOADER = range(9)
WAITS = (IN_BLOCKING, IN_SYNC)  # the thread waits for the device
TO_HOST = 2  # copy kind of nsys


def call_states(attributed: AttributedCapture) -> Ints:
    """Return the state that each API call puts its thread into, `IN_LAUNCH` to `IN_COMPILER`."""
    states = np.full(len(attributed.capture.launches), IN_API)
    for pattern, state in (
        (LAUNCHING, IN_LAUNCH),
        (COPYING, IN_COPY),
        (BLOCKING, IN_BLOCKING),
        (WAITING, IN_SYNC),
        (COMPILING, IN_COMPILER),
    ):
        states[calls_matching(attributed, pattern)] = state
    states[(states == IN_COPY) & _returned_late(attributed)] = IN_BLOCKING
    return states


def call_ends(attributed: AttributedCapture) -> Ints:
    """Return the end of each API call in ns, its start if the end is before it."""
    calls = attributed.capture.launches
    return np.maximum(calls.end, calls.start)


def _returned_late(attributed: AttributedCapture) -> Flags:
    """Return whether each API call returned only after the end of its copy to the host.

    Asynchronous copies to pageable memory do so, too.
    """
    launch = attributed.attribution.launch
    to_host = attributed.capture.activities.copy_kind == TO_HOST
    copies = np.flatnonzero(to_host & (launch != NONE))
    late = copies[attributed.end[copies] <= call_ends(attributed)[launch[copies]]]
    result = np.zeros(len(attributed.capture.launches), bool)
    result[launch[late]] = True
    return result


# -- Unions of intervals per thread


MANY_STACKS = 1_000  # more are looked at together


def count_before(
    events: tuple[Ints, Ints], stack: Ints, time: Ints, side: Literal["left", "right"]
) -> Ints:
    """Return how many events precede each instant, including all events of lower-numbered stacks.

    ``events`` are stacks and times, sorted by both. An event at the instant itself counts only with
    ``side="right"``.
    """
    stacks, times = events
    edges = run_edges(stacks)
    if len(edges) > MANY_STACKS:
        return search_groups(stacks, times, stack, time, side=side)
    result = np.searchsorted(stacks, stack, side="left")
    bounds = {int(stacks[a]): (a, b) for a, b in pairwise(edges.tolist())}
    order = stable_order(stack)
    for first, last in pairwise(run_edges(stack[order]).tolist()):  # one iteration per thread
        rows = order[first:last]
        a, b = bounds.get(int(stack[rows[0]]), (0, 0))
        if b > a:
            result[rows] = a + np.searchsorted(times[a:b], time[rows], side=side)
    return result


@record
class Cover:
    """Union of intervals per stack: disjoint and sorted."""

    stack: Ints
    start: Ints
    end: Ints

    @classmethod
    def of(cls, stack: Ints, start: Ints, end: Ints) -> Cover:
        """Return the union of intervals."""
        return cls(*unions(stack, start, end))

    def within(self, stack: Ints, start: Ints, end: Ints) -> Ints:
        """Return how many ns of each interval are covered."""
        if not len(self.stack):
            return np.zeros(len(stack), np.int64)
        return self._until(stack, end) - self._until(stack, start)

    def meets(self, stack: Ints, start: Ints, end: Ints) -> Flags:
        """Return whether each interval, of a length above 0, is covered at least in part."""
        begun_before = count_before((self.stack, self.start), stack, end, "left")
        ended_before = count_before((self.stack, self.end), stack, start, "right")
        meets: Flags = begun_before > ended_before
        return meets

    def _until(self, stack: Ints, time: Ints) -> Ints:
        """Return the covered time before each instant, plus all of lower-numbered stacks."""
        count = count_before((self.stack, self.start), stack, time, "right")
        total = np.concatenate(([0], np.cumsum(self.end - self.start)))
        last = np.maximum(count - 1, 0)
        remaining = np.where((count > 0) & (self.stack[last] == stack), self.end[last] - time, 0)
        before: Ints = total[count] - np.maximum(remaining, 0)
        return before


# -- The state of each thread over time


MIN_TIME = np.iinfo(np.int64).min


@record
class Pieces:
    """Pieces of intervals: interval, state, the stack that has the state, start and end."""

    interval: Ints
    state: Ints
    stack: Ints
    start: Ints
    end: Ints

    def take(self, rows: Ints | np.ndarray) -> Pieces:
        columns = (self.interval, self.state, self.stack, self.start, self.end)
        return Pieces(*(column[rows] for column in columns))

    @property
    def length(self) -> Ints:
        """Length of each piece in ns."""
        return self.end - self.start


def concatenate(*parts: Pieces) -> Pieces:
    columns = ("interval", "state", "stack", "start", "end")
    return Pieces(*(np.concatenate([getattr(part, c) for part in parts]) for c in columns))


@dataclass(frozen=True)
class Timeline:
    """State of each stack over time, which changes only at edges, sorted by stack and time.

    Of several states at once the largest number counts; 0 is for none.
    """

    stack: Ints
    time: Ints
    state: Ints

    @classmethod
    def of(cls, stack: Ints, start: Ints, end: Ints, kind: Ints) -> Timeline:
        """Return the timeline of intervals whose states are numbers from 1 on."""
        has_length = end > start
        if not has_length.all():
            stack, start, end, kind = (c[has_length] for c in (stack, start, end, kind))
        stacks = np.concatenate((stack, stack))
        time = np.concatenate((start, end))
        step = np.repeat(np.array([1, -1]), len(stack))
        order = order_by(stacks, time)
        stacks, time, step, kind = (
            stacks[order],
            time[order],
            step[order],
            np.concatenate((kind, kind))[order],
        )
        state = np.zeros(len(time), np.int64)
        for number in np.unique(kind).tolist():  # one iteration per state, the largest last
            state[np.cumsum(np.where(kind == number, step, 0)) > 0] = number
        is_last = np.ones(len(time), bool)  # the last of the edges at one instant
        is_last[:-1] = (stacks[1:] != stacks[:-1]) | (time[1:] != time[:-1])
        return cls(stacks[is_last], time[is_last], state[is_last])

    def cut(self, stack: Ints, start: Ints, end: Ints) -> Pieces:
        """Cut intervals (on a stack, longer than 0) where the state of their stack changes."""
        first = count_before((self.stack, self.time), stack, start, "right") - 1
        last = count_before((self.stack, self.time), stack, end, "left") - 1
        size = last - first + 1
        row = np.repeat(np.arange(len(stack)), size)
        edge = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size - first, size)
        is_same_stack = (
            np.append(self.stack, MIN_TIME)[edge] == stack[row]
        )  # False before the first edge
        opens = np.where(is_same_stack, np.append(self.time, MIN_TIME)[edge], MIN_TIME)
        closes = np.append(self.time, MIN_TIME)[np.minimum(edge + 1, len(self.time))]
        is_inner = np.arange(len(row)) < np.repeat(np.cumsum(size), size) - 1
        return Pieces(
            interval=row,
            state=np.where(is_same_stack, lookup(self.state, edge, 0), 0),
            stack=stack[row],
            start=np.maximum(start[row], opens),
            end=np.where(is_inner, closes, end[row]),
        )


# -- What bounds the time of an op


WORDS = ("GPU", "memcpy", "launch", "sync", "starved", "host")  # of equal times the first counts


def bound(kernels: Ints, copies: Ints, times: dict[str, Ints]) -> NDArray[np.object_]:
    """Return for each group what bounds its time, one of `WORDS`.

    ``kernels`` and ``copies`` are times in ns, ``times`` the columns of `causes`. A wait counts
    only where it is longer than the time of the group on the host, and only the part that exceeds
    its work on the device, for which it may wait. If all figures are 0, the word is "host".
    """
    on_host = times["host_ns"] + times["api_ns"]
    wait = np.where(times["sync_ns"] > on_host, times["sync_ns"] - kernels - copies, 0)
    figures = np.stack((kernels, copies, times["launch_gap_ns"], wait, times["starved_ns"]))
    all_zero = figures.max(axis=0) <= 0
    return texts(WORDS)[np.where(all_zero, WORDS.index("host"), figures.argmax(axis=0))]


# -- Self time of ranges by the state of their thread


def self_times_by_call(attributed: AttributedCapture) -> tuple[Ints, Ints, Ints]:
    """Return per node the ns outside API calls, in calls that do not wait, and in calls that wait.

    The times exclude ranges inside the node. An instant in nested calls counts once, as a wait if
    any of them waits.
    """
    nesting = attributed.attribution.nesting
    in_calls = _time_in_calls(attributed, np.ones(len(attributed.capture.launches), bool))
    in_waits = _time_in_calls(attributed, np.isin(call_states(attributed), WAITS))
    self_time = _without_children(nesting, nesting.end - nesting.start)
    return self_time - in_calls, in_calls - in_waits, in_waits


def _time_in_calls(attributed: AttributedCapture, mask: Flags) -> Ints:
    """Return the self time of each node during which its thread was in one of these calls."""
    nesting = attributed.attribution.nesting
    start = attributed.capture.launches.start
    columns = (attributed.attribution.stack, start, call_ends(attributed))
    cover = Cover.of(*(c if mask.all() else c[mask] for c in columns))
    return _without_children(nesting, cover.within(nesting.stack, nesting.start, nesting.end))


def _without_children(nesting: Nesting, total: Ints) -> Ints:
    """Return the value of each node less those of its children on the same thread."""
    values = total.copy()
    parent = nesting.parent
    children = np.flatnonzero((parent != NONE) & (nesting.stack[parent] == nesting.stack))
    np.subtract.at(values, parent[children], total[children])
    return values
