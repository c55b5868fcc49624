"""Adoption: work that a thread launches outside of ranges belongs to the range that waits for it.

PyTorch's autograd engine launches the backward pass from its own threads, while the thread that
called ``loss.backward()`` waits with its range open. That range adopts the work. For other threads
adoption is a guess by time, and only made on request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bridge.importers import frames
from bridge.importers.arrays import scatter
from bridge.importers.capture import Capture
from bridge.importers.frames import key_codes
from bridge.importers.graph_annotations import is_of_graph_node
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by, run_edges
from bridge.join.attribution import (
    AMBIGUOUS,
    ATTRIBUTED,
    BY_ADOPTION,
    BY_GUESS,
    NO_RANGE,
    Attribution,
    Launches,
)
from bridge.join.grammar import Label, parse
from bridge.join.nesting import LIBRARY_KINDS, Nesting

# -- Work of PyTorch's autograd engine


AUTOGRAD = re.compile(r"(?<!\w)pt_autograd_\d+")  # how PyTorch calls the engine's threads
PID_SHIFT = 24  # of the process id in a globalTid
MAY_BE_BACKWARD = re.compile("backward", re.IGNORECASE)


class NeedsWholeReportError(ValueError):
    """A part of a report does not tell whether a thread is autograd's."""


@record
class Callers:
    """For some API calls, each the node in which other threads wait, and how many threads do.

    ``call`` are rows of API calls, ``node`` is NONE if not exactly one thread waits.
    """

    call: Ints
    node: Ints
    offers: Ints

    def only(self, mask: Flags) -> Callers:
        return Callers(self.call[mask], self.node[mask], self.offers[mask])


def with_autograd_work(
    capture: Capture, attribution: Attribution, launches: Launches, *, is_window: bool = False
) -> Attribution:
    """Assign what autograd's threads launch outside of ranges to the range of the caller.

    That is the innermost range open on the one other thread of the process that is neither in an
    operator of a library nor autograd's. If several threads qualify, the reason is `AMBIGUOUS`.
    A thread is autograd's by its name. In a process without such a name, a thread that is not the
    first one is autograd's if all it launches falls into backward ranges of such callers, and if it
    launches more than copies. ``is_window`` says that the capture is a part of a report. Raises
    NeedsWholeReportError if other parts decide on the latter.
    """
    is_timeline = np.array([facts.timeline for facts in capture.facts], bool)
    rows = np.flatnonzero(attribution.reason == NO_RANGE)
    rows = rows[is_timeline[launches.report[attribution.launch[rows]]]]
    if not len(rows) or not len(attribution.nesting):
        return attribution
    called = np.zeros(len(launches.start), bool)
    called[attribution.launch[rows]] = True
    waiting = _Waiting.of(capture, attribution, launches)
    call = np.flatnonzero(called)
    is_named = waiting.is_autograd(call)
    by_name = waiting.callers(call[is_named])
    by_pattern = _by_pattern(waiting, call[~is_named], is_window=is_window)
    node, offers = np.full(len(called), NONE), np.zeros(len(called), np.int64)
    for callers in (by_name, by_pattern):
        node[callers.call], offers[callers.call] = callers.node, callers.offers
    reason = attribution.reason.copy()
    reason[rows[offers[attribution.launch[rows]] > 1]] = AMBIGUOUS
    owner = node[attribution.launch[rows]]
    return _with_owners(replace(attribution, reason=reason), rows, owner, BY_ADOPTION)


@record
class _Waiting:
    """The threads of a capture, and in which ranges they wait."""

    capture: Capture
    attribution: Attribution
    launches: Launches
    range_process: Ints
    call_process: Ints

    @classmethod
    def of(cls, capture: Capture, attribution: Attribution, launches: Launches) -> _Waiting:
        range_keys = [capture.ranges.report, capture.ranges.process]
        codes = key_codes(range_keys, (launches.report, launches.process))
        return cls(capture, attribution, launches, *codes)

    def is_autograd(self, call: Ints) -> Flags:
        """Return whether each API call was made on a thread with a name of autograd's."""
        return self._has_name("thread", self.launches.report[call], self.launches.thread[call])

    def has_autograd(self, call: Ints) -> Flags:
        """Return whether the process of each API call has a thread with a name of autograd's."""
        return self._has_name("process", self.launches.report[call], self.launches.process[call])

    def _has_name(self, key: str, report: Ints, number: Ints) -> Flags:
        """Return whether each thread, or process, is one with a name of autograd's."""
        threads = self.capture.threads
        rows = np.flatnonzero(threads.name.matching(AUTOGRAD.search))
        keys = [threads[c][rows] for c in ("report", key)]
        of_rows, of_threads = key_codes((report, number), keys)
        result: Flags = np.isin(of_rows, of_threads)
        return result

    def callers(self, call: Ints) -> Callers:
        """Return the callers of the work that these API calls issued."""
        nesting, time = self.attribution.nesting, self.launches.start[call]
        node, offers = np.full(len(call), NONE), np.zeros(len(call), np.int64)
        if not len(call):
            return Callers(call, node, offers)
        edges = run_edges(nesting.stack)
        first_range = nesting.range[edges[:-1]]
        process = self.range_process[first_range]
        place = self.capture.ranges.report[first_range], self.capture.ranges.thread[first_range]
        may_wait = ~self._has_name("thread", *place) & np.isin(process, self.call_process[call])
        may_wait &= ~is_of_graph_node(place[1])  # a callback of a CUDA graph waits for nothing
        for n in np.flatnonzero(may_wait).tolist():  # one iteration per stack
            stack = nesting.stack[edges[n]]
            is_other = self.attribution.stack[call] != stack
            rows = np.flatnonzero((self.call_process[call] == process[n]) & is_other)
            open_node = nesting.innermost_of((edges[n], edges[n + 1]), time[rows])
            waits = open_node != NONE
            waits[waits] = ~self.is_in(open_node[waits], _is_library)
            node[rows[waits]] = open_node[waits]
            offers[rows[waits]] += 1
        return Callers(call, np.where(offers == 1, node, NONE), offers)

    def is_in(self, nodes: Ints, matches: Callable[[Label], bool]) -> Flags:
        """Return whether each node, or a node around it, has a label that matches."""
        nesting = self.attribution.nesting
        distinct, place = np.unique(nodes, return_inverse=True)
        name = self.capture.ranges.name
        code, is_match = name.codes, np.zeros(len(distinct), bool)
        current = distinct.copy()
        pending = np.arange(len(distinct))
        while len(pending):
            codes, back = np.unique(code[nesting.range[current[pending]]], return_inverse=True)
            labels = (parse(name.texts[code]) for code in codes.tolist())
            is_match[pending] |= np.array([matches(label) for label in labels], bool)[back]
            current[pending] = nesting.parent[current[pending]]
            pending = pending[(current[pending] != NONE) & ~is_match[pending]]
        result: Flags = is_match[place]
        return result


def _is_library(label: Label) -> bool:
    return label.kind in LIBRARY_KINDS


def _is_backward(label: Label) -> bool:
    return label.backward


def _by_pattern(waiting: _Waiting, call: Ints, *, is_window: bool) -> Callers:
    """Return the callers of those API calls whose threads are autograd's by what they launch."""
    launches, stack = waiting.launches, waiting.attribution.stack
    process = launches.process[call] >> PID_SHIFT & frames.ID_BITS
    is_first = launches.thread[call] & frames.ID_BITS == process  # thread of its process
    call = call[~is_first & ~waiting.has_autograd(call)]
    names = "\n".join(waiting.capture.ranges.name.texts) if len(call) else ""
    if not MAY_BE_BACKWARD.search(names):
        return waiting.callers(call[:0])
    callers = waiting.callers(call)
    stacks = np.setdiff1d(stack[call], stack[call[~_in_backward(waiting, callers)]])
    if len(stacks) and is_window:
        raise NeedsWholeReportError
    issued = np.zeros(len(stack), bool)
    issued[waiting.attribution.launch[waiting.attribution.launch != NONE]] = True
    others = waiting.callers(np.flatnonzero(issued & np.isin(stack, stacks)))
    outside = others.call[~_in_backward(waiting, others)]
    stacks = np.intersect1d(np.setdiff1d(stacks, stack[outside]), _computing(waiting))
    return callers.only(np.isin(stack[call], stacks))


def _in_backward(waiting: _Waiting, callers: Callers) -> Flags:
    """Return whether each API call has one caller, in a range that is backward by its name."""
    result: Flags = callers.node != NONE
    result[result] = waiting.is_in(callers.node[result], _is_backward)
    return result


def _computing(waiting: _Waiting) -> Ints:
    """Return the stacks that launch kernels or graphs."""
    activities, launch = waiting.capture.activities, waiting.attribution.launch
    computes = activities.kind.among(frames.KERNEL) | activities.kind.among(frames.GRAPH)
    result: Ints = np.unique(waiting.attribution.stack[launch[computes & (launch != NONE)]])
    return result


# -- Guesses by time, for the threads of any library


@record
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


def with_guesses(attribution: Attribution, capture: Capture, launches: Launches) -> Attribution:
    """Assign outermost ranges and activities without an op to a range of one other thread.

    Outermost ranges get that range as
    parent. Activities without an op get its op, by the rule `BY_GUESS`. The range must contain
    them in time. Its thread must launch work at some time, but nothing from their start to their
    end (for activities: from the first to the last launch of their thread within the range). If
    several threads qualify, nothing is assigned. Ranges in which nothing is launched do not change.
    """
    nesting = attribution.nesting
    range_keys = [capture.ranges.report, capture.ranges.process]
    range_process, call_process = key_codes(range_keys, (launches.report, launches.process))
    threads = _threads(attribution, range_process, launches)
    roots = threads.working(np.flatnonzero(nesting.parent == NONE))
    outermost = Intervals(
        range_process[nesting.range[roots]],
        *(c[roots] for c in (nesting.stack, nesting.start, nesting.end)),
    )
    parent = nesting.parent.copy()
    parent[roots] = _adopting_nodes(threads, outermost, bursts=False)
    rows = np.flatnonzero(np.isin(attribution.reason, (NO_RANGE, AMBIGUOUS)))
    call = attribution.launch[rows]
    when = launches.start[call]
    orphans = Intervals(call_process[call], attribution.stack[call], when, when)
    node = _adopting_nodes(threads, orphans, bursts=True)
    attribution = replace(attribution, nesting=replace(nesting, parent=parent))
    return _with_owners(attribution, rows, node, BY_GUESS)


def _with_owners(attribution: Attribution, rows: Ints, node: Ints, rule: int) -> Attribution:
    """Return the attribution with each of ``rows`` owned by ``node``, where that is not NONE."""
    rows, node = rows[node != NONE], node[node != NONE]
    changed = {c: getattr(attribution, c).copy() for c in ("node", "rule", "reason")}
    changed["node"][rows] = node
    changed["rule"][rows], changed["reason"][rows] = rule, ATTRIBUTED
    return replace(attribution, **changed)


def _threads(attribution: Attribution, range_process: Ints, launches: Launches) -> Threads:
    nesting = attribution.nesting
    process = scatter(
        range_process[nesting.range], nesting.stack, int(nesting.stack.max(initial=NONE)) + 1
    )
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
