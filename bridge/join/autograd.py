"""Directions: backward ranges, and their forward ranges by PyTorch's sequence number.

PyTorch numbers the nodes of the autograd graph per process. The backward call of a node carries the
number of the forward call, and runs on another thread. Numbers recur with ``create_graph``, with
several forward threads, and after a fork.
"""

from __future__ import annotations

import numpy as np

from bridge.importers.arrays import lookup
from bridge.importers.capture import Capture
from bridge.importers.range_texts import SEQ, numbers
from bridge.importers.records import record
from bridge.join.arrays import NONE, Flags, Ints, number_groups, order_by
from bridge.join.grammar import parse
from bridge.join.nesting import Nesting, inherited

# -- Directions of ranges


# The range around each backward call, which has no sequence number.
ENGINE = "autograd::engine::evaluate_function: "


@record
class Directions:
    """Per node: whether it is backward, its forward range (or NONE), and whether that is ambiguous.

    A forward range is ambiguous if several threads had one with the same number. ``ranges`` holds
    for every range, also for those without a node, whether it is backward.
    """

    backward: Flags
    forward: Ints
    ambiguous: Flags
    ranges: Flags

    @classmethod
    def of(cls, capture: Capture, nesting: Nesting) -> Directions:
        """Find directions by name and by nesting, and forward ranges by sequence number."""
        named = _named(capture)
        backward = named_backward(capture, nesting)
        first = nesting.first_nodes(len(named))
        ranges = np.where(first == NONE, named, lookup(backward, first, False))
        link, ambiguous = _links(capture, first, ranges)
        engine = capture.ranges.name[nesting.range].matching(lambda name: name.startswith(ENGINE))
        link, ambiguous = _with_engine_ranges(
            nesting, engine, link[nesting.range], ambiguous[nesting.range]
        )
        nearest = inherited(nesting, np.where(link == NONE, NONE, np.arange(len(link))))
        has_forward = (nearest != NONE) & backward
        forward = np.where(has_forward, lookup(link, nearest), NONE)
        return cls(backward, forward, has_forward & lookup(ambiguous, nearest, False), ranges)


def named_backward(capture: Capture, nesting: Nesting) -> Flags:
    """Return whether each node, or a node around it, is backward by its name."""
    named = _named(capture)[nesting.range]
    result: Flags = inherited(nesting, np.where(named, 1, NONE)) == 1
    return result


def _named(capture: Capture) -> Flags:
    return capture.ranges.name.matching(lambda name: parse(name).backward)


def _links(capture: Capture, first: Ints, backward: Flags) -> tuple[Ints, Flags]:
    """Return the forward range of each range, and whether several threads had one."""
    forward, ambiguous = np.full(len(first), NONE), np.zeros(len(first), bool)
    seq = numbers(capture.texts, SEQ)[capture.ranges.text]
    rows = np.flatnonzero((first != NONE) & (seq != NONE))
    if len(rows):
        columns = ("report", "process", "thread", "start", "end")
        report, process, thread, start, end = (capture.ranges[c][rows] for c in columns)
        calls = Calls(
            process=number_groups(report, process)[0],
            thread=thread,
            start=start,
            end=end,
            seq=seq[rows],
        )
        links = link_calls(calls, backward[rows])
        forward[rows] = lookup(rows, links.forward)
        ambiguous[rows] = links.ambiguous
    return forward, ambiguous


def _with_engine_ranges(
    nesting: Nesting, engine: Flags, link: Ints, ambiguous: Flags
) -> tuple[Ints, Flags]:
    """Link the engine's range around a backward call to the forward range of that call."""
    parent = nesting.parent
    inner = np.flatnonzero((link != NONE) & (parent != NONE))
    inner = inner[engine[parent[inner]] & (link[parent[inner]] == NONE)]
    link, ambiguous = link.copy(), ambiguous.copy()
    link[parent[inner]], ambiguous[parent[inner]] = link[inner], ambiguous[inner]
    return link, ambiguous


# -- Links by sequence number


@record
class Links:
    """Per row: the row of its forward range, or NONE, and whether several threads had one."""

    forward: Ints
    ambiguous: Flags


@record
class Calls:
    """Ranges with a sequence number."""

    process: Ints
    thread: Ints
    start: Ints
    end: Ints
    seq: Ints


@record
class _Keyed:
    """Calls by key, a code per (process, sequence number).

    Forward calls are sorted, inner ones last.
    """

    key: Ints
    thread: Ints
    start: Ints


def link_calls(calls: Calls, backward: Flags) -> Links:
    """Link each backward call to the forward call with the same number.

    Candidates are calls of the process that started before it, on other threads if there are any.
    The one that started last wins, because calls around the one that made the node carry its number
    too.
    """
    key, _ = number_groups(calls.process, calls.seq)
    backward_rows, forward_rows = np.flatnonzero(backward), np.flatnonzero(~backward)
    forward_rows = forward_rows[
        order_by(key[forward_rows], calls.start[forward_rows], -calls.end[forward_rows])
    ]
    backward_calls, forward_calls = (
        _Keyed(key[rows], calls.thread[rows], calls.start[rows])
        for rows in (backward_rows, forward_rows)
    )
    forward, ambiguous = np.full(len(key), NONE), np.zeros(len(key), bool)
    if len(backward_rows) and len(forward_rows):
        forward[backward_rows] = lookup(forward_rows, _latest(backward_calls, forward_calls))
        ambiguous[backward_rows] = _threads_before(backward_calls, forward_calls) > 1
    return Links(forward, ambiguous)


def _latest(backward_calls: _Keyed, forward_calls: _Keyed) -> Ints:
    """Return the index of the last earlier forward call, preferably of another thread, or NONE."""
    last = _before(backward_calls.key, backward_calls.start, forward_calls.key, forward_calls.start)
    foreign = _on_another_thread(
        last, backward_calls.thread, forward_calls.key, forward_calls.thread
    )
    return np.where(foreign == NONE, last, foreign)


def _before(key: Ints, time: Ints, keys: Ints, times: Ints) -> Ints:
    """Return the last index into sorted (keys, times) with equal key and earlier time, or NONE."""
    is_forward = np.concatenate((np.zeros(len(key), np.int64), np.ones(len(keys), np.int64)))
    # At equal times backward calls sort before forward calls, so that only earlier ones precede
    # them.
    order = order_by(np.concatenate((key, keys)), np.concatenate((time, times)), is_forward)
    forward_before = np.cumsum(is_forward[order]) - 1
    place = np.full(len(key), NONE)
    is_backward = order < len(key)
    place[order[is_backward]] = forward_before[is_backward]
    same = (place != NONE) & (keys[np.maximum(place, 0)] == key)
    return np.where(same, place, NONE)


def _on_another_thread(place: Ints, thread: Ints, keys: Ints, threads: Ints) -> Ints:
    """Return the last index up to each place with the same key and another thread, or NONE."""
    starts_run = np.ones(len(keys), bool)
    starts_run[1:] = (keys[1:] != keys[:-1]) | (threads[1:] != threads[:-1])
    run_start = np.maximum.accumulate(np.where(starts_run, np.arange(len(keys)), 0))
    is_same_thread = (place != NONE) & (threads[place] == thread)
    before = np.where(is_same_thread, run_start[place] - 1, place)
    other_key = keys[np.maximum(before, 0)] != keys[np.maximum(place, 0)]
    return np.where((before < 0) | other_key, NONE, before)


def _threads_before(backward_calls: _Keyed, forward_calls: _Keyed) -> Ints:
    """Return how many other threads had a forward call with the same key earlier."""
    # the earliest call of each key and thread
    _, rows = number_groups(forward_calls.key, forward_calls.thread)
    rows = rows[order_by(forward_calls.key[rows], forward_calls.start[rows])]
    keys, firsts = forward_calls.key[rows], forward_calls.start[rows]
    place = _before(backward_calls.key, backward_calls.start, keys, firsts)
    count = np.where(place == NONE, 0, place + 1 - np.searchsorted(keys, backward_calls.key))
    keys_and_threads = (
        np.concatenate((keys, backward_calls.key)),
        np.concatenate((forward_calls.thread[rows], backward_calls.thread)),
    )
    pair, _ = number_groups(*keys_and_threads)
    first = np.full(int(pair.max(initial=0)) + 1, np.iinfo(np.int64).max)
    first[pair[: len(keys)]] = firsts
    own_earlier = first[pair[len(keys) :]] < backward_calls.start
    return count - own_earlier
